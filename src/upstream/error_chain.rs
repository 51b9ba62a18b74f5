//! An error with its causes, as one line.

use std::error::Error;

/// Formats an error with all its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    with_causes(without_manual(error.to_string()), error)
}

/// Cuts off the link to a library's manual that some errors end with: it is for programmers.
pub(super) fn without_manual(mut text: String) -> String {
    if let Some(at) = text.find(MANUALS) {
        text.truncate(at);
        text.truncate(text.trim_end().trim_end_matches(':').len());
    }
    text
}

/// Adds the causes of an error to its text. Some errors repeat their cause in their own text; such a cause is not added again.
pub(super) fn with_causes(mut text: String, error: &dyn Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let said = without_manual(cause.to_string());
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

const MANUALS: &str = "https://docs.rs/";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    /// The text of rustls when a server closes a connection without an alert.
    #[test]
    fn no_error_ends_with_a_link_to_the_manual_of_a_library() {
        let eof = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let cut = "peer closed connection without sending TLS close_notify";
        let cause = Link { text: eof, source: None };
        assert_eq!(chain(&cause), cut);
        let wrapped = Link { text: "transport error", source: Some(Box::new(cause)) };
        assert_eq!(chain(&wrapped), format!("transport error: {cut}"));
    }

    #[test]
    fn each_cause_is_said_once_also_where_an_error_repeats_it() {
        let chained = |texts: &[&'static str]| {
            let link = |source, text: &&'static str| Some(Box::new(Link { text, source }));
            chain(texts.iter().rev().fold(None, link).unwrap().as_ref())
        };
        assert_eq!(chained(&["alone"]), "alone");
        assert_eq!(
            chained(&["cannot connect", "transport error", "refused"]),
            "cannot connect: transport error: refused"
        );
        assert_eq!(
            chained(&["cannot connect: refused", "refused", "os error 111"]),
            "cannot connect: refused: os error 111"
        );
        assert_eq!(with_causes("Unavailable".into(), &Link { text: "left out", source: None }), "Unavailable");
    }
}
