//! A table of a report, as text and as HTML.

use std::fmt::{self, Write};

use super::plot::escape;

/// Rows of cells, with a title and column heads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub title: String,
    pub heads: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Section {
    pub fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| -> String {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
        };
        let mut out = format!("<h3>{}</h3>\n<table>", escape(&self.title));
        if !self.heads.is_empty() {
            let _ = write!(out, "<tr>{}</tr>", cells("th", &self.heads));
        }
        for row in &self.rows {
            let _ = write!(out, "\n<tr>{}</tr>", cells("td", row));
        }
        out + "\n</table>\n"
    }

    fn width(&self, column: usize) -> usize {
        let rows = self.rows.iter().chain([&self.heads]);
        rows.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.title)?;
        let heads = (!self.heads.is_empty()).then_some(&self.heads);
        for row in heads.into_iter().chain(&self.rows) {
            let cells = row.iter().enumerate().map(|(column, cell)| match (column, self.width(column)) {
                (0, width) => format!("{cell:<width$}"),
                (_, width) => format!("{cell:>width$}"),
            });
            writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_the_same_cells_as_text_and_as_html() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = vec![row(["a", "1"]), row(["b<", "1,234"])];
        let section = Section { title: "T".into(), heads: row(["behaviour", "n"]), rows };
        assert_eq!(section.to_string(), "T\n  behaviour      n\n  a              1\n  b<         1,234\n");
        let expected = "<h3>T</h3>\n<table><tr><th>behaviour</th><th>n</th></tr>\n<tr><td>a</td><td>1</td></tr>\n\
                        <tr><td>b&lt;</td><td>1,234</td></tr>\n</table>\n";
        assert_eq!(section.html(), expected);
    }
}
