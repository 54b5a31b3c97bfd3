//! Tokens per second of as many streams as the engine has slots.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::bench::{Bench, SLOTS};
use super::call::Route;
use crate::figures::{self, Figure};
use crate::machine;
use crate::progress::progress;

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let tokens = bench.args.tokens;
    let [mut direct, mut bridged, mut share, mut cost] = [(); 4].map(|()| Figure::default());
    let count = SLOTS as f64 * f64::from(tokens);
    // The first round warms up.
    for round in 0..=bench.args.rounds {
        let prompts = (0..SLOTS).map(|_| bench.prompts.take()).collect::<Result<Vec<_>>>()?;
        let (mut rates, before) = ([0.0; 2], cpu_time(bench));
        for route in Route::in_turn(round) {
            progress(&format!("{SLOTS} streams, round {round}: {route:?}"));
            rates[route as usize] = count / run(bench, route, &prompts).await?.as_secs_f64();
        }
        if round > 0 {
            direct.add(rates[0]);
            bridged.add(rates[1]);
            share.add(rates[1] / rates[0] * 100.0);
            cost.add((cpu_time(bench) - before).as_secs_f64() * 1e6 / count);
        }
    }
    let row = [&direct, &bridged, &share, &cost].map(Figure::show);
    let title = format!("{SLOTS} streams, {tokens} tokens each: median (least–most)");
    let head = ["direct, tokens/s", "bridge, tokens/s", "bridge reaches, %", "bridge on a CPU per token, µs"];
    figures::print(&title, &head, &[row.to_vec()]);
    Ok(())
}

/// Returns the time until the last token of all streams.
async fn run(bench: &Bench<'_>, route: Route, prompts: &[Vec<u32>]) -> Result<Duration> {
    let (mut streams, tokens) = (JoinSet::new(), bench.args.tokens);
    let mut callers = Vec::new();
    for _ in prompts {
        callers.push(bench.caller(route).await?);
    }
    for (caller, prompt) in callers.into_iter().zip(prompts.to_vec()) {
        streams.spawn(async move { caller.times(&prompt, tokens).await });
    }
    let mut last = Duration::ZERO;
    while let Some(times) = streams.join_next().await {
        last = last.max(times??.into_iter().max().unwrap_or_default());
    }
    bench.idle().await?;
    Ok(last)
}

fn cpu_time(bench: &Bench<'_>) -> Duration {
    machine::cpu_time(bench.bridge.id()).unwrap_or_default()
}
