//! The structure of the core, the relay, the load tool and the kit of the tests: files import downwards, no files import each other in a cycle,
//! the methods of a type are in the file that defines it, and no file is too long to be read at once. The core has no tasks and no globals.
//!
//! An import counts for the file that defines the item, whatever re-exports it. A file may use its own folder (`super`), as tests and the
//! parts of a module do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Layers = &'static [&'static [&'static str]];

/// From top to bottom: a file imports from its own layer and those below it. The compiler keeps the core below the relay.
const LAYERS: [(&str, Layers); 2] = [
    (
        "src",
        &[
            &[
                "main",
                "lib",
                "app",
                "command_line",
                "reload",
                "config_watch",
                "generation",
                "service_manager",
                "signals",
                "inputs",
            ],
            &["cli", "demo"],
            &["config", "admin"],
            &["telemetry"],
            &["downstream", "upstream", "tls", "state"],
            &["client_status"],
            &["relay"],
            &[
                "compression",
                "transcode",
                "proto",
                "open_files",
                "allocator",
                "build_facts",
                "config_status",
                "file_access",
                "grpc_message",
                "known_files",
                "limit",
                "log_pace",
                "plural",
                "problems",
                "random",
                "shared_runtime",
                "view_words",
                "memory",
                "written",
            ],
        ],
    ),
    ("core/src", &[&["lib"], &["protocol"], &["proto", "xds"]]),
];

/// The maximum of lines in a file, without its tests.
const LONGEST_FILE: usize = 400;

/// The files of edges and views that spawn tasks, or block a thread, without saying on which runtime: a connection may have one of its own.
const SPAWN_WHERE_THEY_ARE: [(&str, &str); 23] = [
    ("client_status::clients", "its streams are answered on the shared runtime"),
    ("client_status::own", "its streams are answered on the shared runtime"),
    ("downstream::buffered_body", "ends with a connection"),
    ("downstream::late_socket", "no connection runs it"),
    ("downstream::opening_turns", "ends with a shard"),
    ("downstream::polls", "whoever calls it is in this list"),
    ("downstream::server", "ends with a connection"),
    ("downstream::service", "the reader of a stream"),
    ("downstream::shards", "the start runs it"),
    ("relay::audit", "no connection runs it"),
    ("relay::audit::run", "no connection runs it"),
    ("relay::heavy", "asks only which kind of runtime it is"),
    ("relay::hub", "view tasks run it"),
    ("relay::link", "view tasks run it"),
    ("relay::loads", "on the runtime of load reports"),
    ("relay::questions", "operators, and streams that are answered on the shared runtime"),
    ("relay::questions::clients", "operators, and streams that are answered on the shared runtime"),
    ("relay::questions::explain", "operators, and streams that are answered on the shared runtime"),
    ("relay::server_log", "view tasks run it"),
    ("relay::session_handle::interest", "ends with a session"),
    ("relay::session_handle::waiting", "the end of a session"),
    ("relay::traces::tracer", "the start runs it"),
    ("relay::views::map", "within the shared runtime"),
];

/// The folders of sources, each with a number of `impl` blocks that it exceeds.
const ROOTS: [(&str, usize); 4] = [("src", 100), ("core/src", 100), ("loadtest/src", 100), ("testkit/src", 10)];

/// The modules of a crate by path, such as `relay::views`, with their sources, without tests.
#[derive(Default)]
struct Sources {
    /// The sources without comments.
    files: BTreeMap<String, String>,
    /// The number of lines in each source, with comments.
    lengths: BTreeMap<String, usize>,
}

