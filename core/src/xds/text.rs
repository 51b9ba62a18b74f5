//! Texts of peers, which may be of any length.

/// The longest text of an error that is kept or sent, in bytes.
pub(crate) const ERROR_BYTES: usize = 4096;

/// Returns the text of a peer, cut to at most `limit` bytes.
pub fn truncate(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
