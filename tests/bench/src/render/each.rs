//! One render at a time: from the text of a JSON request to the text of a prompt.

use std::time::{Duration, Instant};

use anyhow::Result;
use render_svc::catalog::{ModelTable, ServedModel};
use render_svc::cli::json;
use render_svc::limits::Limits;
use render_svc::render::{Output, render};
use tandem_template::LocalTime;

use super::cases::Set;
use super::minijinja::Minijinja;
use super::transformers::Transformers;
use crate::stats::{Times, ratio, show};

/// Loads Tandem's models of a set, one table each.
pub(crate) fn load(set: &Set) -> Vec<Option<ModelTable>> {
    let load = |i: usize| ServedModel::load(&set.folder.path().join(i.to_string())).ok().map(ModelTable::from);
    (0..set.models.len()).map(load).collect()
}

/// Renders a request with Tandem. Returns nothing if that fails.
pub(crate) fn tandem(models: &[Option<ModelTable>], set: &Set, case: usize) -> Option<String> {
    let case = &set.cases[case];
    let job = json::request(&case.request, LocalTime::EPOCH).ok()?;
    match render(models[case.model].as_ref()?, job, &Limits::default()).ok()?.output {
        Output::Prompt { text, .. } => Some(text),
        Output::HfMessages(_) => None,
    }
}

/// Times of one system, per case and round. A round measures every case once, without a pause.
type Measured = Vec<Vec<Duration>>;

pub(crate) async fn measure(set: &Set, mut peer: Option<&mut Transformers>, rounds: usize) -> Result<()> {
    let models = load(set);
    let bare = Minijinja::new(set);
    let empty = || vec![Vec::new(); set.cases.len()];
    let (mut ours, mut theirs, mut pythons): (Measured, Measured, Measured) = (empty(), empty(), empty());
    let is_same = |case| tandem(&models, set, case).is_some_and(|text| bare.render(set, case).as_ref() == Some(&text));
    let same: Vec<bool> = (0..set.cases.len()).map(is_same).collect();
    for _ in 0..rounds {
        round(&mut ours, |case| tandem(&models, set, case).is_some());
        round(&mut theirs, |case| same[case] && bare.render(set, case).is_some());
        if let Some(peer) = peer.as_deref_mut() {
            for (case, time) in peer.round().await?.into_iter().enumerate() {
                pythons[case].extend(time);
            }
        }
    }
    println!("\nper render, JSON request to prompt, {rounds} rounds");
    println!("  reading the JSON alone: {}", reading(set).summary());
    compare("transformers", &ours, &pythons);
    compare("bare minijinja", &ours, &theirs);
    Ok(())
}

/// Measures every case once. `render` returns true if it rendered the case.
fn round(measured: &mut Measured, render: impl Fn(usize) -> bool) {
    for (case, times) in measured.iter_mut().enumerate() {
        let start = Instant::now();
        let is_rendered = render(case);
        let time = start.elapsed();
        times.extend(is_rendered.then_some(time));
    }
}

/// Returns the times of request parsing, a part of Tandem's times.
fn reading(set: &Set) -> Times {
    let mut times = Times::default();
    for case in &set.cases {
        let start = Instant::now();
        let job = json::request(&case.request, LocalTime::EPOCH);
        times.add(start.elapsed());
        drop(job);
    }
    times
}

/// Prints the times of both systems, for the cases that both render.
fn compare(name: &str, ours: &Measured, theirs: &Measured) {
    let both: Vec<usize> = (0..ours.len()).filter(|&i| !ours[i].is_empty() && !theirs[i].is_empty()).collect();
    if both.is_empty() {
        return;
    }
    let gather = |measured: &Measured| {
        let mut times = Times::default();
        both.iter().flat_map(|&i| &measured[i]).for_each(|&time| times.add(time));
        times
    };
    let (mut tandem, mut peer) = (gather(ours), gather(theirs));
    println!("  {} requests that {name} renders too", both.len());
    println!("    {:<15} {}", "tandem", tandem.summary());
    println!("    {name:<15} {}", peer.summary());
    let times = ratio(peer.median(), tandem.median());
    println!(
        "    {name} takes {times:.2} × tandem's median ({} saved)",
        show(peer.median().saturating_sub(tandem.median()))
    );
}
