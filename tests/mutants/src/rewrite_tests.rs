use super::*;
use crate::find::{modules_for_tests, mutants};

fn rewritten(source: &str) -> (String, Vec<String>) {
    let found = mutants("a.rs", source).unwrap();
    let numbered: Vec<_> = found.iter().enumerate().collect();
    let text = rewrite(source, &numbered).text.replace("crate::mutant_switch::is_on", "on");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (text, found.iter().map(Mutant::name).collect())
}

#[test]
fn each_change_is_behind_its_switch_and_inner_ones_are_in_the_unchanged_part_of_outer_ones() {
    let (text, names) = rewritten("fn f(a: u8, b: u8) -> bool { a + 1 < b }");
    assert_eq!(
        names,
        [
            "a.rs::f: returns true",
            "a.rs::f: returns false",
            "a.rs::f: < becomes <= in a + 1 < b",
            "a.rs::f: < becomes > in a + 1 < b",
            "a.rs::f: + becomes - in a + 1",
            "a.rs::f: + becomes * in a + 1",
        ]
    );
    assert_eq!(
        text,
        "fn f(a: u8, b: u8) -> bool { if on(0) { return true; } if on(1) { return false; } \
         (if on(2) { (a + 1 <= b) } else if on(3) { (a + 1 > b) } else { \
         ((if on(4) { (a - 1) } else if on(5) { (a * 1) } else { (a + 1) }) < b) }) }"
    );
}

#[test]
fn statements_and_arms_can_be_left_out() {
    let (text, names) = rewritten(
        "impl A { fn f(&mut self) { match self.a { 1 if self.b => self.g(), 2 => {} _ => { self.a = 0; } } } }",
    );
    assert!(names.contains(&"a.rs::A::f: self.a = 0; is left out".to_owned()), "{names:?}");
    assert!(text.contains("1 if !on(1) && ((if on(2) { (true) } else { (self.b) })) =>"), "{text}");
    assert!(text.contains("2 if !on(3) =>") && text.contains("{ if !on(4) { self.a = 0; } }"), "{text}");
}

#[test]
fn code_for_tests_and_code_for_the_compiler_stay_as_they_are() {
    let source = "const A: u8 = 1 + 2; const fn f() -> u8 { 1 + 2 } #[cfg(test)] mod t { fn g() -> u8 { 1 + 2 } } \
                  fn h(a: Option<u8>) { if let Some(_) = a && true {} }";
    let (_, names) = rewritten(source);
    assert_eq!(names, ["a.rs::h: does nothing"]);
}

#[test]
fn files_of_tests_are_known_by_how_they_are_declared() {
    let source =
        "#[cfg(test)] mod tests; mod a; #[cfg(test)] mod random; #[cfg(unix)] mod b; #[cfg(test)] mod c { fn d() {} }";
    assert_eq!(modules_for_tests("xds/mod.rs", source).unwrap(), ["xds/tests", "xds/random"]);
    assert_eq!(modules_for_tests("xds/name.rs", source).unwrap()[0], "xds/name/tests");
    assert_eq!(modules_for_tests("lib.rs", source).unwrap()[1], "random");
}
