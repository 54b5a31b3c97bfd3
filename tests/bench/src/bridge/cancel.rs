//! The time from a cancelled request to the free slot.

use std::time::Instant;

use anyhow::Result;

use super::bench::Bench;
use super::call::Route;
use crate::figures::{self, Figure};
use crate::progress::progress;

/// More than the answer has before it is cancelled.
const TOKENS: u32 = 1000;

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    progress(&format!("cancellation, {} pairs", bench.args.pairs));
    let mut figures = [(); 2].map(|()| Figure::default());
    for pair in 0..bench.args.pairs {
        let prompt = bench.prompts.take()?;
        for route in Route::in_turn(pair) {
            let mut answer = bench.caller(route).await?.send(&prompt, TOKENS).await?;
            let mut read = 0;
            while read < 8 {
                read += answer.next().await?;
            }
            let start = Instant::now();
            drop(answer);
            bench.idle().await?;
            figures[route as usize].add(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let title = "from a cancelled request to the free slot: median (least–most)";
    figures::print(title, &["direct, ms", "bridge, ms"], &[figures.each_ref().map(|figure| figure.show()).to_vec()]);
    Ok(())
}
