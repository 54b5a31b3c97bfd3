//! The time to the first token of a request alone.

use anyhow::Result;

use super::bench::Bench;
use super::call::Route;
use crate::figures::{self, Figure};
use crate::progress::progress;

const TOKENS: u32 = 2;

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    progress(&format!("the first token, {} pairs", bench.args.pairs));
    let [mut direct, mut bridged, mut adds] = [(); 3].map(|()| Figure::default());
    for pair in 0..bench.args.pairs {
        let prompt = bench.prompts.take()?;
        let mut firsts = [0.0; 2];
        for route in Route::in_turn(pair) {
            let times = bench.caller(route).await?.times(&prompt, TOKENS).await?;
            firsts[route as usize] = times[0].as_secs_f64() * 1e3;
            bench.idle().await?;
        }
        direct.add(firsts[0]);
        bridged.add(firsts[1]);
        adds.add(firsts[1] - firsts[0]);
    }
    let title = "first token of one request: median (least–most)";
    let row = [&direct, &bridged, &adds].map(Figure::show);
    figures::print(title, &["direct, ms", "bridge, ms", "bridge adds, ms"], &[row.to_vec()]);
    Ok(())
}
