//! How texts quote the value of a header.

/// Returns the forms in which a text may have a value: it need not be UTF-8, others read each of its bytes as a letter, and where a connection has
/// ended the text has it as code would.
pub(super) fn quotes_of(value: &[u8]) -> Vec<String> {
    let mut quotes = vec![String::from_utf8_lossy(value).into_owned()];
    if !value.is_ascii() {
        quotes.push(value.iter().map(|byte| char::from(*byte)).collect());
    }
    quotes.push(value.iter().map(|byte| as_code(*byte)).collect());
    quotes.retain(|quote| !quote.is_empty());
    quotes.dedup();
    quotes
}

/// A byte as h2 shows it of what a server says with GOAWAY.
fn as_code(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).into(),
        _ => format!("\\x{byte:02x}"),
    }
}
