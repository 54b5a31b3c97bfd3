//! The running sequences that take part in a step, and their tokens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::prompt_rows::PromptRows;
use super::snapshot::Running;
use crate::engine::config::EngineLimits;

/// A caller is interactive if another one has at least this many times as many running sequences.
const INTERACTIVE_SHARE: usize = 4;

/// How long steps stay short after a sequence of an interactive caller was ready, so that its next prompt waits for
/// a short step.
const SHORT_STEPS: Duration = Duration::from_secs(5);

/// Returns the sequences of the next step with their numbers of tokens, `budget` of which may be of prompts. The order
/// is that in which they get blocks: decode, prompts of interactive callers, prompts of the others.
/// `since_interactive`: the time since a sequence of an interactive caller was ready.
pub(super) fn plan(
    running: &[Running],
    limits: EngineLimits,
    budget: usize,
    since_interactive: Option<Duration>,
) -> Vec<(usize, usize)> {
    let is_short = since_interactive.is_some_and(|since| since < SHORT_STEPS);
    let beside = if is_short { limits.max_beside_interactive } else { usize::MAX };
    let own = interactive(running).filter(|sequence| sequence.is_decode()).count();
    let decodes = in_turns(running, limits.max_decodes.min(beside.saturating_add(own)));
    let mut plan: Vec<_> = decodes.into_iter().map(|at| (at, 1)).collect();
    plan.extend(prompts(running, budget, beside));
    plan
}

/// Returns the ready sequences of interactive callers.
pub(super) fn interactive(running: &[Running]) -> impl Iterator<Item = &Running> {
    let most = running.iter().map(|sequence| sequence.of_caller).max().unwrap_or(0);
    running.iter().filter(move |sequence| sequence.is_ready() && sequence.of_caller * INTERACTIVE_SHARE <= most)
}

/// Returns at most `most` of the sequences in decode, in the order of rank. One of each caller comes first, whatever
/// its priority; then the highest priorities, of each caller one after the other. The sequences of a caller take
/// turns, and so do callers if there are more than `most`.
fn in_turns(running: &[Running], most: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..running.len()).filter(|&at| running[at].is_decode()).collect();
    if chosen.len() <= most {
        return chosen;
    }
    let priority = |at: usize| Reverse(running[at].priority);
    chosen.sort_by_key(|&at| (priority(at), running[at].last_step, at));
    let mut turns: HashMap<usize, usize> = HashMap::new();
    let key = |at: usize| {
        let turn = turns.entry(running[at].caller).or_default();
        *turn += 1;
        ((*turn > 1).then(|| (priority(at), *turn)), running[at].last_step, at)
    };
    let mut keys: Vec<_> = chosen.into_iter().map(key).collect();
    keys.sort_unstable();
    let mut chosen: Vec<usize> = keys.into_iter().take(most).map(|(.., at)| at).collect();
    chosen.sort_unstable();
    chosen
}

/// Returns the prompts of a step with `budget` tokens, of which callers that are not interactive get at most `beside`.
/// An interactive caller gets an equal share of the budget.
fn prompts(running: &[Running], budget: usize, beside: usize) -> Vec<(usize, usize)> {
    let callers: HashSet<usize> = interactive(running).map(|sequence| sequence.caller).collect();
    let (interactive, others): (Vec<_>, Vec<_>) =
        prompts_by_caller(running).into_iter().partition(|prompts| callers.contains(&running[prompts[0]].caller));
    let (mut plan, mut rows) = (Vec::new(), PromptRows::new(running));
    let mut of_caller = |prompts: &Vec<usize>, share: usize| {
        divide(prompts, share, 0, |&at, share| {
            let count = rows.take(at, &running[at], share);
            plan.extend((count > 0).then_some((at, count)));
            count
        })
    };
    let used = divide(&interactive, budget, others.len(), &mut of_caller);
    divide(&others, beside.min(budget - used), 0, of_caller);
    plan
}

/// Divides `budget` into equal shares, one for each of `parts` and of a number of `others`. `take` returns the
/// tokens of its share that a part uses; later parts get the rest of it. Returns the tokens that all parts use.
fn divide<T>(parts: &[T], budget: usize, others: usize, mut take: impl FnMut(&T, usize) -> usize) -> usize {
    let mut left = budget;
    for (done, part) in parts.iter().enumerate() {
        // An image may exceed the share.
        left = left.saturating_sub(take(part, left.div_ceil(others + parts.len() - done)));
    }
    budget - left
}

