//! A table with a row per system and a column per figure.

use super::args::Family;
use super::system::System;
use crate::stats::digits;

/// The better direction of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

/// Figures of one kind.
#[derive(Debug)]
pub(super) struct Table {
    title: String,
    better: Better,
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    family: Family,
    /// Per column, one sample per round.
    samples: Vec<Vec<f64>>,
}

const NAME: usize = 18;
const CELL: usize = 24;
const RATIO: usize = 9;

impl Table {
    pub(super) fn new(title: impl Into<String>, better: Better, columns: Vec<String>) -> Self {
        Self { title: title.into(), better, columns, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, system: &System, column: usize, sample: f64) {
        let at = self.rows.iter().position(|row| row.name == system.name).unwrap_or_else(|| {
            let samples = vec![Vec::new(); self.columns.len()];
            self.rows.push(Row { name: system.name.clone(), family: system.family, samples });
            self.rows.len() - 1
        });
        self.rows[at].samples[column].push(sample);
    }

    /// Returns the median of a system's samples in a column.
    pub(super) fn median(&self, name: &str, column: usize) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.median(column)
    }

    /// Prints medians with least and most, and the ratios of Tandem's median to the best row of the
    /// others.
    pub(super) fn print(&self) {
        println!("\n{}: median (least–most)", self.title);
        let others = [Family::LlamaCpp, Family::Transformers].map(|family| (family, self.has(family)));
        let head = |column: &String| {
            let [llama, torch] = [("÷llama", others[0].1), ("÷transf", others[1].1)]
                .map(|(name, is_there)| if is_there { format!("{name:>RATIO$}") } else { String::new() });
            format!("{column:>CELL$}{llama}{torch}")
        };
        println!("  {:NAME$}{}", "", self.columns.iter().map(head).collect::<String>());
        for row in &self.rows {
            let cell = |column| {
                let ratios = others.iter().filter(|(_, is_there)| *is_there);
                let ratios: String = ratios.map(|&(family, _)| self.ratio(row, family, column)).collect();
                format!("{:>CELL$}{ratios}", row.cell(column))
            };
            println!("  {:NAME$}{}", row.name, (0..self.columns.len()).map(cell).collect::<String>().trim_end());
        }
    }

    fn has(&self, family: Family) -> bool {
        self.rows.iter().any(|row| row.family == family)
    }

    /// Returns text such as "1.23 ×" in Tandem's rows.
    fn ratio(&self, row: &Row, family: Family, column: usize) -> String {
        let ratio = || Some(row.median(column)? / self.best(family, column)?);
        match ratio().filter(|_| row.family == Family::Tandem) {
            Some(ratio) => format!("{:>RATIO$}", format!("{ratio:.2} ×")),
            None => " ".repeat(RATIO),
        }
    }

    fn best(&self, family: Family, column: usize) -> Option<f64> {
        let medians = self.rows.iter().filter(|row| row.family == family).filter_map(|row| row.median(column));
        match self.better {
            Better::Higher => medians.max_by(f64::total_cmp),
            Better::Lower => medians.min_by(f64::total_cmp),
        }
    }
}

impl Row {
    fn sorted(&self, column: usize) -> Vec<f64> {
        let mut samples = self.samples[column].clone();
        samples.sort_by(f64::total_cmp);
        samples
    }

    fn median(&self, column: usize) -> Option<f64> {
        let samples = self.sorted(column);
        samples.get(samples.len() / 2).copied()
    }

    /// Returns text such as "101.2 (99.8–103.4)"
    fn cell(&self, column: usize) -> String {
        let samples = self.sorted(column);
        match (samples.first(), self.median(column), samples.last()) {
            (Some(least), Some(median), Some(most)) => {
                format!("{} ({}–{})", digits(median), digits(*least), digits(*most))
            }
            _ => "–".to_owned(),
        }
    }
}
