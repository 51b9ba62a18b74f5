//! A table for terminals.

use std::fmt;

use super::printable;

/// Rows of cells, printed in columns.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: impl IntoIterator<Item = String>) -> Self {
        Self { rows: vec![heads.into_iter().collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<_> = cells.into_iter().map(|cell| printable(&cell)).collect();
        if let Some((_, padded)) = row.split_last_mut() {
            padded.iter_mut().for_each(cut); // one client's name must not widen all rows
        }
        self.rows.push(row);
    }
}

fn cut(cell: &mut String) {
    if let Some((at, _)) = cell.char_indices().nth(WIDEST) {
        cell.truncate(at);
        cell.push('…');
    }
}

/// The limit on the width of a cell that has others to its right.
const WIDEST: usize = 100;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<_> = (0..columns)
            .map(|at| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max())
            .collect();
        for row in &self.rows {
            let cells =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = width.unwrap_or(0)));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
