//! Measures the memory of this process during many renders.

use anyhow::Result;

use super::cases::Set;
use super::each::{load, tandem};
use crate::machine::resident;

/// Number of memory samples.
const LOOKS: u64 = 10;

pub(crate) fn measure(set: &Set, renders: u64) -> Result<()> {
    let models = load(set);
    println!("\nmemory over {renders} renders of all requests in turn");
    let mut case = (0..set.cases.len()).cycle();
    for look in 1..=LOOKS {
        let rendered = (0..renders / LOOKS).filter(|_| case.next().is_some_and(|i| tandem(&models, set, i).is_some()));
        let rendered = rendered.count();
        let memory = resident(std::process::id()).unwrap_or_default();
        println!("  after {:>8}: {:.1} MB ({rendered} prompts)", renders / LOOKS * look, memory as f64 / 1e6);
    }
    Ok(())
}
