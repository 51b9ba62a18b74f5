//! A Markdown page, parsed as far as the finders need it: lines of prose and of code blocks, code spans, headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

const TOP: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

pub struct Page {
    /// The path from the root of the repository.
    pub path: String,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub number: usize,
    pub text: String,
    /// The language of the code block around the line; `None` in prose.
    pub block: Option<String>,
}

impl Page {
    pub fn parse(path: &str, text: &str) -> Self {
        let (mut lines, mut block) = (Vec::new(), None::<String>);
        for (at, line) in text.lines().enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                block = if block.is_some() { None } else { Some(language.trim().to_owned()) };
            } else {
                lines.push(Line { number: at + 1, text: line.to_owned(), block: block.clone() });
            }
        }
        Self { path: path.to_owned(), lines }
    }

    pub fn prose(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.block.is_none())
    }

    /// Returns the code spans of the prose, each with its line.
    pub fn spans(&self) -> Vec<(&Line, &str)> {
        self.prose().flat_map(|line| spans(&line.text).into_iter().map(move |span| (line, span))).collect()
    }

    /// Returns the anchors of the page: one for each heading, in the form that the usual viewers give them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let (mut seen, mut anchors) = (BTreeMap::new(), BTreeSet::new());
        for line in self.prose().filter(|line| line.text.starts_with('#')) {
            let anchor = anchor(line.text.trim_start_matches('#'));
            let times: &mut usize = seen.entry(anchor.clone()).or_default();
            anchors.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
            *times += 1;
        }
        anchors
    }

    pub fn fault(&self, line: &Line, what: impl Display) -> String {
        format!("{}:{}: {what}", self.path, line.number)
    }
}

/// Returns the root of the repository: the folder of this package, or the one above it.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_workspace = [package, package.parent().unwrap_or(package)];
    of_workspace.into_iter().find(|folder| folder.join("docs").is_dir()).unwrap().to_owned()
}

/// Returns all pages of the repository.
pub fn pages() -> Vec<Page> {
    let root = root();
    let (mut paths, mut folders) = (TOP.map(PathBuf::from).to_vec(), vec![PathBuf::from("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap().map(|entry| entry.unwrap()) {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: &PathBuf| Page::parse(path.to_str().unwrap(), &fs::read_to_string(root.join(path)).unwrap());
    paths.iter().map(read).collect()
}

/// Returns the code spans of a line. A line with only a part of a span has none: the span continues in the next line.
pub fn spans(line: &str) -> Vec<&str> {
    let is_whole = line.matches('`').count().is_multiple_of(2);
    line.split('`').skip(1).step_by(2).filter(|_| is_whole).collect()
}

fn anchor(heading: &str) -> String {
    let mut plain = String::new();
    let mut rest = heading.trim();
    // Of a link `[text](target)` only the text counts.
    while let Some((before, (text, after))) = rest
        .split_once('[')
        .and_then(|(before, link)| Some((before, link.split_once("](")?)))
        .and_then(|(before, (text, target))| Some((before, (text, target.split_once(')')?.1))))
    {
        plain += before;
        plain += text;
        rest = after;
    }
    plain += rest;
    let kept = plain.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn spans_anchors_and_blocks_are_found() {
    let page = Page::parse("a.md", "# A `b`, [c d](e.md)\n```sh\n# no heading\n```\n## A `b`, c d\n`x` and `y`\n`half");
    assert_eq!(page.anchors(), BTreeSet::from(["a-b-c-d".to_owned(), "a-b-c-d-1".to_owned()]));
    assert_eq!(page.spans().into_iter().map(|(_, span)| span).collect::<Vec<_>>(), ["b", "b", "x", "y"]);
    assert_eq!(page.lines[1].block.as_deref(), Some("sh"));
    assert_eq!(page.fault(&page.lines[2], "wrong"), "a.md:5: wrong");
}
