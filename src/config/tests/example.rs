//! The file with every key, config/relay.yaml.

use std::path::Path;

use crate::config::Config;
use crate::config::form::{Presence, Row, Section, as_written};
use crate::config::raw::Root;

/// Returns the text of the file: keys with a default are in force with it, other keys as their declarations say.
pub(super) fn example_file() -> String {
    let mut file = File { lines: HEAD.lines().map(str::to_owned).collect() };
    for row in Root::rows() {
        file.lines.push(String::new());
        file.key(&row, &Indent::default(), &format!(" docs/configuration.md#{}", row.key));
    }
    file.lines.join("\n") + "\n"
}

struct File {
    lines: Vec<String>,
}

/// The beginning of a line: spaces, and the signs of comments and of list items.
#[derive(Debug, Clone, Default)]
struct Indent {
    first: String,
    others: String,
}

impl Indent {
    fn then(&self, first: &str, others: &str) -> Self {
        Self { first: format!("{}{first}", self.first), others: format!("{}{others}", self.others) }
    }
}

impl File {
    fn key(&mut self, row: &Row, indent: &Indent, more: &str) {
        let comment = format!("{}{}{more}", row.summary(), values_of(row));
        let inner = (row.inner)();
        let (example, is_written) = row.pages.example.unzip();
        let is_in_force = is_written.unwrap_or(row.default.is_some() || row.presence != Presence::Optional);
        let indent = if is_in_force { indent.clone() } else { indent.then("# ", "# ") };
        if inner.rows.is_empty() || (inner.items == "[]" && example.is_some_and(|text| !text.is_empty())) {
            let example = example.filter(|text| !text.is_empty()).map(str::to_owned);
            let value = example.or(row.default.as_ref().map(as_written));
            let value = value.unwrap_or_else(|| panic!("{} needs a note: example or written", row.key));
            return self.line(&format!("{}{}: {value}", indent.first, row.key), &comment);
        }
        self.line(&format!("{}{}:", indent.first, row.key), &comment);
        let others = Indent { first: indent.others.clone(), others: indent.others };
        let inside = match inner.items {
            "[]" => others.then("  - ", "    "),
            "" => others.then("  ", "  "),
            _ => {
                self.lines.push(format!("{}  {}:", others.first, example.unwrap_or("name")));
                others.then("    ", "    ")
            }
        };
        for (number, row) in inner.rows.iter().enumerate() {
            let first = if number == 0 { &inside.first } else { &inside.others };
            self.key(row, &Indent { first: first.clone(), others: inside.others.clone() }, "");
        }
    }

    /// Writes a comment beside a line, and its remainder below the line.
    fn line(&mut self, text: &str, comment: &str) {
        let column = COLUMN.max(text.chars().count() + 2);
        let (mut start, mut words) = (format!("{text:column$}#"), comment.split(' ').peekable());
        while let Some(word) = words.next() {
            start = format!("{start} {word}");
            if words.peek().is_some_and(|next| start.chars().count() + 1 + next.chars().count() > WIDTH) {
                self.lines.push(std::mem::replace(&mut start, format!("{:column$}#", "")));
            }
        }
        self.lines.push(start);
    }
}

/// Returns the possible values if they are few, or the bounds of a number.
fn values_of(row: &Row) -> String {
    let form = (row.pages.form)();
    match form.split_once(", ") {
        Some((first, others)) if first.starts_with('`') => format!(" One of {first}, {others}.").replace('`', ""),
        Some((_, range)) if range.contains(" to ") => format!(" {range}."),
        _ => String::new(),
    }
}

const HEAD: &str = "\
# Every key, with its default where there is one; keys that are comments have none, or are not needed here. docs/configuration.md explains
# them at more length. This file is written from the declarations of the keys.
# Sizes are bytes, or have a unit (64MiB). ${NAME} in a value is an environment variable, and $$ a dollar sign; `weir check` reports
# every fault, and `weir schema` prints a JSON schema for editors.
";
/// The column of comments, except beside longer lines.
const COLUMN: usize = 40;
const WIDTH: usize = 140;

/// Keys that cannot be in force beside the other keys.
const OTHERWISE: [&str; 15] = [
    "mode",
    "owner",
    "group",
    "files",
    "rest",
    "refresh_delay",
    "request_timeout",
    "tls",
    "token_file",
    "tenants",
    "bootstrap",
    "bootstrap_from_environment",
    "shared_authorities",
    "descriptors",
    "preset",
];

#[test]
fn each_comment_of_the_example_can_be_put_in_force() {
    let text = example_file();
    let lines: Vec<_> = text.lines().collect();
    let (mut valid, mut others) = (0, Vec::new());
    for (at, line) in lines.iter().enumerate().skip(HEAD.lines().count()) {
        let indent = line.len() - line.trim_start().len();
        let Some(key) = line[indent..].strip_prefix("# ").and_then(|rest| rest.split_once(':')).map(|(key, _)| key)
        else {
            continue;
        };
        if indent >= COLUMN || !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            continue;
        }
        let inner = format!("{}#  ", " ".repeat(indent));
        let is_of_it = |line: &&&str| line.starts_with(&inner) || line.trim_start().len() + COLUMN <= line.len();
        let end = at + 1 + lines[at + 1..].iter().take_while(is_of_it).count();
        let mut changed: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        for line in changed[at..end].iter_mut().filter(|line| line[indent..].starts_with("# ")) {
            line.replace_range(indent..indent + 2, "");
        }
        match Config::parse(Path::new("config/relay.yaml"), &(changed.join("\n") + "\n")) {
            Ok(_) => valid += 1,
            Err(error) => others.push((key, error.to_string())),
        }
    }
    let unexpected: Vec<_> = others.iter().filter(|(key, _)| !OTHERWISE.contains(key)).collect();
    assert!(unexpected.is_empty() && valid > 12, "{valid} are valid, and not {unexpected:#?}");
}