/// Returns the sequences in prefill of each caller, the shortest rest first. The caller with the fewest tokens comes
/// first.
fn prompts_by_caller(running: &[Running]) -> Vec<Vec<usize>> {
    let mut prompts: Vec<usize> = (0..running.len()).filter(|&at| running[at].is_prefill()).collect();
    prompts.sort_by_key(|&at| running[at].pending);
    let mut callers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    prompts.into_iter().for_each(|at| callers.entry(running[at].caller).or_default().push(at));
    let mut callers: Vec<_> = callers.into_values().collect();
    callers.sort_by_key(|prompts| prompts.iter().map(|&at| running[at].pending).sum::<usize>());
    callers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of numbers: a caller and its pending tokens, or a place and planned tokens.
    type Pairs = &'static [(usize, usize)];

    const SHORT: Option<Duration> = Some(Duration::ZERO);

    /// Plans a step of 100 tokens of prompts and 8 decodes. A short one has 2 of each beside an interactive caller.
    fn planned(running: &[Running], since_interactive: Option<Duration>) -> Vec<(usize, usize)> {
        let limits = EngineLimits { max_decodes: 8, max_beside_interactive: 2, ..EngineLimits::default() };
        plan(running, limits, 100, since_interactive)
    }

    /// Returns running sequences of these callers, with these numbers of pending tokens, in the order of rank.
    fn running(sequences: &[(usize, usize)]) -> Vec<Running> {
        let count = |caller| sequences.iter().filter(|(other, _)| *other == caller).count();
        let of = |&(caller, pending): &(usize, usize)| Running {
            caller,
            of_caller: count(caller),
            pending,
            available: pending,
            ..Running::default()
        };
        sequences.iter().map(of).collect()
    }

    /// The prompts of five sequences of one caller and of one of another.
    const SHARED: Pairs = &[(0, 1), (0, 1), (0, 1), (0, 90), (0, 1), (1, 40)];

    #[test]
    fn a_step_has_a_token_of_each_decode_and_equal_shares_of_prompts() {
        let cases: &[(&str, Pairs, Pairs)] = &[
            ("none runs", &[], &[]),
            ("decodes come before prompts", &[(0, 90), (0, 1)], &[(1, 1), (0, 90)]),
            ("prompts have equal shares", &[(0, 90), (1, 90)], &[(0, 50), (1, 50)]),
            ("the rest of a share goes to others", &[(0, 90), (1, 20)], &[(1, 20), (0, 80)]),
            ("callers have equal shares", &[(0, 90), (0, 90), (1, 90)], &[(2, 50), (0, 25), (1, 25)]),
        ];
        for &(fact, sequences, expected) in cases {
            assert_eq!(planned(&running(sequences), None), expected, "{fact}");
        }
    }

    #[test]
    fn steps_are_short_for_five_seconds_after_an_interactive_caller() {
        let at = |since| planned(&running(SHARED), since);
        let short = [(0, 1), (1, 1), (5, 40), (3, 2)];
        assert_eq!(at(SHORT), short);
        assert_eq!(at(Some(SHORT_STEPS - Duration::from_millis(1))), short);
        let whole = [(0, 1), (1, 1), (2, 1), (4, 1), (5, 40), (3, 60)];
        assert_eq!(at(Some(SHORT_STEPS)), whole);
        assert_eq!(at(None), whole);
    }

    #[test]
    fn every_decode_of_an_interactive_caller_takes_part_in_a_short_step() {
        let sequences = running(&[(0, 1), (0, 1), (0, 1), (0, 1), (1, 1)]);
        assert_eq!(planned(&sequences, SHORT), [(0, 1), (1, 1), (4, 1)]);
    }

    #[test]
    fn a_caller_is_interactive_with_a_quarter_of_the_sequences_of_another_and_a_ready_one() {
        let callers = |sequences: &[Running]| interactive(sequences).map(|it| it.caller).collect::<Vec<_>>();
        let mut sequences = running(SHARED);
        assert_eq!(callers(&sequences), [1]);
        assert!(callers(&running(&SHARED[2..])).is_empty(), "another has three");
        sequences[5].available = 0;
        assert!(callers(&sequences).is_empty(), "it is not ready");
    }

    #[test]
    fn decodes_beyond_the_limit_take_turns() {
        let mut sequences = running(&[(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]);
        sequences.iter_mut().zip([5, 4, 3, 5, 5]).for_each(|(sequence, step)| sequence.last_step = step);
        assert_eq!(in_turns(&sequences, 3), [1, 2, 3], "one of each caller, then the least recent");
        sequences[..2].iter_mut().for_each(|sequence| sequence.priority = 1);
        assert_eq!(in_turns(&sequences, 3), [0, 1, 3], "one of each caller, then the highest priority");
        sequences[1].available = 0;
        assert_eq!(in_turns(&sequences, 2), [0, 3], "a sequence that is not ready has no turn");
    }

    #[test]
    fn a_whole_image_may_exceed_its_share_and_others_keep_theirs() {
        let mut sequences = running(&[(0, 200), (1, 200)]);
        sequences[0].images.push(30..90);
        assert_eq!(planned(&sequences, None), [(0, 90), (1, 50)]);
    }

    #[test]
    fn prompts_that_report_share_the_rows_of_logits() {
        let mut sequences = running(&[(0, 90), (1, 90), (2, 90)]);
        sequences[..2].iter_mut().for_each(|sequence| sequence.reports_prompt = true);
        assert_eq!(planned(&sequences, None), [(0, 17), (1, 16), (2, 67)]);
    }
}
