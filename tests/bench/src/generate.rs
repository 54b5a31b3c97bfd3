//! Generation: Tandem and other systems with the same model, prompts and threads.

mod args;
mod bandwidth;
mod batch;
mod bench;
mod grpc;
mod latency;
mod memory;
mod models;
mod offline;
mod operations;
mod peer;
mod prefix;
mod python;
mod quality;
mod random;
mod roofline;
mod run;
mod score;
mod system;
mod table;
mod tandem;
mod throughput;
mod turns;
mod variant;
mod vision;
mod weights;

use anyhow::Result;

use crate::machine;
pub(crate) use args::Generate;
use args::Part;
use bandwidth::Bandwidth;
use bench::Bench;
use models::Model;
use random::Random;

pub(crate) async fn measure(args: &Generate) -> Result<()> {
    println!("{}; load average {}", machine::describe(), machine::load_average());
    if args.only.contains(&Part::Roofline) {
        roofline::measure()?;
    }
    if args.only.contains(&Part::Vision) {
        vision::measure(args).await?;
    }
    if args.only.contains(&Part::Operations) {
        operations::measure(args)?;
    }
    if args.only.contains(&Part::Batch) {
        batch::measure(args).await?;
    }
    if args.only.iter().all(|part| [Part::Roofline, Part::Vision, Part::Operations, Part::Batch].contains(part)) {
        return Ok(());
    }
    let made = args.random.map(|kind| Model::make(args, kind)).transpose()?;
    let args = &made.as_ref().map_or_else(|| args.clone(), |model| model.chosen(args));
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
            Part::Memory | Part::Roofline | Part::Vision | Part::Operations | Part::Batch => {} // Last, and first.
        }
        bench.bandwidth.measure();
    }
    bench.bandwidth.report(&bench.systems, decoded.as_ref());
    if args.only.contains(&Part::Memory) {
        memory::report(&bench);
    }
    system::report_failures(&bench.systems);
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}
