//! Resident memory of the bridge with many open streams, of which most wait in its queue.

use std::time::Duration;

use anyhow::{Context, Result};
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;

use super::bench::{Bench, SLOTS};
use super::call::Caller;
use crate::progress::progress;
use crate::{child, machine};

const TOKENS: u32 = 1500;
/// Streams on one connection.
const SHARED: usize = 100;
/// Until the bridge has freed its memory.
const PAUSE: Duration = Duration::from_secs(3);

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let streams = bench.args.streams;
    progress(&format!("{streams} open streams"));
    let before = resident(bench)?;
    let mut open = Vec::new();
    while open.len() < streams {
        let client = GenerateServiceClient::new(child::connect(&bench.bridge).await?);
        for _ in 0..SHARED.min(streams - open.len()) {
            open.push(Caller::Bridge(client.clone()).send(&bench.prompts.take()?, TOKENS).await?);
        }
    }
    for answer in &mut open {
        answer.next().await?;
    }
    tokio::time::sleep(PAUSE).await;
    let during = resident(bench)?;
    drop(open);
    bench.idle().await?;
    tokio::time::sleep(PAUSE).await;
    let after = resident(bench)?;
    let each = during.saturating_sub(before) as f64 / streams as f64 / 1e3;
    println!(
        "\nresident memory of gen-bridge, MB: {} before, {} with {streams} open streams ({SLOTS} run), \
         {} after; {each:.1} kB per stream",
        before / 1_000_000,
        during / 1_000_000,
        after / 1_000_000
    );
    Ok(())
}

fn resident(bench: &Bench<'_>) -> Result<u64> {
    machine::resident(bench.bridge.id()).context("gen-bridge has ended")
}
