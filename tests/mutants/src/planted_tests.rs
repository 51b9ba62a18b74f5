use super::*;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fault(changes: &[(&str, &str)]) -> Fault {
    let change = |(old, new): &(&str, &str)| Change { file: "src/a.rs".into(), old: (*old).into(), new: (*new).into() };
    Fault {
        breaks: String::new(),
        changes: changes.iter().map(change).collect(),
        caught_by: Vec::new(),
        environment: BTreeMap::new(),
    }
}

fn planted(source: &str, changes: &[&[(&str, &str)]]) -> Result<String, String> {
    let faults: BTreeMap<_, _> =
        (0..).map(|number| format!("fault{number}")).zip(changes.iter().map(|of| fault(of))).collect();
    let files = plant(&faults, |_| Ok(source.to_owned())).map_err(|error| error.to_string())?;
    Ok(files["src/a.rs"].text.replace("crate::mutant_switch::is_on", "on"))
}

#[test]
fn each_change_is_put_in_behind_the_switch_of_its_fault_wherever_the_lines_break() {
    let source = "fn f() {\n    if a\n        && b\n    {\n        c();\n    }\n}\n";
    let changes: [&[_]; 2] = [&[("if a && b {", "if a && (b || PLANTED) {")], &[("c();", "if !PLANTED { c(); }")]];
    let text = planted(source, &changes).unwrap();
    assert_eq!(text, "fn f() {\n    if a && (b || on(0)) {\n        if !on(1) { c(); }\n    }\n}\n");
}

#[test]
fn what_does_not_fit_is_an_error_that_names_the_fault() {
    let of = |changes: &[&[(&str, &str)]]| planted("a(); b(); a(); bb();", changes).unwrap_err();
    assert_eq!(of(&[&[("b(); a();", "")], &[("c", "")]]), "fault1: src/a.rs has this 0 times, and not once: c");
    assert_eq!(of(&[&[("a();", "")]]), "fault0: src/a.rs has this 2 times, and not once: a();");
    assert_eq!(of(&[&[("b(); a();", "")], &[("a(); bb", "")]]), "fault0 and fault1 change the same text of src/a.rs");
}

#[test]
fn a_fault_has_a_switch_and_names_tests_each_once() {
    let checked = |new: &str, tests: &[&str]| {
        let names = tests.iter().map(|test| TestName::try_from((*test).to_owned()).unwrap());
        let fault = Fault { caught_by: names.collect(), ..fault(&[("a", new)]) };
        fault.check().map_err(|error| error.to_string())
    };
    assert_eq!(checked("PLANTED", &["rules a", "rules b", "conformance b UP-1", "conformance b UP-2"]), Ok(()));
    assert_eq!(checked("b", &["rules a"]), Err("no change has PLANTED".into()));
    assert_eq!(checked("PLANTED", &[]), Err("no test is named".into()));
    let twice = checked("PLANTED", &["conformance b UP-1", "rules a", "conformance b UP-1"]);
    assert_eq!(twice, Err("a test is named twice: conformance b UP-1".into()));
}

#[test]
fn a_test_is_written_as_its_program_and_its_name() {
    let test = TestName::try_from("rules order::a".to_owned()).unwrap();
    assert_eq!(
        (test.program.as_str(), test.test.as_str(), test.to_string().as_str()),
        ("rules", "order::a", "rules order::a")
    );
    assert!(TestName::try_from("rules".to_owned()).is_err());
}

#[test]
fn a_test_of_conformance_comes_with_a_rule_and_no_other_does() {
    let test = TestName::try_from("conformance both DELTA-1".to_owned()).unwrap();
    assert_eq!((test.program.as_str(), test.test.as_str()), ("process", "conformance::both"));
    assert_eq!(test.rule.as_deref(), Some("DELTA-1"));
    assert_eq!(test.to_string(), "conformance both DELTA-1");
    for text in ["conformance both", "conformance both DELTA-1 ORD-7", "rules order::a DELTA-1"] {
        assert!(TestName::try_from(text.to_owned()).is_err(), "{text}");
    }
}

const FAILED: &str = r#"{"rules": ["DELTA-1", "UP-2"], "verdict": "failed", "reason": "seen", "seconds": 0.1}"#;
const OK: &str = r#"{"rules": ["DELTA-3"], "verdict": "ok", "reason": null}"#;
const SKIPPED: &str = r#"{"rules": ["UP-4"], "verdict": "skipped", "reason": "not here"}"#;

