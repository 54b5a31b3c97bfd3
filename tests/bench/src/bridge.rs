//! The bridge: gen-bridge compared with calls of the engine behind it, llama.cpp's own HTTP server.

mod args;
mod bench;
mod call;
mod cancel;
mod first_token;
mod http;
mod memory;
mod prompts;
mod throughput;

use anyhow::Result;

use crate::machine;
pub(crate) use args::Bridge;
use args::Part;
use bench::Bench;

pub(crate) async fn measure(args: &Bridge) -> Result<()> {
    println!("{}; load average {}", machine::name(), machine::load_average());
    println!("{}, engine, bridge and clients on the same cores", args.model.display());
    let mut bench = Bench::start(args).await?;
    for part in &args.parts {
        match part {
            Part::Throughput => throughput::measure(&mut bench).await?,
            Part::FirstToken => first_token::measure(&mut bench).await?,
            Part::Cancel => cancel::measure(&mut bench).await?,
            Part::Memory => memory::measure(&mut bench).await?,
        }
    }
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}
