//! The examples of docs/admin-api.md, and comparisons of their form with the pages of the program.

use serde_json::Value;

/// Returns the text after a command in a console block, up to the next command.
pub(super) fn example(command: &str) -> String {
    let page = std::fs::read_to_string("docs/admin-api.md").unwrap();
    let (_, rest) = page.split_once(&format!("$ {command}\n")).unwrap_or_else(|| panic!("{command}"));
    let block = rest.split_once("```").unwrap().0;
    block.split_once("\n$ ").map_or(block, |(first, _)| first).to_owned()
}

/// Fails unless a page has the form of the example for a command.
pub(super) fn assert_documented(command: &str, page: &str) {
    let read = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    };
    assert_alike(command, &read(&example(command)), &read(page));
}

/// Compares keys and the types of their values. Of a list, the first entry has to match; null matches anything.
fn assert_alike(place: &str, documented: &Value, real: &Value) {
    match (documented, real) {
        // Lists of names may be empty in the page.
        (Value::Array(_), Value::Array(real)) if place.ends_with(".names") => {
            assert!(real.iter().all(Value::is_string), "{place}")
        }
        // The keys in these objects depend on the configuration or on events.
        (Value::Object(documented), Value::Object(real))
            if [".cached", ".kinds", ".view_words"].iter().any(|end| place.ends_with(end)) =>
        {
            let first = documented.values().next().zip(real.values().next());
            first.into_iter().for_each(|(documented, real)| assert_alike(&format!("{place}.*"), documented, real));
        }
        (Value::Object(documented), Value::Object(real)) => {
            let keys = |of: &serde_json::Map<String, Value>| of.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(documented), keys(real), "{place}");
            documented.iter().for_each(|(key, value)| assert_alike(&format!("{place}.{key}"), value, &real[key]));
        }
        (Value::Array(documented), Value::Array(real)) => {
            if let Some(documented) = documented.first() {
                let real = real.first().unwrap_or_else(|| panic!("{place}: the page has none"));
                assert_alike(&format!("{place}[]"), documented, real);
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        (documented, real) => {
            let same = std::mem::discriminant(documented) == std::mem::discriminant(real);
            assert!(same, "{place}: {documented} and {real}");
        }
    }
}

/// Returns the constant parts of lines: their words up to the first `:`, `,` or `(`, without words that have a digit.
pub(super) fn phrases(text: &str) -> Vec<String> {
    let phrase = |line: &str| {
        let words = line.split([':', ',', '(']).next().unwrap_or_default().split_whitespace();
        words.filter(|word| !word.contains(|letter: char| letter.is_ascii_digit())).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(phrase).collect()
}

#[test]
#[should_panic(expected = "/x.b: 1 and \"1\"")]
fn an_example_of_another_form_is_found() {
    assert_alike("/x", &serde_json::json!({"a": [{"c": 1}], "b": 1}), &serde_json::json!({"a": [{"c": 2}], "b": "1"}));
}