/// Returns what is wrong if the named check is of this rule, and the test has ended so with these results.
fn wrong_of_rule(rule: &str, end: End, results: &[&str], fault: Option<(usize, &str)>) -> Option<String> {
    let test = TestName::try_from(format!("conformance both {rule}")).unwrap();
    let job = Job { fault, test: &test, settings: Settings::read(&repository()).unwrap() };
    let run = Run { passed: BTreeSet::from(["both".to_owned()]), end };
    job.wrong(&by_rule(run, rule, &results.join("\n")).unwrap())
}

#[test]
fn a_fault_is_noticed_by_the_check_that_is_named_and_by_no_other() {
    let end = || End::Failed("both".into());
    let wrong = |rule, results: &[&str]| wrong_of_rule(rule, end(), results, Some((0, "Fault")));
    assert_eq!(wrong("DELTA-1", &[OK, FAILED]), None);
    assert_eq!(wrong("UP-2", &[FAILED]), None, "a check may show several rules");
    let missed = Some("Fault is not noticed by conformance both DELTA-3".to_owned());
    assert_eq!(wrong("DELTA-3", &[OK, FAILED]), missed, "another check fails");
    let nothing = |rule: &str| Some(format!("there is nothing to run for conformance both {rule}"));
    assert_eq!(wrong("UP-4", &[SKIPPED, FAILED]), nothing("UP-4"));
    assert_eq!(wrong("DELTA-1", &[]), nothing("DELTA-1"), "the relay did not start");
}

#[test]
fn without_a_fault_the_check_that_is_named_has_to_be_made_and_to_pass() {
    let wrong = |rule, end, results: &[&str]| wrong_of_rule(rule, end, results, None);
    assert_eq!(wrong("DELTA-3", End::Passed, &[OK]), None);
    assert!(wrong("DELTA-1", End::Failed("both".into()), &[FAILED]).unwrap().ends_with("fails without a fault"));
    assert!(wrong("UP-4", End::Passed, &[SKIPPED]).unwrap().starts_with("there is nothing to run"));
    assert!(wrong("DELTA-3", End::Broke, &[OK]).unwrap().contains("does not end in time"));
}

#[test]
fn each_fault_fits_todays_source_and_leaves_it_rust() {
    let faults = read(&repository()).unwrap();
    assert!(faults.len() > 60, "{}", faults.len());
    let text_of = |file: &str| fs::read_to_string(repository().join(file)).with_context(|| file.to_owned());
    for (file, planted) in plant(&faults, text_of).unwrap() {
        syn::parse_file(&planted.text).unwrap_or_else(|error| panic!("{file}: {error}: {}", planted.text));
    }
}

#[test]
fn each_fault_has_a_test_of_the_core_and_all_its_tests_exist() {
    for (name, fault) in read(&repository()).unwrap() {
        let is_of_core = |test: &TestName| test.program().is_of_core(&repository());
        assert!(fault.caught_by.iter().any(is_of_core), "{name} needs a test that is quick to compile");
        for test in &fault.caught_by {
            assert!(exists(test), "{name}: there is no test {test}");
            assert!(test.rule.iter().all(|rule| is_checked(rule)), "{name}: there is no check for {test}");
        }
    }
}

/// Returns whether a check of `weir-loadtest conformance` is for a rule. The rules of each stand in a line of its module.
fn is_checked(rule: &str) -> bool {
    let checks = fs::read_dir(repository().join("loadtest/src/conformance")).unwrap();
    let mut texts = checks.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.any(|text| {
        let mut rules = text.lines().filter_map(|line| line.split_once("scripted!(\"")?.1.split('"').next());
        rules.any(|rules| rules.split(' ').any(|of| of == rule))
    })
}

#[test]
fn rules_of_conformance_checks_are_found() {
    assert!(is_checked("DELTA-26") && is_checked("TRN-7"), "the second of two, and of a check that scripts nothing");
    assert!(!is_checked("DELTA-2") && !is_checked(""));
}

/// Returns whether a file of the program has a function with the name of the test.
fn exists(test: &TestName) -> bool {
    let function = format!("fn {}(", test.function());
    let program = &test.program;
    let places = match program.as_str() {
        "weir_core" => vec!["core/src".to_owned()],
        "weir" => vec!["src".to_owned()],
        _ => ["core/tests", "tests"].map(|at| [format!("{at}/{program}"), format!("{at}/{program}.rs")]).concat(),
    };
    let mut found = places.into_iter().map(|place| repository().join(place)).filter(|path| path.exists());
    found.any(|path| has(&path, &function))
}

fn has(path: &Path, text: &str) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().any(|entry| has(&entry.unwrap().path(), text));
    }
    fs::read_to_string(path).is_ok_and(|content| content.contains(text))
}