impl Sources {
    fn read(root: &str) -> Self {
        let (mut sources, root) = (Self::default(), Path::new(root));
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
                        sources.add(&parts.join("::"), &fs::read_to_string(&entry).unwrap());
                    }
                }
            }
        }
        sources
    }

    fn add(&mut self, module: &str, text: &str) {
        let lines = without_tests(text);
        self.lengths.insert(module.to_owned(), lines.len());
        let code = lines.into_iter().filter(|line| !line.trim_start().starts_with("//"));
        self.files.insert(module.to_owned(), code.collect::<Vec<_>>().join("\n"));
    }

    /// Returns the file that defines the item of a path: the deepest module in the path, and from there through re-exports.
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

    /// Returns the types with methods outside of the file that defines them, and where those are.
    fn methods_elsewhere(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (module, code) in &self.files {
            let own = defined_in(code);
            let others = inherent_impls(code).into_iter().filter(|name| !own.contains(name.as_str()));
            found.extend(others.map(|name| format!("{module}: {name}")));
        }
        found
    }

    fn too_long(&self) -> Vec<String> {
        let long = self.lengths.iter().filter(|(_, length)| **length > LONGEST_FILE);
        long.map(|(module, length)| format!("{module}: {length} lines")).collect()
    }
}

/// Returns the lines without items that are only compiled for tests.
fn without_tests(text: &str) -> Vec<&str> {
    let (mut kept, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push(line);
            continue;
        }
        let depth = indentation(line);
        // As rustfmt writes it, an item ends at its own depth.
        let ends = |line: &str| indentation(line) == depth && line.ends_with(['}', ';', ',']);
        while lines.next().is_some_and(|line| !ends(line)) {}
    }
    kept
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the types and traits that a file defines, also by a macro such as `section! { Name { … } }`.
fn defined_in(code: &str) -> BTreeSet<&str> {
    let words_of = |text| <str>::split(text, |letter: char| !is_of_word(letter)).filter(|word| !word.is_empty());
    let words: Vec<&str> = words_of(code).collect();
    let defines = |pair: &&[&str]| matches!(pair[0], "struct" | "enum" | "union" | "trait");
    let by_macro = code.split("! {").skip(1).filter_map(|inside| words_of(inside).next());
    words.windows(2).filter(defines).map(|pair| pair[1]).chain(by_macro).collect()
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns the types of the inherent `impl` blocks.
fn inherent_impls(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let starts = code.match_indices("impl").map(|(at, _)| at);
    for at in
        starts.filter(|at| *at == 0 || matches!(code[..*at].rsplit('\n').next(), Some(line) if line.trim().is_empty()))
    {
        let header = code[at + 4..].split(['{', ';']).next().unwrap();
        let of = match header.starts_with('<') {
            true => &header[end_of_generics(header)..],
            false if header.starts_with(' ') => header,
            false => continue, // a part of a longer word
        };
        if of.contains(" for ") {
            continue;
        }
        let path = of.trim_start().trim_start_matches("dyn ");
        let path = path.split(|letter: char| !(is_of_word(letter) || ":$".contains(letter))).next().unwrap();
        let name = path.rsplit("::").next().unwrap();
        // In a macro the name is a parameter.
        found.extend(Some(name.to_owned()).filter(|name| !name.starts_with('$')));
    }
    found
}

/// Returns the end of the `<…>` with which the text begins.
fn end_of_generics(text: &str) -> usize {
    let (mut depth, mut before) = (0, ' ');
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1, // but not in `->`
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
        before = letter;
    }
    text.len()
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

/// Returns the leaves of `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
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

/// Returns files that import each other in a cycle, if there are any.
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
    // Each remaining file imports another remaining one, so following the imports leads to a cycle.
    let mut walked = vec![rest.keys().next()?.clone()];
    loop {
        let next = rest[walked.last()?].iter().find(|to| rest.contains_key(*to))?.clone();
        if let Some(from) = walked.iter().position(|seen| *seen == next) {
            return Some(walked.split_off(from));
        }
        walked.push(next);
    }
}

fn layer_of(module: &str, layers: Layers) -> usize {
    let first = module.split("::").next().unwrap_or_default();
    layers.iter().position(|layer| layer.contains(&first)).unwrap_or_else(|| panic!("{first} is in no layer"))
}

