//! Divides a step between callers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::sequence::Sequence;

/// A caller has few running sequences if another has at least this many times as many.
const FEW_SHARE: usize = 4;

/// Returns the number of running sequences of each caller.
pub(super) fn by_caller(running: &[Sequence]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    running.iter().for_each(|sequence| *counts.entry(&*sequence.caller).or_default() += 1);
    counts
}

/// Returns the callers with few running sequences: at most one for [`FEW_SHARE`] of the caller with
/// the most.
pub(super) fn callers_with_few(running: &[Sequence]) -> Vec<Arc<str>> {
    let counts = by_caller(running);
    let most = counts.values().copied().max().unwrap_or(0);
    let mut callers: Vec<Arc<str>> = Vec::new();
    for sequence in running {
        if counts[&*sequence.caller] * FEW_SHARE <= most && !callers.contains(&sequence.caller) {
            callers.push(Arc::clone(&sequence.caller));
        }
    }
    callers
}

/// Returns at most `most` of these sequences, in the order of rank. One of each caller comes first,
/// whatever its priority; then the highest priorities, of each caller one after the other. The
/// sequences of a caller take turns, and so do callers if there are more than `most`.
pub(super) fn in_turns(running: &[Sequence], mut chosen: Vec<usize>, most: usize) -> Vec<usize> {
    if chosen.len() <= most {
        return chosen;
    }
    let priority = |at: usize| Reverse(running[at].priority());
    chosen.sort_by_key(|&at| (priority(at), running[at].last_step, at));
    let mut turns: HashMap<&str, usize> = HashMap::new();
    let with_turn = |at: usize| {
        let turn = turns.entry(&*running[at].caller).or_default();
        *turn += 1;
        ((*turn > 1).then(|| (priority(at), *turn)), running[at].last_step, at)
    };
    let mut turns: Vec<_> = chosen.into_iter().map(with_turn).collect();
    turns.sort_unstable();
    let mut chosen: Vec<usize> = turns.into_iter().take(most).map(|(.., at)| at).collect();
    chosen.sort_unstable();
    chosen
}
