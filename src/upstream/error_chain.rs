//! An error with its causes, as one line.

use std::error::Error;

/// Formats an error with all its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error)
}

/// Adds the causes of an error to its text. Some errors repeat their cause in their own text; such a cause is not added again.
pub(super) fn with_causes(mut text: String, error: &dyn Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
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