#[test]
fn no_files_import_each_other_in_a_ring() {
    for (root, least) in [("src", 300), ("core/src", 300), ("loadtest/src", 150), ("testkit/src", 15)] {
        let edges = Sources::read(root).edges();
        assert!(edges.values().map(BTreeSet::len).sum::<usize>() > least, "the imports of {root} are found");
        assert_eq!(ring(&edges), None, "{root}");
    }
}

#[test]
fn imports_point_down_the_layers() {
    let mut upward = Vec::new();
    for (root, layers) in LAYERS {
        for (module, to) in Sources::read(root).edges() {
            let from = layer_of(&module, layers);
            let above = to.iter().filter(|to| layer_of(to, layers) < from);
            upward.extend(above.map(|to| format!("{root}: {module} -> {to}")));
        }
    }
    assert_eq!(upward, [""; 0]);
    // The lowest files of the relay use words of the core, but no sessions or views.
    let (root, layers) = LAYERS[0];
    let sources = Sources::read(root);
    let lowest = sources.files.iter().filter(|(module, _)| layer_of(module, layers) == layers.len() - 1);
    let know_protocol: Vec<_> = lowest.filter(|(_, code)| knows_protocol(code)).map(|(module, _)| module).collect();
    assert_eq!(know_protocol, [""; 0]);
    assert!(
        knows_protocol("use weir_core::{protocol, xds};") && knows_protocol("use weir_core::protocol::view::View;")
    );
    assert!(!knows_protocol("use weir_core::xds::Type;"));
}

fn knows_protocol(code: &str) -> bool {
    let imports = code.split(';').filter_map(|statement| statement.trim().strip_prefix("use "));
    let leaves = imports.flat_map(leaves);
    code.contains("weir_core::protocol") || leaves.into_iter().any(|path| path.starts_with("weir_core::protocol"))
}

/// Words that would make the core wait, or keep state outside of its objects.
const NOT_IN_THE_CORE: [&str; 5] = ["async ", "static ", "LazyLock", "OnceCell", "thread_local!"];

#[test]
fn the_core_has_no_tasks_and_no_globals() {
    let found = |code: &str| {
        let words = NOT_IN_THE_CORE.into_iter().filter(|word| code.replace("'static ", "").contains(word));
        words.collect::<Vec<_>>()
    };
    let sources = Sources::read("core/src");
    // It counts for tests, and nothing in a release build.
    let files = sources.files.iter().filter(|(module, _)| *module != "protocol::visits");
    let all: Vec<_> =
        files.flat_map(|(module, code)| found(code).into_iter().map(move |word| (module, word))).collect();
    assert_eq!(all, []);
    assert_eq!(
        found("static SEEN: AtomicU64 = AtomicU64::new(0);\nasync fn wait(text: &'static str) {}"),
        ["async ", "static "]
    );
}

#[test]
fn the_methods_of_a_type_stand_in_the_file_that_defines_it() {
    for (root, least) in ROOTS {
        let sources = Sources::read(root);
        let blocks: usize = sources.files.values().map(|code| inherent_impls(code).len()).sum();
        assert!(blocks > least, "the blocks of {root} are found");
        assert_eq!(sources.methods_elsewhere(), [""; 0], "{root}");
    }
}

#[test]
fn what_connections_run_spawns_on_the_shared_runtime_or_ends_with_them() {
    let sources = Sources::read("src");
    let of_connections =
        |module: &str| ["client_status", "downstream", "relay"].iter().any(|of| module.starts_with(of));
    let found = sources.files.iter().filter(|(module, code)| of_connections(module) && spawns_here(code));
    let found: Vec<_> = found.map(|(module, _)| module.as_str()).collect();
    assert_eq!(found, SPAWN_WHERE_THEY_ARE.map(|(module, _)| module));
    for spawns in [
        "tokio::spawn(task)",
        "let it = spawn_blocking(work);",
        "tokio::task::spawn(task)",
        "Handle::current().spawn(task)",
        "if let Ok(runtime) = Handle::try_current() {\n    runtime.spawn(task);\n}",
    ] {
        assert!(spawns_here(spawns), "{spawns}");
    }
    assert!(!spawns_here("shared_runtime::spawn(task); shared_runtime::spawn_blocking(work)"));
}

