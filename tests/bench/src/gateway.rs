//! The gateway: RunTask compared with gen-svc called with the same token ids, with a mock that
//! computes nothing.

mod args;
mod bench;
mod call;
mod latency;
mod load;
mod model;
mod services;
mod task;
mod tasks;
mod throughput;

use anyhow::Result;

use crate::machine;
pub(crate) use args::Gateway;
use args::Part;
use bench::Bench;
use services::Services;
use tasks::Tasks;

pub(crate) async fn measure(args: &Gateway) -> Result<()> {
    println!("{}; load average {}", machine::name(), machine::load_average());
    println!("{} rounds of {} s for each route, clients and services on the same cores", args.rounds, args.seconds);
    let services = Services::start(args, 0).await?;
    let tasks = Tasks::prepare(&services, args.tokens).await?;
    println!(
        "prompts of about {} tokens, answers of {}, each compared with the other route's",
        tasks.prompt_tokens(),
        args.tokens
    );
    let bench = Bench { args, services, tasks };
    for part in &args.only {
        match part {
            Part::Latency => latency::measure(&bench).await?,
            Part::Throughput => throughput::measure(&bench).await?,
        }
    }
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}
