//! The public items of this crate are listed in `public-items.txt`, so that everything that becomes public is noticed.
//!
//! `WEIR_WRITE=1 cargo test -p weir-core --test public_items` writes the list.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the public items of a file by their paths: types with their variants and fields, functions, methods of traits, re-exports. A function
/// is listed by its name only.
fn public_items(module: &str, text: &str) -> Vec<String> {
    let (mut found, mut owners) = (Vec::new(), Vec::<(usize, String, &str)>::new());
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    while let Some(line) = lines.next() {
        let depth = depth_of(line);
        let mut code = line.trim_start().to_owned();
        if code == "#[cfg(test)]" {
            // As rustfmt writes items, an item ends at its own depth.
            let ends = |line: &str| depth_of(line) == depth && line.ends_with(['}', ';', ',']);
            while lines.next().is_some_and(|line| !ends(line)) {}
            continue;
        }
        if code.starts_with("pub use ") {
            while !code.ends_with(';') {
                code += lines.next().unwrap_or(";").trim();
            }
            found.push(format!("{module} {code}"));
            continue;
        }
        owners.retain(|(outer, ..)| *outer < depth);
        let owner: String = owners.iter().map(|(_, name, _)| format!("{name}::")).collect();
        let within = owners.last().filter(|(outer, ..)| *outer + 4 == depth).map_or("", |(.., kind)| kind);
        let is_item = match within {
            "pub enum" => code.starts_with(char::is_uppercase),
            "pub trait" => ["fn ", "type ", "const "].iter().any(|keyword| code.starts_with(keyword)),
            _ => false,
        };
        if let Some(item) = code.strip_prefix("pub ").or(is_item.then_some(&code)) {
            found.push(format!("{module}::{owner}{}", name_of(item)));
            let fields = item.split_once("(pub ").filter(|_| item.starts_with("struct "));
            found.extend(fields.map(|(_, fields)| format!("{module}::{owner}{} is pub {fields}", name_of(item))));
        }
        if let Some(name) = owner_of(&code) {
            let kind = ["pub enum", "pub trait"].into_iter().find(|kind| code.starts_with(kind)).unwrap_or_default();
            owners.push((depth, name, kind));
        }
    }
    found
}

fn depth_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the first word that is not a keyword.
fn name_of(item: &str) -> &str {
    let words = item.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).filter(|word| !word.is_empty());
    let keywords = ["async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "unsafe"];
    words.into_iter().find(|word| !keywords.contains(word)).unwrap_or_default()
}

/// Returns the type to which the fields or methods in the next lines belong.
fn owner_of(code: &str) -> Option<String> {
    let of_impl = code.strip_prefix("impl").map(|rest| {
        let rest = if rest.starts_with('<') { rest.split_once("> ").map_or(rest, |(_, of)| of) } else { rest };
        name_of(rest.trim_start()).to_owned()
    });
    let visible = code.strip_prefix("pub ").or_else(|| code.split_once(") ").map(|(_, item)| item)).unwrap_or(code);
    let is_type = ["struct ", "enum ", "trait ", "mod "].iter().any(|keyword| visible.starts_with(keyword));
    of_impl.or_else(|| is_type.then(|| name_of(visible).to_owned()))
}

fn all() -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from("src")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                found.extend(public_items(&module_of(&path), &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn module_of(path: &Path) -> String {
    let path = path.strip_prefix("src").unwrap().with_extension("");
    let mut parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
    parts.pop_if(|last| ["mod", "lib"].contains(last));
    parts.join("::")
}

#[test]
fn what_is_public_is_listed() {
    let (list, items) = ("public-items.txt", all().join("\n") + "\n");
    if std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(list, &items).unwrap();
    }
    let listed = fs::read_to_string(list).unwrap();
    let news: Vec<_> = items.lines().filter(|item| !listed.lines().any(|of| of == *item)).collect();
    let gone: Vec<_> = listed.lines().filter(|of| !items.lines().any(|item| item == *of)).collect();
    assert_eq!((news, gone), (Vec::new(), Vec::new()), "public and not listed; listed and not public");
    assert_eq!(items.lines().count(), listed.lines().count(), "as often as it is listed");
}

#[test]
fn a_public_item_is_found_with_what_it_belongs_to() {
    let text = "\
pub(crate) struct Inner {\n    pub size: usize,\n}\nimpl<T: Into<u8>> Outer<T> {\n    pub const fn new() -> Self {\n        Self(None)\n    }\n}
pub use other::{\n    Thing,\n};\n#[cfg(test)]\nmod tests {\n    pub fn help() {}\n}
pub trait Shape {\n    fn area(&self);\n}\npub enum Kind {\n    One { size: u8 },\n    /// Text.\n    Two,\n}\nenum Own {\n    Three,\n}
#[cfg(test)]\nmod more;\npub struct Number(pub u64);\n";
    let expected = ["Inner::size", "Outer::new", "Shape", "Shape::area", "Kind", "Kind::One", "Kind::Two", "Number"];
    let mut expected: Vec<_> = expected.map(|item| format!("a::{item}")).into();
    expected.insert(2, "a pub use other::{Thing,};".into());
    expected.push("a::Number is pub u64);".into());
    assert_eq!(public_items("a", text), expected);
}
