//! Finds the lines of values in a text, after a parser that does not keep them. Only error messages need them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::error::Step;
use super::yaml;

/// The positions of all values in the documents of a YAML text.
pub(super) struct YamlPlaces(Vec<Spanned<Node>>);

impl YamlPlaces {
    pub(crate) fn read(text: &str) -> Self {
        Self(yaml::documents(text).unwrap_or_default())
    }

    /// Returns the line of the value at a place in a document, or of the last existing value on the way to it.
    pub(crate) fn line(&self, document: usize, place: &[Step]) -> Option<u64> {
        let mut node = self.0.get(document)?;
        for step in place {
            let inner = match (step, &node.value) {
                (Step::Index(index), Node::List(items)) => items.get(*index),
                (Step::Field(key) | Step::Key(key), Node::Map(entries)) => {
                    entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
                }
                _ => None,
            };
            match inner {
                Some(inner) => node = inner,
                None => break,
            }
        }
        Some(node.referenced.line()).filter(|line| *line > 0)
    }
}

enum Node {
    Leaf,
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! leaves {
    ($($visit:ident: $of:ty),*) => {
        $(fn $visit<E>(self, _: $of) -> Result<Node, E> {
            Ok(Node::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64, visit_str: &str);
    leaves!(visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            nodes.push(entry);
        }
        Ok(Node::Map(nodes))
    }
}

/// Returns the line of the value at a place in a JSON text, or of the last existing value on the way to it. The text has to be well-formed.
pub(super) fn json_line(text: &str, place: &[Step]) -> u64 {
    let mut scan = Scan { text: text.as_bytes(), at: 0 };
    scan.descend(place);
    line_at(text, scan.at)
}

/// Returns the items of the list at a place, each with its line.
pub(super) fn json_items<'t>(text: &'t str, place: &[Step]) -> Vec<(u64, &'t str)> {
    let mut scan = Scan { text: text.as_bytes(), at: 0 };
    scan.descend(place);
    let (mut items, mut line, mut counted) = (Vec::new(), 1, 0);
    if !scan.enter(b'[') {
        return items;
    }
    while scan.peek().is_some_and(|byte| byte != b']') {
        let start = scan.at;
        line += newlines(&scan.text[counted..start]);
        counted = start;
        scan.pass_value();
        items.extend(text.get(start..scan.at).map(|item| (line, item)));
        scan.pass(b',');
    }
    items
}

fn line_at(text: &str, offset: usize) -> u64 {
    1 + newlines(text.as_bytes().get(..offset).unwrap_or(text.as_bytes()))
}

fn newlines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Moves to the value at a place, or to the last existing value on the way to it.
    fn descend(&mut self, place: &[Step]) {
        self.peek();
        for step in place {
            let start = self.at;
            let found = match step {
                Step::Index(index) => self.enter(b'[') && self.pass_items(*index),
                Step::Field(key) | Step::Key(key) => self.enter(b'{') && self.pass_members(key),
            };
            if !found {
                self.at = start;
                return;
            }
        }
    }

    fn pass_items(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.peek().is_none_or(|byte| byte == b']') {
                return false;
            }
            self.pass_value();
            self.pass(b',');
        }
        self.peek().is_some_and(|byte| byte != b']')
    }

    fn pass_members(&mut self, wanted: &str) -> bool {
        while self.peek() == Some(b'"') {
            let start = self.at;
            self.pass_value();
            let key = serde_json::from_slice::<String>(&self.text[start..self.at]);
            self.pass(b':');
            self.peek();
            if key.is_ok_and(|key| key == wanted) {
                return true;
            }
            self.pass_value();
            self.pass(b',');
        }
        false
    }

    fn enter(&mut self, opening: u8) -> bool {
        let is_there = self.peek() == Some(opening);
        self.pass(opening);
        self.peek();
        is_there
    }

    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn pass(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.at += 1;
        }
    }

    fn pass_value(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    if depth == 0 {
                        return;
                    }
                    depth -= 1;
                }
                b',' | b':' if depth == 0 => return,
                b'"' => self.pass_string(),
                _ => {}
            }
            // Skips the closing quote of a string, or the single byte.
            self.at += 1;
            if depth == 0 && matches!(byte, b'}' | b']' | b'"') {
                return;
            }
        }
    }

    /// Moves to the closing quote.
    fn pass_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => return,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }
}
