//! A table with a row per system and a column per figure.

use super::args::Family;
use super::system::{System, name};
use super::variant::Type;
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
    kind: Type,
    /// Per column, one sample per round.
    samples: Vec<Vec<f64>>,
}

const NAME: usize = 18;
const CELL: usize = 21;
const RATIO: usize = 22;

impl Table {
    pub(super) fn new(title: impl Into<String>, better: Better, columns: Vec<String>) -> Self {
        Self { title: title.into(), better, columns, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, system: &System, column: usize, sample: f64) {
        let at = self.rows.iter().position(|row| row.name == system.name).unwrap_or_else(|| {
            let samples = vec![Vec::new(); self.columns.len()];
            self.rows.push(Row { name: system.name.clone(), family: system.family, kind: system.kind, samples });
            self.rows.len() - 1
        });
        self.rows[at].samples[column].push(sample);
    }

    /// Returns the median of a system's samples in a column.
    pub(super) fn median(&self, name: &str, column: usize) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name)?.median(column)
    }

    /// Prints medians with least and most, and the ratios of Tandem's medians to the best other
    /// system with weights of the same type.
    pub(super) fn print(&self) {
        println!("\n{}: median (least–most)", self.title);
        let ratio = if self.rows.iter().all(|row| row.family == Family::Tandem) { 0 } else { RATIO };
        let ratios = if ratio > 0 { "  ÷ best of its type" } else { "" };
        let head = |column: &String| format!("{column:>CELL$}{ratios:ratio$}");
        println!("  {:NAME$}{}", "", self.columns.iter().map(head).collect::<String>().trim_end());
        for row in &self.rows {
            let cell = |column| {
                let text = self.ratio(row, column).unwrap_or_default();
                format!("{:>CELL$}{text:ratio$}", row.cell(column))
            };
            println!("  {:NAME$}{}", row.name, (0..self.columns.len()).map(cell).collect::<String>().trim_end());
        }
    }

    /// Returns text such as "  1.23 × vllm" in Tandem's rows.
    fn ratio(&self, row: &Row, column: usize) -> Option<String> {
        let own = row.median(column).filter(|_| row.family == Family::Tandem)?;
        let others = self.rows.iter().filter(|other| other.family != Family::Tandem && other.kind == row.kind);
        let medians = others.filter_map(|other| Some((other.median(column)?, other.family)));
        let (best, family) = match self.better {
            Better::Higher => medians.max_by(|one, other| one.0.total_cmp(&other.0)),
            Better::Lower => medians.min_by(|one, other| one.0.total_cmp(&other.0)),
        }?;
        Some(format!("  {:.2} × {}", own / best, name(&family)))
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
