//! Finds links to files that do not exist, and to headings that a page does not have.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::markdown::{Line, Page};

/// Returns the faults of a page's links. Ignores links out of the repository.
pub fn faults(page: &Page, root: &Path) -> Vec<String> {
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let fault = |line: &Line, target: &str| {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = if file.is_empty() { PathBuf::from(&page.path) } else { plain(&folder.join(file)) };
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        let has_heading = || {
            let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
            Page::parse("", &text).anchors().contains(heading)
        };
        if !file.is_empty() && !root.join(&path).exists() {
            Some(page.fault(line, format!("no file for the link {target}")))
        } else if !heading.is_empty() && is_page && file.is_empty() {
            (!page.anchors().contains(heading)).then(|| page.fault(line, format!("no heading {target}")))
        } else if !heading.is_empty() && is_page && !has_heading() {
            Some(page.fault(line, format!("no heading {target}")))
        } else {
            None
        }
    };
    let links = page.prose().flat_map(|line| targets(&line.text).into_iter().map(move |target| (line, target)));
    links.filter_map(|(line, target)| fault(line, target)).collect()
}

/// Returns the targets of the links and images in a line.
fn targets(line: &str) -> Vec<&str> {
    // The line with the text of code spans overwritten, at the same length.
    let outside: String = line
        .split('`')
        .enumerate()
        .map(|(at, part)| if at % 2 == 0 { part.to_owned() } else { "x".repeat(part.len()) })
        .collect::<Vec<_>>()
        .join("`");
    let starts = outside.match_indices("](").map(|(at, mark)| at + mark.len());
    let targets = starts.filter_map(|at| Some(&line[at..at + outside[at..].find(')')?]));
    targets.filter(|target| !target.contains(':') && !target.contains(' ')).collect()
}

/// Resolves `..` without reading the disk.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn a_link_to_nothing_is_found() {
    let root = crate::markdown::root();
    let page = |text: &str| faults(&Page::parse("docs/x.md", &format!("# Here\n{text}")), &root);
    let good =
        "[a](../README.md), [b](concepts.md), [c](#here), ![d](images/page.png), [e](https://x.y/z#a), `[f](none.md)`";
    assert_eq!(page(good), [""; 0]);
    assert_eq!(page("[a](none.md)"), ["docs/x.md:2: no file for the link none.md"]);
    assert_eq!(page("[a](#there)"), ["docs/x.md:2: no heading #there"]);
    assert_eq!(page("[a](concepts.md#there-is-none)"), ["docs/x.md:2: no heading concepts.md#there-is-none"]);
}
