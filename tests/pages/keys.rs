//! Finds configuration keys in the pages that do not exist, by the schema that the program prints.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::markdown::Page;

/// Extensions of file names: `tls.crt` is not a key.
const EXTENSIONS: [&str; 10] = ["conf", "crt", "html", "json", "md", "png", "rs", "service", "toml", "yaml"];

/// Fields of a node, parts of which may be in `views.key`: `metadata.tenant` is a value there, not a key.
const NODE_FIELDS: [&str; 2] = ["id", "metadata"];

pub struct Keys(Value);

impl Keys {
    pub fn read() -> Self {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("schema").output().unwrap();
        Self(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Returns the keys of a page that do not exist: in code spans such as `limits.linger` or `servers[].tls.ca`, and in complete
    /// YAML configurations. Ignores the first column of tables of fields, which has JSON paths.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let mut faults = Vec::new();
        let mut is_of_fields = false;
        for line in page.prose() {
            is_of_fields = line.text.starts_with("| Field ") || is_of_fields && line.text.starts_with('|');
            let spans = crate::markdown::spans(&line.text).into_iter().skip(usize::from(is_of_fields));
            for span in spans.filter(|span| self.is_key(span) == Some(false)) {
                faults.push(page.fault(line, format!("no key {span}")));
            }
        }
        for (first, text) in blocks(page).into_iter().filter(|(_, text)| self.is_configuration(text)) {
            faults.extend(unknown_keys(&text).into_iter().map(|fault| format!("{}:{first}: {fault}", page.path)));
        }
        faults
    }

    /// Returns whether a span is an existing key; `None` if it may be something else.
    fn is_key(&self, span: &str) -> Option<bool> {
        let path = span.split_once(": ").map_or(span, |(key, _)| key);
        let steps: Vec<_> = path.split('.').map(without_index).collect();
        let is_word = |step: &&str| {
            !step.is_empty() && step.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        if NODE_FIELDS.contains(&steps[0]) {
            return None;
        }
        if steps.len() < 2 || !steps.iter().all(is_word) || EXTENSIONS.contains(&steps[steps.len() - 1]) {
            return None;
        }
        let mut places = Vec::new();
        if self.0["properties"].get(steps[0]).is_some() {
            below(&self.0, steps[0], &mut places);
        } else {
            anywhere(&self.0, steps[0], &mut places);
            places.retain(has_keys);
            if places.is_empty() {
                return None;
            }
        }
        for step in &steps[1..] {
            let mut next = Vec::new();
            for place in places {
                below(place, step, &mut next);
            }
            places = next;
        }
        Some(!places.is_empty())
    }

    fn is_configuration(&self, text: &str) -> bool {
        let first = text.lines().find(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        let key = first.and_then(|line| line.split_once(':')).map(|(key, _)| key);
        key.is_some_and(|key| self.0["properties"].get(key).is_some())
    }
}

fn without_index(step: &str) -> &str {
    match step.split_once('[') {
        Some((name, index)) if index.ends_with(']') => name,
        _ => step,
    }
}

/// Adds the schemas of a key, in all forms that the schema allows there, and in the items of a list.
fn below<'a>(schema: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    found.extend(schema["properties"].get(key));
    found.extend(Some(&schema["additionalProperties"]).filter(|value| value.is_object()));
    found.extend(schema["patternProperties"].as_object().into_iter().flat_map(|patterns| patterns.values()));
    for alternative in alternatives(schema) {
        below(alternative, key, found);
    }
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(move |form| schema[form].as_array()).flatten();
    lists.chain(schema.get("items"))
}

/// Adds the schemas of a key in any part of a schema.
fn anywhere<'a>(schema: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    found.extend(schema["properties"].get(key));
    let properties = schema["properties"].as_object().into_iter().flat_map(|properties| properties.values());
    for part in properties.chain(alternatives(schema)).chain(schema.get("additionalProperties")) {
        anywhere(part, key, found);
    }
}

fn has_keys(schema: &&Value) -> bool {
    schema["properties"].is_object() || alternatives(schema).any(|alternative| has_keys(&alternative))
}

/// Returns the YAML code blocks, each with the number of its first line.
fn blocks(page: &Page) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, usize, String)> = Vec::new();
    for line in page.lines.iter().filter(|line| line.block.as_deref() == Some("yaml")) {
        match blocks.last_mut().filter(|(_, last, _)| last + 1 == line.number) {
            Some((_, last, text)) => {
                *last = line.number;
                *text += &format!("{}\n", line.text);
            }
            None => blocks.push((line.number, line.number, format!("{}\n", line.text))),
        }
    }
    blocks.into_iter().map(|(first, _, text)| (first, text)).collect()
}

/// Returns the unknown keys that `weir check` reports. Ignores its other errors, since a part of a configuration is incomplete.
fn unknown_keys(text: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["check", "--quiet", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains("unknown key")).map(str::to_owned).collect()
}

#[test]
fn a_key_that_does_not_exist_is_found() {
    let keys = Keys::read();
    let found = |text: &str| keys.faults(&Page::parse("a.md", text));
    let good = "`limits.linger`, `servers[].tls.ca`, `listen[0].address`, `liveness.method: none`, `app.rs`, `tls.crt`, `metadata.tenant`";
    assert_eq!(found(good), [""; 0]);
    assert_eq!(found("`limits.lingre`"), ["a.md:1: no key limits.lingre"]);
    assert_eq!(found("`upstream.servers[].liveness.metod`"), ["a.md:1: no key upstream.servers[].liveness.metod"]);
    assert_eq!(found("`liveness.metod`"), ["a.md:1: no key liveness.metod"]);
    assert_eq!(found("| Field | Meaning |\n|---|---|\n| `types[].lack` | `limits.linger` |"), [""; 0]);
    assert_eq!(found("```yaml\nlimits: {linger: 1s}\n```\n```yaml\nrules: {a: b}\n```"), [""; 0]);
    let wrong = found("# A\n```yaml\nlimits: {lingre: 1s}\n```");
    assert!(wrong.len() == 1 && wrong[0].starts_with("a.md:3: ") && wrong[0].contains("lingre"), "{wrong:?}");
}
