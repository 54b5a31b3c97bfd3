//! Figures of several rounds, and tables of figures.

use crate::stats::digits;

/// One figure, with a sample per round.
#[derive(Debug, Default)]
pub(crate) struct Figure(Vec<f64>);

impl Figure {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Returns text such as "101.2 (99.8–103.4)"
    pub(crate) fn show(&self) -> String {
        let [least, most] = [self.0.first(), self.0.last()].map(|end| end.copied().unwrap_or(f64::NAN));
        format!("{} ({}–{})", digits(self.median()), digits(least), digits(most))
    }
}

/// Prints a row whose first column is a name.
pub(crate) fn print(title: &str, head: &[&str], rows: &[Vec<String>]) {
    println!("\n{title}");
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 => format!("  {cell:width$}"),
            _ => format!("   {cell:>width$}"),
        });
        println!("{}", cells.collect::<String>().trim_end());
    };
    line(head.to_vec());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
}
