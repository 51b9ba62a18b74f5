use super::*;

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
fn a_test_is_written_as_its_program_and_its_name() {
    let test = TestName::try_from("rules order::a".to_owned()).unwrap();
    assert_eq!(
        (test.program.as_str(), test.test.as_str(), test.to_string().as_str()),
        ("rules", "order::a", "rules order::a")
    );
    assert!(TestName::try_from("rules".to_owned()).is_err());
}
