//! Names views by what operators know of them: the fields of their sharing key instead of its hash.

/// Returns the name of a view, made from those fields of its key that have a value.
pub(crate) fn view_words<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let (mut words, mut has_fields) = (Vec::new(), false);
    for (field, value) in fields {
        has_fields = true;
        if !value.is_empty() {
            words.push(format!("{field}={}", quoted(value)));
        }
    }
    match words.is_empty() {
        true if has_fields => "nothing stated".to_owned(),
        true => "all".to_owned(),
        false => shortened(words.join(" ")),
    }
}

/// Returns a name of at most [`LONGEST`] characters.
fn shortened(words: String) -> String {
    match words.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

/// The longest name: clients decide how long the values of their fields are.
const LONGEST: usize = 60;

/// Returns a value of the key, in quotes if it could otherwise be misread.
fn quoted(value: &str) -> String {
    let is_plain =
        !value.is_empty() && !value.contains(|letter: char| letter.is_whitespace() || "=\"()".contains(letter));
    if is_plain { value.to_owned() } else { format!("\"{value}\"") }
}
