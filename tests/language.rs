//! The language for users: documents, configuration examples, and the messages of the program.
//!
//! The list has words that are private or vague, each with the usual term. This test does not replace a reader: a text that passes may still be
//! hard to read.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that must not be used, each with the words to use instead.
const RULED_OUT: [(&str, &str); 31] = [
    ("out of reach", "unreachable"),
    ("in reach", "reachable"),
    ("let go of", "released"),
    ("lets go of", "releases"),
    ("put together", "aggregated"),
    ("taken on", "accepted"),
    ("sent away", "drained"),
    ("anew", "again"),
    ("whoever", "name the actor"),
    ("nobody", "name the actor"),
    ("somebody", "name the actor"),
    ("what comes of it", "result"),
    ("in good order", "gracefully"),
    ("come back and", "reconnect"),
    ("is told", "is sent, is reported"),
    ("are told", "are sent, are reported"),
    ("was told", "was sent, was reported"),
    ("were told", "were sent, were reported"),
    ("is owed", "is pending"),
    ("are owed", "are pending"),
    ("in vain", "failed"),
    ("be it that", "even if"),
    ("is no duration", "invalid duration"),
    ("is no type", "unknown type"),
    ("the design page", "nothing outside the repository"),
    ("the requirements", "nothing outside the repository"),
    ("observed-clients", "nothing outside the repository"),
    ("spec section", "nothing outside the repository"),
    ("seats", "sessions"),
    ("shelf", "resource table"),
    ("shelves", "resource tables"),
];

fn is_read_by_users(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("md" | "yaml")) && !path.ends_with("conformance.md")
}

fn files_in(folder: &str, takes: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(folder)]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if takes(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the ruled-out words in a line.
fn ruled_out(line: &str) -> Vec<String> {
    let line = line.to_lowercase();
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let stands = |word: &str| {
        line.match_indices(word).any(|(at, _)| {
            !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next())
        })
    };
    let found = RULED_OUT.iter().filter(|(word, _)| stands(word));
    found.map(|(word, instead)| format!("{word:?} (instead: {instead})")).collect()
}

/// Returns a line without the names of tests in it (`file::function`, `program module::function`).
fn without_tests(line: &str) -> String {
    line.split('`').filter(|part| !part.contains("::")).collect::<Vec<_>>().join("`")
}

fn report(path: &Path, number: usize, line: &str) -> Vec<String> {
    ruled_out(line).into_iter().map(|word| format!("{}:{}: {word}", path.display(), number + 1)).collect()
}

#[test]
fn documents_and_examples_use_the_words_of_the_field() {
    let mut found = Vec::new();
    let top = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "core/README.md"]
        .map(PathBuf::from);
    let files = top.into_iter().chain(files_in("docs", is_read_by_users)).chain(files_in("config", is_read_by_users));
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(without_tests).enumerate();
        found.extend(lines.flat_map(|(number, line)| report(&path, number, &line)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// String literals outside tests: log lines, errors, help and reports.
#[test]
fn messages_use_the_words_of_the_field() {
    let mut found = Vec::new();
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    for path in [files_in("src", is_rust), files_in("core/src", is_rust)].concat() {
        if path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").enumerate();
        for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let literals = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
            found.extend(report(&path, number, &literals));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_word_that_is_ruled_out_is_found_and_a_part_of_another_is_not() {
    assert_eq!(ruled_out("The server is Out of reach.").len(), 1);
    assert_eq!(ruled_out("bookshelf, anewt").len(), 0);
    assert_eq!(without_tests("anew, `anew`, `tests/a.rs::anew`"), "anew, `anew`, `");
}
