//! The first token of a request that shares a prefix with an earlier one.

use super::args::Family;
use super::bench::Bench;
use super::run::{Trial, Workload};
use super::table::{Better, Table};
use crate::progress::progress;

const PREFIX: usize = 4000;
/// Tokens after the prefix, which differ in both requests.
const REST: usize = 16;

pub(super) async fn measure(bench: &mut Bench<'_>) {
    let columns = ["first", "second", "second, % of first"].map(str::to_owned).to_vec();
    let title = format!("first token of two requests with the same {PREFIX} tokens, then {REST} others, ms");
    let mut table = Table::new(title, Better::Lower, columns);
    for round in 1..=bench.args.rounds {
        let prefix = bench.random.prompt(PREFIX);
        let mut work = || Workload { prompts: vec![[prefix.clone(), bench.random.prompt(REST)].concat()], tokens: 1 };
        let (first, second) = (work(), work());
        for system in bench.systems.iter_mut().filter(|system| system.family == Family::Tandem && system.is_running()) {
            progress(&format!("the same {PREFIX} tokens twice, round {round}: {}", system.name));
            let Some(runs) = system.run_twice(&first, &second).await else { continue };
            let [first, second] = runs.each_ref().map(|run: &Trial| run.first().median().as_secs_f64() * 1e3);
            [first, second, second / first * 100.0].into_iter().enumerate().for_each(|(column, figure)| {
                table.add(system, column, figure);
            });
        }
    }
    table.print();
}
