//! Compares the reader's messages for wrong configurations with recorded ones, so that a change of the declarations cannot change them unnoticed.
//! `WEIR_WRITE=1` writes the record again.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::config::{Review, load};

/// Valid files, each key on a line of its own. Together they have every key of the time of recording, except upstream.bootstrap.
const WHOLE: [&str; 3] =
    [include_str!("recorded/streams.yaml"), include_str!("recorded/polled.yaml"), include_str!("recorded/files.yaml")];
const LIST: &str = "src/config/tests/recorded/messages.txt";

fn messages(text: &str) -> Vec<String> {
    let Review { faults, warnings, .. } = load::review(Path::new("relay.yaml"), text, &|_| None, false);
    let warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
    let faults = faults.iter().map(|fault| fault.to_string().replace('\n', " "));
    faults.chain(warnings).map(|message| without_list(&message).to_owned()).collect()
}

/// Removes the list of known keys: a section that gets another key has a longer list, which does not count as another message.
fn without_list(message: &str) -> &str {
    match message.split_once(": expected one of ") {
        Some((start, _)) if start.contains("unknown key") => start,
        _ => message,
    }
}

/// The file with one key dropped, doubled, misspelt and of another type, for each of its keys.
fn variants(whole: &str) -> Vec<(String, String)> {
    let lines: Vec<_> = whole.lines().collect();
    let mut variants = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let start = line.len() - line.trim_start_matches([' ', '-']).len();
        let Some((key, value)) = line[start..].split_once(':').filter(|(key, _)| !key.contains(['#', '\'', '/']))
        else {
            continue;
        };
        let inner = lines[at + 1..].iter().take_while(|below| below.len() - below.trim_start().len() > start);
        let end = at + 1 + inner.count();
        let mut change = |what: &str, lines_instead: &[String]| {
            let changed = lines[..at].iter().map(|line| (*line).to_owned()).chain(lines_instead.iter().cloned());
            let changed: Vec<_> = changed.chain(lines[end..].iter().map(|line| (*line).to_owned())).collect();
            variants.push((format!("{what} {key} in line {}", at + 1), changed.join("\n") + "\n"));
        };
        let whole_key: Vec<_> = lines[at..end].iter().map(|line| (*line).to_owned()).collect();
        let is_item = line[..start].contains('-');
        let start_of_item = if is_item { vec![line[..start].trim_end().to_owned()] } else { Vec::new() };
        change("without", &start_of_item);
        let again = format!("{}{}", " ".repeat(start), &line[start..]);
        let twice: Vec<_> = whole_key.iter().cloned().chain([again]).chain(whole_key[1..].iter().cloned()).collect();
        change("twice", &twice);
        let misspelt = format!("{}{key}x:{value}", &line[..start]);
        change("misspelt", &[&[misspelt][..], &whole_key[1..]].concat());
        for other in ["soon", "-1", "[]", "{a: b}", "0", "null", "99999999999999999999"] {
            change(&format!("{other} for"), &[format!("{}{key}: {other}", &line[..start])]);
        }
    }
    variants
}

#[test]
fn wrong_configurations_get_the_messages_that_they_always_got() {
    let mut said = String::new();
    let mut count = 0;
    for (number, whole) in WHOLE.into_iter().enumerate() {
        let usual = messages(whole);
        assert!(usual.iter().all(|message| message.starts_with("warning: ")), "{usual:?}");
        for (what, text) in variants(whole) {
            let found = messages(&text);
            let news: Vec<_> = found.into_iter().filter(|message| !usual.contains(message)).collect();
            let _ = writeln!(said, "{number} {what}: {}", news.join("\n    ")); // writing to a String does not fail
            count += 1;
        }
    }
    assert!(count > 1000, "{count}");
    if std::env::var("WEIR_WRITE").is_ok_and(|value| value == "1") {
        fs::write(LIST, &said).unwrap();
    }
    let recorded = fs::read_to_string(LIST).unwrap();
    let differences = recorded.lines().zip(said.lines()).filter(|(before, now)| before != now);
    assert_eq!(
        differences.take(20).collect::<Vec<_>>(),
        [],
        "before and now: WEIR_WRITE=1 cargo test --lib recorded, if what is said now is better"
    );
    assert_eq!(recorded.lines().count(), said.lines().count());
}
