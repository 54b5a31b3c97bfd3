//! Sizing: tokens per second and memory of gen-svc by the size of the model, and the time that
//! render-svc needs beside it.

mod args;
mod model;
mod services;
mod shape;

use anyhow::Result;
use tempfile::TempDir;

use crate::machine;
use crate::progress::progress;
pub(crate) use args::Sizing;
use model::Model;
use services::{Sample, Services};

/// Title and width of each column.
const COLUMNS: [(&str, usize); 8] = [
    ("model", 34),
    ("file, MB", 9),
    ("memory, MB", 11),
    ("tasks at once", 14),
    ("tokens/s", 9),
    ("tokens/s of a core", 20),
    ("render-svc, ms/task", 21),
    ("gen per render", 16),
];

pub(crate) async fn measure(args: &Sizing) -> Result<()> {
    println!("{}; load average {}", machine::name(), machine::load_average());
    println!(
        "{} tasks of {} tokens per row, through render-svc; gen-svc with {} threads, --quantize {}, at most {} MiB of keys and values",
        args.tasks, args.tokens, args.threads, args.quantize, args.kv_memory_mib
    );
    println!("tokens/s of a core: per second of gen-svc's processor time, which other load changes less");
    println!("gen per render: seconds of gen-svc's processor time for one of render-svc's\n");
    line(&COLUMNS.map(|(title, _)| title.to_owned()));
    for model in models(args)? {
        measure_model(args, &model).await?;
    }
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}

/// Returns the given models, then the shapes of the made ones, which are written one at a time.
fn models(args: &Sizing) -> Result<Vec<Model>> {
    let given = args.models.iter().map(|path| Model::at(path));
    let shapes = args.shapes.iter().map(|&shape| Ok(Model::of(shape)));
    given.chain(shapes).collect()
}

async fn measure_model(args: &Sizing, model: &Model) -> Result<()> {
    let folder = TempDir::new()?;
    progress(&format!("{}: is written and loaded", model.name()));
    let path = model.write(folder.path())?;
    let megabytes = model::bytes(&path)? / 1_000_000;
    let services = Services::start(args, &path).await?;
    services.run(1, 1, args.tokens).await?;
    for &parallel in &args.parallel {
        progress(&format!("{}: {parallel} tasks at once", model.name()));
        let sample = services.run(args.tasks.max(parallel), parallel, args.tokens).await?;
        line(&row(args, model, megabytes, &sample));
    }
    Ok(())
}

fn row(args: &Sizing, model: &Model, megabytes: u64, sample: &Sample) -> [String; 8] {
    let Sample { parallel, tokens_per_second, memory, generation, render } = sample;
    [
        model.name(),
        megabytes.to_string(),
        (memory / 1_000_000).to_string(),
        parallel.to_string(),
        format!("{tokens_per_second:.1}"),
        format!("{:.1}", f64::from(args.tokens) / generation.max(1e-9)),
        format!("{:.1}", render * 1e3),
        format!("{:.0}", generation / render.max(1e-9)),
    ]
}

fn line(cells: &[String; 8]) {
    let cells = cells.iter().zip(COLUMNS).enumerate();
    let cells = cells.map(|(column, (cell, (_, width)))| match column {
        0 => format!("{cell:width$}"),
        _ => format!("{cell:>width$}"),
    });
    println!("{}", cells.collect::<String>());
}
