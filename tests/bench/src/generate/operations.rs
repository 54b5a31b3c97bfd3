//! The operations of libtorch in a decode step, for tiny models of each architecture: of one sequence
//! and of 64, and of one layer.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use super::args::Generate;
use counter::Counter;

/// The counter of the tests, which are in another workspace.
#[path = "../../../full/src/operations.rs"]
#[expect(dead_code, reason = "the tests also count other steps")]
mod counter;

const SCRIPT: &str = include_str!("operations/models.py");
const SEQUENCES: [usize; 2] = [1, 64];

/// A model that the script has written.
#[derive(Debug, Deserialize)]
struct Model {
    name: String,
    layers: u32,
    folder: PathBuf,
    embeddings: usize,
}

pub(super) fn measure(args: &Generate) -> Result<()> {
    let folder = TempDir::new()?;
    let models = models(args, &folder)?;
    let libtorch = std::env::var_os("LIBTORCH").context("LIBTORCH is not set; use `cargo xtask bench`")?;
    let counter = Counter::compile(&PathBuf::from(libtorch))?;
    println!("\noperations of libtorch in a decode step, views left out; --device cpu-torch in f32");
    println!("  {:12} {:>6} {:>14} {:>14} {:>10}", "", "layers", "1 sequence", "64 sequences", "per layer");
    let (pairs, _) = models.as_chunks::<2>();
    for [short, long] in pairs {
        let count = |model: &Model, sequences: usize| -> Result<u32> {
            let step = counter.decode_step(&args.gen_svc, &model.folder, sequences, model.embeddings);
            Ok(step.with_context(|| model.name.clone())?.values().sum())
        };
        let [one, many] = [count(long, SEQUENCES[0])?, count(long, SEQUENCES[1])?];
        let difference = many.saturating_sub(count(short, SEQUENCES[1])?);
        let per_layer = f64::from(difference) / f64::from(long.layers - short.layers);
        println!("  {:12} {:>6} {one:>14} {many:>14} {per_layer:>10.1}", long.name, long.layers);
    }
    Ok(())
}

/// Writes models of each architecture, in two depths.
fn models(args: &Generate, folder: &TempDir) -> Result<Vec<Model>> {
    let script = folder.path().join("models.py");
    std::fs::write(&script, SCRIPT)?;
    let output = Command::new(&args.python).arg(script).arg(folder.path()).output();
    let output = output.with_context(|| format!("cannot run {}", args.python.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| serde_json::from_str(line).context("the models")).collect()
}
