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
