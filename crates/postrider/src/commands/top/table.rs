//! A table for people: sorted, as wide as it must be, as long as there is room.

use std::cmp::Ordering;
use std::fmt::Write;

use super::rates::{Cell, Column, Table, Unit};

/// In which order rows come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    pub column: usize,
    /// The largest first.
    pub descending: bool,
}

impl Table {
    pub fn sort(&mut self, order: Order) {
        let key = |row: &[Cell]| row.get(order.column).cloned();
        self.rows.sort_by(|a, b| {
            let ordered = match (key(a), key(b)) {
                (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(&b),
                (Some(a), Some(b)) => a.number().total_cmp(&b.number()),
                _ => Ordering::Equal,
            };
            if order.descending { ordered.reverse() } else { ordered }
        });
    }

    /// The head and the rows, each a line; `mark` is the column that the order is by.
    pub fn lines(&self, mark: Option<usize>) -> Vec<String> {
        let titles = self.columns.iter().enumerate().map(|(at, column)| match mark == Some(at) {
            true => format!("*{}", column.title),
            false => column.title.to_owned(),
        });
        let mut rows: Vec<Vec<String>> = vec![titles.collect()];
        rows.extend(
            self.rows.iter().map(|row| row.iter().zip(self.columns).map(|(cell, at)| shown(cell, at)).collect()),
        );
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for ((cell, width), column) in row.iter().zip(&widths).zip(self.columns) {
                // Writing to a String cannot fail.
                let _ = match column.unit {
                    Unit::Text => write!(line, "{cell:<width$}  "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        rows.iter().map(line).collect()
    }
}

fn shown(cell: &Cell, column: &Column) -> String {
    match (cell, column.unit) {
        (Cell::Text(text), _) if text.is_empty() => "-".to_owned(),
        // What a configuration calls things goes to a terminal.
        (Cell::Text(text), _) => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        (Cell::Number(None), _) => "-".to_owned(),
        (Cell::Number(Some(number)), Unit::Count) => format!("{number:.0}"),
        (Cell::Number(Some(number)), Unit::Share) => format!("{:.1}", number * 100.0),
        (Cell::Number(Some(number)), Unit::Bytes) => format!("{:.1} MiB", number / f64::from(1 << 20)),
        (Cell::Number(Some(number)), Unit::Rate | Unit::Text) => format!("{number:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "name", key: "name", unit: Unit::Text },
        Column { title: "calls/s", key: "calls", unit: Unit::Rate },
        Column { title: "cpu %", key: "cpu", unit: Unit::Share },
        Column { title: "memory", key: "memory", unit: Unit::Bytes },
    ];

    fn table() -> Table {
        let row = |name: &str, calls, share| {
            vec![
                Cell::Text(name.into()),
                Cell::Number(Some(calls)),
                Cell::Number(share),
                Cell::Number(Some(f64::from(1 << 20))),
            ]
        };
        let rows = vec![row("slow", 1.0, Some(0.25)), row("a\x1b[2J", 1000.5, None)];
        Table { title: "filters", columns: COLUMNS, rows }
    }

    #[test]
    fn columns_stand_below_each_other() {
        assert_eq!(
            table().lines(Some(1)),
            ["name   *calls/s  cpu %   memory", "slow        1.0   25.0  1.0 MiB", "a?[2J    1000.5      -  1.0 MiB",]
        );
    }

    #[test]
    fn rows_come_in_the_order_of_a_column() {
        let first = |column, descending| {
            let mut table = table();
            table.sort(Order { column, descending });
            table.lines(None).remove(1)
        };
        assert!(first(0, false).starts_with("a?") && first(0, true).starts_with("slow"));
        assert!(first(1, false).starts_with("slow") && first(1, true).starts_with("a?"));
        assert!(first(2, true).starts_with("slow"), "what is not known is not much");
    }
}
