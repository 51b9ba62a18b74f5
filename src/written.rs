//! Pages with tables that are written from tables of the program. Each stands below a mark, `<!-- WHAT: OF -->`, up to the next empty line.
//! `WEIR_WRITE=1 cargo test --lib written` writes them; without the variable the tests compare.

use std::fs;

/// Checks the tables of a page. `table` returns the lines of a table, by the words in its mark.
pub(crate) fn check_tables(page: &str, table: impl Fn(&str, &str) -> Option<Vec<String>>) {
    let text = fs::read_to_string(page).unwrap();
    let (mut lines, mut is_old, mut count) = (Vec::new(), false, 0);
    for line in text.lines() {
        is_old &= !line.is_empty();
        if !is_old {
            lines.push(line.to_owned());
        }
        let mark = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(rows) = mark.and_then(|mark| mark.split_once(':')).and_then(|(what, of)| table(what, of.trim())) {
            lines.extend(rows);
            (is_old, count) = (true, count + 1);
        }
    }
    assert!(count > 0, "{page} has no mark of a table");
    check_text(page, &(lines.join("\n") + "\n"));
}

/// Checks that a file has the expected text, or writes it.
pub(crate) fn check_text(path: &str, text: &str) {
    if std::env::var("WEIR_WRITE").is_ok_and(|value| value == "1") {
        fs::write(path, text).unwrap();
    }
    let there = fs::read_to_string(path).unwrap();
    let differ = there.lines().zip(text.lines()).find(|(there, expected)| there != expected);
    assert_eq!(differ, None, "{path}, as it is and as it is to be: WEIR_WRITE=1 cargo test --lib written");
    assert_eq!(there, text, "{path}");
}

/// Returns a row of a table in Markdown.
pub(crate) fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |", cells.join(" | "))
}

/// Returns the head of a table.
pub(crate) fn head(names: &[&str]) -> Vec<String> {
    vec![row(names), format!("|{}", "---|".repeat(names.len()))]
}
