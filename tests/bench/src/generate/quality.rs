//! Quality of quantized weights: perplexity, and how often the most probable token differs.

use anyhow::Result;
use tandem_model_files::artifacts::Artifacts;

use super::bench::Bench;
use super::score::Score;
use super::system::System;
use crate::progress::progress;

/// Texts that every checkout contains.
const TEXTS: [&str; 2] = [include_str!("../../../../README.md"), include_str!("../../../../LICENSE")];
const WINDOW: usize = 512;
/// Number of windows per text.
const WINDOWS: usize = 2;
/// The system to compare with.
const REFERENCE: &str = "tandem f32";

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let tokenizer = Artifacts::load(&bench.args.model)?.tokenizer()?;
    let mut windows = Vec::new();
    for text in TEXTS {
        let ids = tokenizer.encode(text, false)?;
        windows.extend(ids.chunks(WINDOW).take(WINDOWS).map(<[u32]>::to_vec));
    }
    let count: usize = windows.iter().map(|window| window.len() - 1).sum();
    let mut scores = Vec::new();
    for system in bench.systems.iter_mut().filter(|system| system.is_running() && system.can_score()) {
        progress(&format!("quality: {}", system.name));
        if let Some(score) = all(system, &windows).await {
            scores.push((system.name.clone(), score));
        }
    }
    let reference = scores.iter().find(|(name, _)| name == REFERENCE).map(|(_, score)| score.clone());
    println!("\nquality, {count} tokens of README.md and LICENSE in windows of {WINDOW}");
    for (name, score) in &scores {
        let agreement = reference.as_ref().map_or_else(String::new, |reference| {
            format!(", the likeliest token is that of {REFERENCE} in {:.2} %", agreement(score, reference))
        });
        println!("  {name:18} perplexity {:.4}{agreement}", perplexity(score));
    }
    Ok(())
}

async fn all(system: &mut System, windows: &[Vec<u32>]) -> Option<Score> {
    let mut all = Score::default();
    for window in windows {
        let score = system.score(window).await?;
        all.logprobs.extend(score.logprobs);
        all.likeliest.extend(score.likeliest);
    }
    Some(all)
}

fn perplexity(score: &Score) -> f64 {
    (-score.logprobs.iter().sum::<f64>() / score.logprobs.len() as f64).exp()
}

/// Returns the agreement in per cent.
fn agreement(score: &Score, reference: &Score) -> f64 {
    let same = score.likeliest.iter().zip(&reference.likeliest).filter(|(this, that)| this == that).count();
    same as f64 / reference.likeliest.len() as f64 * 100.0
}
