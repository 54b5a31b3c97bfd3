//! libtorch in gen-svc, which also computes on GPUs, compared with transformers' batched generation: the same
//! model, prompts and threads, in f32.

use anyhow::Result;

use super::args::Generate;
use super::bandwidth::Bandwidth;
use super::bench::Bench;
use super::random::Random;
use super::system;
use super::table::{Better, Table};
use super::turns::{Shape, in_turn};

const BATCH: usize = 32;
const PROMPT: usize = 32;

pub(super) async fn measure(args: &Generate) -> Result<()> {
    let (systems, random) = (system::start_torch(args).await?, Random::new(&args.model)?);
    let mut bench = Bench { args, systems, random, bandwidth: Bandwidth::default() };
    let columns = ["decode", "with prefill"].map(str::to_owned).to_vec();
    let title = format!("batch {BATCH} in f32, tokens/s, {} tokens after prompts of {PROMPT}", args.tokens);
    let mut table = Table::new(title, Better::Higher, columns);
    let shape = Shape { batch: BATCH, prompt: PROMPT, tokens: args.tokens };
    in_turn(&mut bench, shape, |system, run| {
        table.add(system, 0, run.decoded());
        table.add(system, 1, run.throughput());
    })
    .await;
    table.print();
    system::report_failures(&bench.systems);
    Ok(())
}
