//! The structure of `src`: files import downwards, and no files import each other in a ring.
//!
//! An import counts for the file that defines the item, whatever re-exports it. A file may use its own folder (`super`), as tests and the
//! parts of a module do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Top down: a file imports from its own layer and those below it.
const LAYERS: [&[&str]; 9] = [
    &["main", "lib", "app", "reload", "generation", "service_manager", "fuzzing"],
    &["cli", "demo"],
    &["config", "admin"],
    &["telemetry"],
    &["downstream", "upstream", "tls", "state"],
    &["client_status"],
    &["relay"],
    &["protocol"],
    &["transcode", "proto", "xds", "open_files", "allocator", "build_facts", "config_status"],
];

/// The modules of the crate by path, such as `relay::views`, with their source.
struct Sources {
    files: BTreeMap<String, String>,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "rs") {
                    let path = entry.strip_prefix(root).unwrap().with_extension("");
                    let mut parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
                    parts.pop_if(|last| *last == "mod");
                    if !parts.contains(&"tests") {
                        files.insert(parts.join("::"), code_of(&fs::read_to_string(&entry).unwrap()));
                    }
                }
            }
        }
        Self { files }
    }

    /// Returns the file that a path leads to: its deepest module, and from there through re-exports.
    fn definition(&self, path: &[String]) -> Option<String> {
        let mut length = path.len();
        while length > 0 && !self.files.contains_key(&path[..length].join("::")) {
            length -= 1;
        }
        let module = path[..length].join("::");
        let (_, item) = (self.files.get(&module)?, path.get(length));
        let Some(item) = item else { return Some(module) };
        let passed_on = imports(&module, &self.files[&module]).into_iter().find(|(public, path)| {
            *public && path.last() == Some(item) && path.join("::") != format!("{module}::{item}")
        });
        match passed_on {
            Some((_, path)) => self.definition(&path).or(Some(module)),
            None => Some(module),
        }
    }

    fn edges(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, code) in &self.files {
            let to = edges.entry(module.clone()).or_default();
            for (public, path) in imports(module, code) {
                let target = self.definition(&path).filter(|target| target != module);
                // A folder may re-export its parts, and the parts may use their folder.
                let inside = |one: &str, other: &str| one.starts_with(&format!("{other}::"));
                to.extend(target.filter(|target| !(inside(module, target) || public && inside(target, module))));
            }
        }
        edges
    }
}

/// Returns the code without comments and tests.
fn code_of(text: &str) -> String {
    let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns what a file imports from the crate, as full paths, and whether it re-exports them.
fn imports(module: &str, code: &str) -> Vec<(bool, Vec<String>)> {
    let own: Vec<String> = module.split("::").map(str::to_owned).collect();
    let mut found = Vec::new();
    for statement in code.split(';') {
        let statement = statement.trim();
        let Some(at) = statement.rfind("use ").filter(|at| *at == 0 || statement[..*at].ends_with([' ', '\n'])) else {
            continue;
        };
        let public = statement[..at].trim_end().ends_with("pub") || statement[..at].trim_end().ends_with(')');
        for path in leaves(statement[at + 4..].trim()) {
            let mut parts: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            let mut base = match parts[0].as_str() {
                "crate" | "weir" => Vec::new(),
                "self" => own.clone(),
                "super" => own[..own.len().saturating_sub(1)].to_vec(),
                first if code.contains(&format!("mod {first};")) => [own.clone(), vec![first.to_owned()]].concat(),
                _ => continue,
            };
            parts.remove(0);
            while parts.first().is_some_and(|part| part == "super") {
                base.pop();
                parts.remove(0);
            }
            base.extend(parts.into_iter().map(|part| part.split(" as ").next().unwrap().to_owned()));
            found.push((public, base));
        }
    }
    found
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
fn leaves(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.to_owned()] };
    let (prefix, inner) = (&tree[..open], tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]));
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(leaves).map(|leaf| format!("{prefix}{leaf}").replace("::self", "")).collect()
}

/// Returns files that import each other in a ring, if there are any.
fn ring(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut rest: BTreeMap<_, _> = edges.clone();
    loop {
        let free: Vec<_> = rest
            .iter()
            .filter(|(_, to)| !to.iter().any(|to| rest.contains_key(to)))
            .map(|(of, _)| of.clone())
            .collect();
        if free.is_empty() {
            break;
        }
        free.iter().for_each(|of| drop(rest.remove(of)));
    }
    // Each of the rest imports another of the rest, so following the imports leads back.
    let mut walked = vec![rest.keys().next()?.clone()];
    loop {
        let next = rest[walked.last()?].iter().find(|to| rest.contains_key(*to))?.clone();
        if let Some(from) = walked.iter().position(|seen| *seen == next) {
            return Some(walked.split_off(from));
        }
        walked.push(next);
    }
}

fn layer_of(module: &str) -> usize {
    let first = module.split("::").next().unwrap_or_default();
    LAYERS.iter().position(|layer| layer.contains(&first)).unwrap_or_else(|| panic!("{first} is in no layer"))
}

#[test]
fn no_files_import_each_other_in_a_ring() {
    let edges = Sources::read(Path::new("src")).edges();
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 300, "the imports are found");
    assert_eq!(ring(&edges), None);
}

#[test]
fn imports_point_down_the_layers() {
    let mut upward = Vec::new();
    for (module, to) in Sources::read(Path::new("src")).edges() {
        let from = layer_of(&module);
        upward.extend(to.iter().filter(|to| layer_of(to) < from).map(|to| format!("{module} -> {to}")));
    }
    assert_eq!(upward, [""; 0]);
}

#[test]
fn a_ring_that_is_put_in_is_found() {
    let mut sources = Sources::read(Path::new("src"));
    let version = sources.files.get_mut("xds::version").unwrap();
    version.push_str("\nuse super::{name::Name, resource::{self, Resource as Other}};\n");
    let ring = ring(&sources.edges()).expect("a ring");
    assert!(ring.contains(&"xds::version".to_owned()), "{ring:?}");
    assert_eq!(leaves("a::{b, c::{self, e}}"), ["a::b", "a::c", "a::c::e"]);
}

#[test]
fn files_that_the_documents_name_exist() {
    let mut missing = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/concepts.md"] {
        let text = fs::read_to_string(page).unwrap();
        for path in
            text.split('`').skip(1).step_by(2).filter(|path| path.ends_with(".rs") && !path.contains([' ', '*']))
        {
            if !["", "src/", "src/protocol/"].iter().any(|root| Path::new(&format!("{root}{path}")).exists()) {
                missing.push(format!("{page}: {path}"));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}
