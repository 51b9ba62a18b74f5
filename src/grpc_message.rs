//! The text of a gRPC status in a header.

use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Returns the value of `grpc-message`; `None` for an empty text. Clients decode it to the same text.
pub(crate) fn header(text: &str) -> Option<HeaderValue> {
    let encoded = utf8_percent_encode(text, UNSAFE).to_string();
    HeaderValue::from_str(&encoded).ok().filter(|_| !text.is_empty())
}

/// The ASCII characters that are escaped, beside everything that is not ASCII.
const UNSAFE: &AsciiSet = &CONTROLS.add(b'%');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_arrives() {
        let shown = |text: &str| header(text).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(shown("50 % of é\nare\u{7f} lost").unwrap(), "50 %25 of %C3%A9%0Aare%7F lost");
        assert_eq!(shown("too many: ~ \"10\"").unwrap(), "too many: ~ \"10\"");
        assert_eq!(shown(""), None);
    }
}
