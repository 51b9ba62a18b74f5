//! Reads a valid JSON text to a tree with the positions of keys and values. YAML's parser does not read all of JSON.

use super::diagnostic::{Diagnostics, FilePosition};
use super::yaml::{Node, Scalar, Value, YamlEntry};

/// Reads a text that serde_json accepts. The first of duplicate keys counts, and the others are faults.
pub(super) fn read(text: &str, found: &mut Diagnostics) -> Node {
    JsonReader { rest: text, line: 1, column: 1, found }.node(String::new())
}

/// `rest` begins at `line` and `column`.
struct JsonReader<'t, 'f> {
    rest: &'t str,
    line: u64,
    column: u64,
    found: &'f mut Diagnostics,
}

impl<'t> JsonReader<'t, '_> {
    fn node(&mut self, path: String) -> Node {
        self.skip_space();
        let place = self.place(path);
        let value = match self.rest.as_bytes().first() {
            Some(b'{') => Value::Map(self.entries(&place)),
            Some(b'[') => Value::List(self.items(&place)),
            Some(b'"') => self.string(&place).map_or(Value::Faulty, |text| Value::Scalar(Scalar::Text(text))),
            _ => Value::Scalar(self.word()),
        };
        Node { place, value }
    }

    fn items(&mut self, list: &FilePosition) -> Vec<Node> {
        let mut items = Vec::new();
        while self.has_next(']') {
            items.push(self.node(list.item(items.len())));
        }
        items
    }

    fn entries(&mut self, map: &FilePosition) -> Vec<YamlEntry> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        while self.has_next('}') {
            let mut place = self.place(map.path.clone());
            let key = self.string(&place);
            place.path = key.as_ref().map_or(place.path, |key| map.key(key));
            self.skip_space();
            self.take(1); // the colon
            let node = self.node(place.path.clone());
            let Some(key) = key else { continue };
            match entries.iter().find(|entry| entry.key == key) {
                Some(first) => {
                    let reason = format!("duplicate key {key:?}: already in line {}", first.place.line);
                    self.found.fault(&place, reason);
                }
                None => entries.push(YamlEntry { key, place, node }),
            }
        }
        entries
    }

    /// Moves to the next item, past the opening bracket or a comma. Returns false past the closing bracket, and at the end.
    fn has_next(&mut self, closing: char) -> bool {
        self.skip_space();
        if !self.rest.starts_with(closing) {
            self.take(1);
            self.skip_space();
        }
        let is_end = self.rest.is_empty() || self.rest.starts_with(closing);
        if is_end {
            self.take(1);
        }
        !is_end
    }

    fn string(&mut self, place: &FilePosition) -> Option<String> {
        let mut escaped = false;
        let is_end = |(_, letter): &(usize, char)| {
            let ends = *letter == '"' && !escaped;
            escaped = *letter == '\\' && !escaped;
            ends
        };
        let end = self.rest.char_indices().skip(1).find(is_end).map_or(self.rest.len(), |(at, _)| at + 1);
        let text = serde_json::from_str(self.take(end));
        if text.is_err() {
            self.found.fault(place, "invalid string: an escape is no character"); // half of a surrogate pair
        }
        text.ok()
    }

    /// Reads a number, or null, true or false.
    fn word(&mut self) -> Scalar {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        match self.take(end) {
            "null" => Scalar::Null,
            "true" => Scalar::Flag(true),
            "false" => Scalar::Flag(false),
            number => match number.parse() {
                Ok(integer) => Scalar::Integer(integer),
                Err(_) => Scalar::Float(number.parse().unwrap_or(f64::NAN)),
            },
        }
    }

    fn skip_space(&mut self) {
        let is_space = |letter| matches!(letter, ' ' | '\t' | '\r' | '\n');
        let end = self.rest.find(|letter| !is_space(letter)).unwrap_or(self.rest.len());
        self.take(end);
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        for letter in taken.chars() {
            (self.line, self.column) = if letter == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.rest = rest;
        taken
    }

    fn place(&self, path: String) -> FilePosition {
        FilePosition { line: self.line, column: self.column, path }
    }
}
