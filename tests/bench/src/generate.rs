//! Generation: Tandem, llama.cpp and transformers with the same model, prompts and threads.

mod bandwidth;
mod grpc;
mod latency;
mod memory;
mod offline;
mod peer;
mod prefix;
mod quality;
mod random;
mod run;
mod system;
mod table;
mod tandem;
mod throughput;
mod turns;
mod weights;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::machine;
use bandwidth::Bandwidth;
use random::Random;
use system::System;

/// Generation: decode and prefill, latency, the cost of gRPC, prefixes, quality, memory.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Generate {
    /// The gen-svc to measure.
    #[arg(long, value_name = "PATH")]
    gen_svc: PathBuf,
    /// The model: a GGUF file.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// A Python that has llama_cpp, or torch, transformers and gguf. What it lacks is reported and not measured.
    #[arg(long, value_name = "PATH")]
    python: PathBuf,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_values = ["decode", "prefill", "latency", "grpc", "prefix", "quality", "memory"])]
    only: Vec<Part>,
    /// How Tandem keeps its weights. `grpc` measures the first of them; `quality` compares with f32, if that is one.
    #[arg(long, value_delimiter = ',', default_values = ["keep", "f32", "bf16", "int8", "int4"])]
    modes: Vec<Mode>,
    /// Which systems to measure.
    #[arg(long, value_delimiter = ',', default_values = ["tandem", "llama.cpp", "transformers"])]
    systems: Vec<Family>,
    /// Rounds of every measurement, each of every system in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Tokens to generate per prompt where decoding is measured.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..))]
    tokens: u32,
    /// Memory for keys and values of every gen-svc, in MiB. Its own default, a quarter of the free memory, would differ between them.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    kv_memory_mib: u32,
    /// Seconds that a system may take for one answer before it is given up.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    patience: u64,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Tokens per second at batch 1, 8 and 32, and the share of the memory's bandwidth that batch 1 reaches.
    Decode,
    /// Tokens per second of prompts of 512 and 4,096 tokens.
    Prefill,
    /// Time to the first token and between tokens, for 1, 8 and 32 streams at once.
    Latency,
    /// What streaming costs: through gRPC against `gen-svc generate --jsonl`.
    Grpc,
    /// The first token of a second request with the same 4,000 tokens in front.
    Prefix,
    /// Perplexity, and how often the likeliest token is that of Tandem in f32.
    Quality,
    /// Resident memory after load and at the end.
    Memory,
}

/// How Tandem keeps its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// As the file has them.
    Keep,
    F32,
    Bf16,
    Int8,
    Int4,
}

/// Who made a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Family {
    Tandem,
    #[value(name = "llama.cpp")]
    LlamaCpp,
    Transformers,
}

/// What the parts work with.
struct Bench<'a> {
    args: &'a Generate,
    systems: Vec<System>,
    random: Random,
    bandwidth: Bandwidth,
}

pub(crate) async fn measure(args: &Generate) -> Result<()> {
    println!("{}; load average {}", machine::describe(), machine::load_average());
    println!(
        "{}, {} threads, {} rounds; one where an answer takes more than {} s",
        args.model.display(),
        machine::cores(),
        args.rounds,
        turns::SLOW.as_secs()
    );
    let random = Random::new(&args.model)?;
    let mut bench = Bench { args, systems: system::start(args).await?, random, bandwidth: Bandwidth::default() };
    bench.bandwidth.measure();
    let mut decoded = None;
    for &part in &args.only {
        match part {
            Part::Decode => decoded = Some(throughput::decode(&mut bench).await),
            Part::Prefill => throughput::prefill(&mut bench).await,
            Part::Latency => latency::measure(&mut bench).await,
            Part::Grpc => grpc::measure(&mut bench).await,
            Part::Prefix => prefix::measure(&mut bench).await,
            Part::Quality => quality::measure(&mut bench).await?,
            Part::Memory => {} // Last.
        }
        bench.bandwidth.measure();
    }
    bench.bandwidth.report(&bench.systems, decoded.as_ref());
    if args.only.contains(&Part::Memory) {
        memory::report(&bench);
    }
    system::report_trouble(&bench.systems);
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}

/// What is measured now, for whoever waits.
fn progress(what: &str) {
    eprintln!("  {what}");
}
