//! Finds paths of the repository that do not exist, and types that the file which is named for them does not define.

use std::fs;
use std::path::{Path, PathBuf};

use crate::markdown::Page;

/// The folders that a path may be relative to. ARCHITECTURE.md omits the folders of sources.
const STARTS: [&str; 6] = ["", "src", "core/src", "core", "loadtest/src", "loadtest"];

/// The top folders of the repository: a span that begins with one of them is a path.
const TOP: [&str; 11] =
    ["src", "core", "tests", "docs", "config", "deploy", "loadtest", "proto", "fuzz", ".ci", "testkit"];

/// Returns paths and files in code spans that do not exist. Ignores spans that may be something else.
pub fn missing(page: &Page, root: &Path) -> Vec<String> {
    let spans = page.spans().into_iter();
    let missing = spans.filter(|(_, span)| is_path(span, root) && files(path_of(span), page, root).is_empty());
    missing.map(|(line, span)| page.fault(line, format!("no file or folder {span}"))).collect()
}

/// Returns the types in brackets after a path, as in `` `a.rs` (`A`, `B`) ``, that the file does not define.
pub fn undefined(page: &Page, root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for line in page.prose().filter(|line| line.text.matches('`').count() % 2 == 0) {
        let parts: Vec<_> = line.text.split('`').collect();
        // The odd parts are spans. After each of them comes the text up to the next span.
        for opened in (2..parts.len().saturating_sub(1)).step_by(2).filter(|at| parts[*at] == " (") {
            let mut paths = vec![parts[opened - 1]];
            let mut before = opened - 2;
            while before >= 2 && is_between(parts[before]) {
                paths.push(parts[before - 1]);
                before -= 2;
            }
            if !paths.iter().all(|path| is_path(path, root)) {
                continue;
            }
            let sources: String = paths.iter().map(|path| text_of(&files(path_of(path), page, root))).collect();
            let mut at = opened + 1;
            while let Some(name) = parts.get(at).filter(|name| is_type(name)) {
                if !sources.is_empty() && !defines(&sources, name) {
                    found.push(page.fault(line, format!("{} does not define {name}", paths.join(", "))));
                }
                if !parts.get(at + 1).is_some_and(|between| is_between(between)) {
                    break;
                }
                at += 2;
            }
        }
    }
    found
}

fn is_between(text: &str) -> bool {
    [", ", " and "].contains(&text)
}

fn is_type(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

fn defines(source: &str, name: &str) -> bool {
    let is_whole = |at: usize| !source[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    ["struct", "enum", "trait", "type", "union"].into_iter().any(|kind| {
        let definition = format!("{kind} {name}");
        source.match_indices(&definition).any(|(at, _)| is_whole(at + definition.len()))
    })
}

/// Returns a path without the function of a test that follows it.
fn path_of(span: &str) -> &str {
    span.split("::").next().unwrap_or(span).trim_end_matches('/')
}

fn is_path(span: &str, root: &Path) -> bool {
    let path = path_of(span);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    let first = path.split('/').next().unwrap_or_default();
    let is_module = || !first.is_empty() && STARTS[1..3].iter().any(|start| root.join(start).join(first).is_dir());
    let is_source = path.ends_with(".rs") && path.len() > ".rs".len();
    let has_folder = path.contains('/') || span.ends_with('/');
    path.chars().all(is_plain)
        && !path.starts_with('/')
        && (is_source || has_folder && (TOP.contains(&first) || is_module()))
}

/// Returns the existing files that a path may refer to.
fn files(path: &str, page: &Page, root: &Path) -> Vec<PathBuf> {
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let starts = STARTS.into_iter().map(Path::new).chain([folder]);
    let candidates = starts.flat_map(|start| {
        let whole = root.join(start).join(path);
        let source = PathBuf::from(format!("{}.rs", whole.display()));
        [whole, source]
    });
    let found: Vec<_> = candidates.filter(|candidate| candidate.exists()).collect();
    if !found.is_empty() || path.contains('/') {
        return found;
    }
    sources(root).into_iter().filter(|source| source.ends_with(path)).collect() // the path is only the name of a file
}

/// Returns all Rust files of the repository.
fn sources(root: &Path) -> Vec<PathBuf> {
    ["src", "core", "loadtest", "testkit", "tests", "fuzz/src"]
        .iter()
        .flat_map(|top| sources_below(root.join(top)))
        .collect()
}

fn sources_below(folder: PathBuf) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn text_of(paths: &[PathBuf]) -> String {
    let files =
        paths.iter().flat_map(|path| if path.is_dir() { sources_below(path.clone()) } else { vec![path.clone()] });
    files.filter_map(|file| fs::read_to_string(file).ok()).collect()
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let root = crate::markdown::root();
    let found = |text: &str| missing(&Page::parse("docs/x.md", text), &root);
    let good =
        "`docs/concepts.md`, `tests/relay`, `protocol/view`, `relay/hub.rs`, `app.rs`, `tests/structure.rs::imports`";
    assert_eq!(found(good), [""; 0]);
    assert_eq!(
        found("`/etc/weir/relay.yaml`, `x/y`, `a.b/c`, `tests/*.rs`, `docs/NAME here`, `application/json`"),
        [""; 0]
    );
    for wrong in ["docs/none.md", "tests/nothing/", "relay/none.rs", "none_of_ours.rs", "tests/none.rs::a_test"] {
        assert_eq!(found(&format!("As `{wrong}` has it.")), [format!("docs/x.md:1: no file or folder {wrong}")]);
    }
}

#[test]
fn a_type_that_a_file_does_not_define_is_found() {
    let root = crate::markdown::root();
    let found = |text: &str| undefined(&Page::parse("ARCHITECTURE.md", text), &root);
    assert_eq!(
        found("`relay/hub.rs` (`HubConnector`), `generation.rs` (`Generation`), `none.rs` (`A`), `a` (`B`)"),
        [""; 0]
    );
    assert_eq!(found("`app.rs` (`Openers`) is gone"), ["ARCHITECTURE.md:1: app.rs does not define Openers"]);
    let two = found("`relay/hub.rs`, `generation.rs` (`HubConnector`, `Gener`) and more");
    assert_eq!(two, ["ARCHITECTURE.md:1: generation.rs, relay/hub.rs does not define Gener"]);
}
