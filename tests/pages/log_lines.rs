//! Finds quoted log lines that the program does not write. A quoted one is a code span in double quotes; CONTRIBUTING.md has the notation.

use std::fs;
use std::path::Path;

use crate::markdown::Page;

/// How many letters a message needs, besides its placeholders, to be distinguishable from others.
const ENOUGH: usize = 8;

/// Stands for the rest of a message.
const REST: char = '…';

/// The literals of the sources, without those of tests.
pub struct Literals {
    all: Vec<String>,
    /// The literals that are the message of a log line where they occur.
    messages: Vec<String>,
}

impl Literals {
    pub fn read(root: &Path) -> Self {
        let (mut literals, mut folders) = (Self { all: Vec::new(), messages: Vec::new() }, Vec::new());
        folders.extend(["src", "core/src", "loadtest/src"].map(|top| root.join(top)));
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if is_source(&path) {
                    literals.add(&fs::read_to_string(path).unwrap());
                }
            }
        }
        literals
    }

    fn add(&mut self, source: &str) {
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let mut logged = None; // the bracket depth in the macro of a log line, and the macro's last literal
        let code = code.join("\n");
        let mut rest = code.as_str();
        while let Some(letter) = rest.chars().next() {
            let begins = ["info!(", "warn!(", "error!(", "debug!("].iter().find_map(|start| rest.strip_prefix(*start));
            if let Some(after) = begins.filter(|_| logged.is_none()) {
                (logged, rest) = (Some((1, None)), after);
                continue;
            }
            if let Some(after) = rest.strip_prefix("'\"'").or_else(|| rest.strip_prefix("'\\\"'")) {
                rest = after; // the quote was a character literal
                continue;
            }
            rest = &rest[letter.len_utf8()..];
            match (letter, &mut logged) {
                ('"', logged) => {
                    let (text, after) = literal(rest);
                    if let Some((_, last)) = logged {
                        *last = Some(text.clone());
                    }
                    self.all.push(text);
                    rest = after;
                }
                ('(', Some((depth, _))) => *depth += 1,
                (')', Some((depth, last))) => {
                    *depth -= 1;
                    if *depth == 0 {
                        self.messages.extend(last.take());
                        logged = None;
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the log lines of a page that match no literal, and messages that are quoted without the notation.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let quoted = |span: &str| {
            let inner =
                span.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|inner| inner.contains(' '));
            inner.map(str::to_owned)
        };
        let fault = |span: &str| match quoted(span) {
            Some(line) if !self.all.iter().any(|literal| stands_for(literal, &line)) => {
                Some(format!("no log line {line:?}"))
            }
            None if span.contains(' ') && self.messages.iter().any(|message| message == span) => {
                Some(format!("a log line without quotes: {span}"))
            }
            _ => None,
        };
        let in_prose = page.spans().into_iter().filter_map(|(line, span)| Some(page.fault(line, fault(span)?)));
        let blocks = page.lines.iter().filter(|line| line.block.is_some());
        let in_blocks = blocks.filter_map(|line| {
            let message = logged(&line.text)?;
            let begins = |literal: &String| {
                let after = message.strip_prefix(literal.as_str());
                literal.len() >= ENOUGH && after.is_some_and(|after| after.is_empty() || after.starts_with(' '))
            };
            (!self.messages.iter().any(begins)).then(|| page.fault(line, format!("no log line {message:?}")))
        });
        in_prose.chain(in_blocks).collect()
    }
}

fn is_source(path: &Path) -> bool {
    let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    path.extension().is_some_and(|extension| extension == "rs") && !is_test
}

/// Splits a literal from the text after it. Returns its text without escapes and line breaks, and the rest.
fn literal(rest: &str) -> (String, &str) {
    let (mut text, mut letters) = (String::new(), rest.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &rest[at + 1..]),
            '\\' => match letters.next() {
                Some((_, '\n')) => {
                    let indented = letters.as_str();
                    let length = indented.len() - indented.trim_start().len();
                    for _ in indented[..length].chars() {
                        letters.next();
                    }
                }
                Some((_, escaped)) => text.push(escaped),
                None => break,
            },
            letter => text.push(letter),
        }
    }
    (text, "")
}

/// Whether a quoted line matches a literal: placeholders match any text, and `…` at the end of the quoted line matches the rest.
fn stands_for(literal: &str, quoted: &str) -> bool {
    let (quoted, is_start) = match quoted.strip_suffix(REST) {
        Some(start) => (start.trim_end(), true),
        None => (quoted, false),
    };
    let fixed = literal.split('{').next().unwrap_or_default();
    if is_start && fixed.starts_with(quoted) {
        return true;
    }
    if fixed == literal {
        return literal == quoted;
    }
    let mut parts = Vec::new();
    let mut rest = literal;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((_, after)) = after.split_once('}') else { return false };
        parts.push(before);
        rest = after;
    }
    parts.push(rest);
    let letters: usize = parts.iter().map(|part| part.chars().filter(|c| c.is_alphabetic()).count()).sum();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    let Some(mut left) = quoted.strip_prefix(first).filter(|_| letters >= ENOUGH) else { return false };
    for part in &parts[1..] {
        match left.find(*part) {
            Some(at) => left = &left[at + part.len()..],
            None => return is_start && fixed.chars().filter(|letter| letter.is_alphabetic()).count() >= ENOUGH,
        }
    }
    is_start || left.is_empty() || last.is_empty()
}

/// Returns the message of a log line: of `INFO weir::a: message`, the last part.
fn logged(line: &str) -> Option<&str> {
    let levels = ["ERROR weir", "WARN weir", "INFO weir", "DEBUG weir"];
    let after = levels.iter().find_map(|level| line.split_once(level)).map(|(_, after)| after)?;
    after.split_once(": ").map(|(_, message)| message)
}

#[test]
fn a_log_line_that_the_program_does_not_write_is_found() {
    let mut literals = Literals { all: Vec::new(), messages: Vec::new() };
    literals.add(
        "fn a() {\n    // \"a comment\"\n    tracing::info!(a = f(1), \"relay \\\n        ready\");\n    let b = \"lost; serving {} and {more}\";\n\
         }\n#[cfg(test)]\nmod tests { \"of a test\" }",
    );
    assert_eq!(literals.all, ["relay ready", "lost; serving {} and {more}"]);
    assert_eq!(literals.messages, ["relay ready"]);
    let found = |text: &str| literals.faults(&Page::parse("a.md", text));
    let good = "`\"relay ready\"`, `\"relay…\"`, `\"lost; serving a and b c\"`, `\"lost; serving…\"`, `\"JSON\"`, `other words`\n\
        ```text\nINFO weir::app: relay ready after=1\n```";
    assert_eq!(found(good), [""; 0]);
    assert_eq!(found("`\"relay steady\"`"), ["a.md:1: no log line \"relay steady\""]);
    assert_eq!(found("`\"of a test\"`"), ["a.md:1: no log line \"of a test\""]);
    assert_eq!(found("`relay ready`"), ["a.md:1: a log line without quotes: relay ready"]);
    assert_eq!(
        found("```text\nWARN weir::app: relay not ready a=b\n```"),
        ["a.md:2: no log line \"relay not ready a=b\""]
    );
}

#[test]
fn the_sources_are_read() {
    let literals = Literals::read(&crate::markdown::root());
    assert!(literals.messages.len() > 100, "{}", literals.messages.len());
    assert!(literals.messages.iter().any(|message| message == "clusters removed while routing refers to them"));
}