fn spawns_here(code: &str) -> bool {
    let others = code.replace("shared_runtime::spawn_blocking(", "");
    let words = [
        "tokio::spawn(",
        "task::spawn(",
        "polls::spawn(",
        "spawn_blocking(",
        "Handle::current()",
        "Handle::try_current()",
    ];
    words.into_iter().any(|word| others.contains(word))
}

#[test]
fn no_file_is_too_long_without_its_tests() {
    for (root, _) in ROOTS {
        assert_eq!(Sources::read(root).too_long(), [""; 0], "{root}");
    }
}

#[test]
fn a_ring_that_is_put_in_is_found() {
    let mut sources = Sources::read("core/src");
    let version = sources.files.get_mut("xds::version").unwrap();
    version.push_str("\nuse super::{name::Name, resource::{self, Resource as Other}};\n");
    let ring = ring(&sources.edges()).expect("a ring");
    assert!(ring.contains(&"xds::version".to_owned()), "{ring:?}");
    assert_eq!(leaves("a::{b, c::{self, e}}"), ["a::b", "a::c", "a::c::e"]);
}

#[test]
fn methods_elsewhere_that_are_put_in_are_found() {
    for (of, header) in [
        ("Other", "impl Other {"),
        ("Other", "impl super::Other<'_> {"),
        ("Other", "impl<'a> Other<'a> {"),
        ("Other", "impl<F: Fn() -> Vec<u8>, const N: usize>\n    crate::a::Other<F>\nwhere\n    F: Send,\n{"),
        ("Other", "mod inner {\n    impl dyn Other {"),
    ] {
        let mut sources = Sources::default();
        sources.add("a::b", &format!("use super::Other;\n{header}\n    fn method(&self) {{}}\n}}\n"));
        assert_eq!(sources.methods_elsewhere(), [format!("a::b: {of}")], "{header}");
    }
    for own in [
        "struct Own<T>(T);\nimpl<T> Own<T> {\n}",
        "pub(crate) enum Own {\n}\nimpl Own {\n}",
        "section! {\n    Own {\n    }\n}\nimpl Own {\n}",
        "use super::Other;\nimpl<T: Into<u8>> From<T> for Other<T> {\n}",
        "fn one() -> impl Iterator<Item = u8> {\n}",
        "#[cfg(test)]\nimpl Other {\n    fn one() {\n    }\n}",
        "#[cfg(test)]\nmod tests {\n    impl Other {\n    }\n}",
        "// impl Other {",
    ] {
        let mut sources = Sources::default();
        sources.add("a::b", own);
        assert_eq!(sources.methods_elsewhere(), [""; 0], "{own}");
    }
    let mut sources = Sources::default();
    sources.add("a::b", "struct Own;\nimpl Own {\n    #[cfg(test)]\n    fn one(\n    ) {\n    }\n}\nimpl Other {\n}");
    assert_eq!(sources.methods_elsewhere(), ["a::b: Other"], "what follows a test is read");
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let mut sources = Sources::default();
    let tests = "#[cfg(test)]\nmod tests {\n    fn test() {}\n}\n";
    sources.add("a::enough", &format!("{}{tests}", "// a line\n".repeat(LONGEST_FILE)));
    sources.add("a::long", &format!("{tests}{}", "// a line\n".repeat(LONGEST_FILE + 1)));
    assert_eq!(sources.too_long(), [format!("a::long: {} lines", LONGEST_FILE + 1)]);
}
