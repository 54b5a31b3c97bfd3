//! The running sequence that is preempted: for a waiting one, or because the KV cache is full.

use std::time::Duration;

use super::snapshot::{Running, Waiting};

/// The time for which a channel must be full before its sequences are preempted for others.
const SLOW_READER_GRACE: Duration = Duration::from_secs(2);

/// Returns the sequence that is preempted for `waiting`, for which no place or no memory is free.
pub(super) fn for_waiting(running: &[Running], waiting: &Waiting) -> Option<usize> {
    let Waiting { of_caller, priority, .. } = *waiting;
    slow_reader(running)
        .or_else(|| last_of_lower_priority(running, priority))
        .or_else(|| over_share(running, of_caller, priority))
}

/// Returns the sequence that is preempted for one of a caller without a running sequence that has waited long.
pub(super) fn for_unserved(running: &[Running]) -> Option<usize> {
    over_share(running, 0, i32::MAX)
}

/// Returns the sequence that is preempted while the KV cache has no room for the next token of each. `None`: the
/// last in the order of rank is, once a higher one needs a block.
pub(super) fn for_memory(running: &[Running]) -> Option<usize> {
    slow_reader(running).or_else(|| over_share_of_lowest(running))
}

/// Returns the last sequence whose channel has been full for a while.
fn slow_reader(running: &[Running]) -> Option<usize> {
    running.iter().rposition(|sequence| sequence.unread > SLOW_READER_GRACE)
}

/// Returns the last sequence if its priority is below `priority`.
fn last_of_lower_priority(running: &[Running], priority: i32) -> Option<usize> {
    let last = running.len().checked_sub(1)?;
    (running[last].priority < priority).then_some(last)
}

/// Returns the last sequence of the caller with the most, among the priorities up to `priority`. A caller keeps
/// its sequences if it would then have fewer than `of_caller`.
fn over_share(running: &[Running], of_caller: usize, priority: i32) -> Option<usize> {
    let may_leave = |sequence: &&Running| sequence.priority <= priority && sequence.of_caller > of_caller + 1;
    let most = running.iter().filter(may_leave).map(|sequence| sequence.of_caller).max()?;
    running.iter().rposition(|sequence| may_leave(&sequence) && sequence.of_caller == most)
}

/// Returns the last sequence of the caller with the most, among the sequences of the lowest priority. None if
/// these callers have equal shares.
fn over_share_of_lowest(running: &[Running]) -> Option<usize> {
    let lowest = running.last()?.priority;
    let of_lowest = running.iter().filter(|sequence| sequence.priority == lowest);
    over_share(running, of_lowest.map(|sequence| sequence.of_caller).min()?, lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers and priorities.
    type Sequences = &'static [(usize, i32)];

    /// Returns running sequences of these callers and priorities, in the order of rank.
    fn running(sequences: &[(usize, i32)]) -> Vec<Running> {
        let count = |caller| sequences.iter().filter(|(other, _)| *other == caller).count();
        let of = |&(caller, priority): &(usize, i32)| {
            let of_caller = count(caller);
            Running { caller, priority, of_caller, available: 1, ..Running::default() }
        };
        sequences.iter().map(of).collect()
    }

    fn waiting(of_caller: usize, priority: i32) -> Waiting {
        Waiting { of_caller, priority, ..Waiting::default() }
    }

    #[test]
    fn a_waiting_sequence_takes_the_place_of_a_lower_priority_then_of_a_caller_with_more() {
        let cases: &[(&str, Sequences, Waiting, Option<usize>)] = &[
            ("none runs", &[], waiting(0, 9), None),
            ("the last one has a lower priority", &[(0, 5), (1, 3)], waiting(0, 4), Some(1)),
            ("equal shares stay", &[(0, 3), (1, 3)], waiting(0, 3), None),
            ("one more is an equal share", &[(0, 3), (0, 3)], waiting(1, 3), None),
            ("the last of the caller with the most", &[(0, 3), (0, 3), (0, 3), (1, 3)], waiting(0, 3), Some(2)),
            ("higher priorities stay", &[(0, 5), (0, 5), (0, 5)], waiting(0, 3), None),
            (
                "priority 5 with 3 running: a lower one leaves",
                &[(1, 7), (0, 5), (0, 5), (0, 5), (2, 4)],
                waiting(3, 5),
                Some(4),
            ),
            ("priority 5 with 3 running: equals stay", &[(0, 5), (0, 5), (0, 5), (1, 5)], waiting(3, 5), None),
        ];
        for (fact, sequences, next, expected) in cases {
            assert_eq!(for_waiting(&running(sequences), next), *expected, "{fact}");
        }
    }

    #[test]
    fn an_unserved_caller_takes_a_place_of_any_priority() {
        assert_eq!(for_unserved(&running(&[(0, 9), (0, 9), (1, 9)])), Some(1));
        assert_eq!(for_unserved(&running(&[(0, 9), (1, 9)])), None, "each caller has one");
    }

    #[test]
    fn a_full_cache_preempts_the_caller_with_the_most_of_the_lowest_priority() {
        let cases: &[(&str, Sequences, Option<usize>)] = &[
            ("none runs", &[], None),
            ("equal shares", &[(0, 0), (1, 0)], None),
            ("one more is an equal share", &[(0, 0), (0, 0), (1, 0)], None),
            ("the last of the most", &[(0, 0), (0, 0), (0, 0), (1, 0)], Some(2)),
            ("higher priorities stay", &[(0, 5), (0, 5), (0, 5), (1, 0)], None),
        ];
        for &(fact, sequences, expected) in cases {
            assert_eq!(for_memory(&running(sequences)), expected, "{fact}");
        }
    }

    #[test]
    fn a_slow_reader_is_preempted_first() {
        let mut slow = running(&[(0, 9), (1, 9), (2, 0)]);
        slow[1].unread = SLOW_READER_GRACE + Duration::from_millis(1);
        assert_eq!(for_waiting(&slow, &waiting(0, 5)), Some(1));
        assert_eq!(for_memory(&slow), Some(1));
        slow[1].unread = SLOW_READER_GRACE;
        assert_eq!(for_waiting(&slow, &waiting(0, 5)), Some(2));
    }
}
