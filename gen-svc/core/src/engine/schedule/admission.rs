//! The waiting sequences that start next.

use std::cmp::Reverse;
use std::time::Duration;

use super::snapshot::Waiting;

/// The wait after which a sequence may start before higher priorities.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// Returns the sequence that starts by priority: of the highest one, then of the caller with the fewest running
/// sequences, then by arrival. While a long wait is `blocked`, only callers with fewer running sequences than its
/// caller start one: the next sequence would take the memory for which it waits.
pub fn by_priority(queue: &[Waiting], blocked: Option<Waiting>) -> Option<Waiting> {
    let may_start = |next: &&Waiting| blocked.is_none_or(|blocked| next.of_caller < blocked.of_caller);
    queue.iter().filter(may_start).min_by_key(|next| (Reverse(next.priority), next.of_caller, next.at)).copied()
}

/// Returns the long wait that starts next, whatever its priority: of the caller with the fewest running sequences,
/// then in turns of callers, each with its longest wait.
pub fn by_long_wait(queue: &[Waiting]) -> Option<Waiting> {
    let waits_long = queue.iter().filter(|next| next.waited > LONG_WAIT);
    waits_long.min_by_key(|next| (next.of_caller, next.last_turn, Reverse(next.waited), next.at)).copied()
}

/// Returns true if a caller without a running sequence has waited long. A sequence is then preempted for it whatever
/// the priorities.
pub(super) fn has_unserved(queue: &[Waiting]) -> bool {
    by_long_wait(queue).is_some_and(|next| next.of_caller == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sequence that has waited for `waited` seconds.
    fn waiting(at: usize, priority: i32, of_caller: usize, waited: u64) -> Waiting {
        Waiting { at, priority, of_caller, waited: Duration::from_secs(waited), last_turn: 0 }
    }

    #[track_caller]
    fn check(fact: &str, next: Option<Waiting>, expected: Option<usize>) {
        assert_eq!(next.map(|next| next.at), expected, "{fact}");
    }

    #[test]
    fn the_highest_priority_starts_then_the_caller_with_the_fewest() {
        let cases: &[(&str, &[Waiting], Option<usize>)] = &[
            ("an empty queue starts none", &[], None),
            ("arrival decides between equals", &[waiting(0, 0, 1, 0), waiting(1, 0, 1, 9)], Some(0)),
            ("fewer running come first", &[waiting(0, 0, 3, 0), waiting(1, 0, 2, 0)], Some(1)),
            ("priority comes before shares", &[waiting(0, 5, 3, 0), waiting(1, 4, 0, 0)], Some(0)),
        ];
        for (fact, queue, expected) in cases {
            check(fact, by_priority(queue, None), *expected);
        }
    }

    #[test]
    fn a_blocked_long_wait_keeps_its_memory_from_callers_with_as_many() {
        let blocked = Some(waiting(9, 0, 2, 3));
        check("as many running", by_priority(&[waiting(0, 5, 2, 0)], blocked), None);
        check("fewer running", by_priority(&[waiting(0, 5, 2, 0), waiting(1, 0, 1, 0)], blocked), Some(1));
    }

    #[test]
    fn long_waits_start_in_turns_of_callers_whatever_their_priorities() {
        let with_turn = |last_turn, next| Waiting { last_turn, ..next };
        let cases: &[(&str, &[Waiting], Option<usize>)] = &[
            ("two seconds are not long", &[waiting(0, 0, 0, 2)], None),
            ("the longest wait of equals", &[waiting(0, 9, 1, 3), waiting(1, 0, 1, 4)], Some(1)),
            ("fewer running come first", &[waiting(0, 9, 1, 8), waiting(1, 0, 0, 3)], Some(1)),
            ("the earlier last turn", &[with_turn(2, waiting(0, 9, 1, 8)), with_turn(1, waiting(1, 0, 1, 3))], Some(1)),
        ];
        for (fact, queue, expected) in cases {
            check(fact, by_long_wait(queue), *expected);
        }
    }

    #[test]
    fn a_caller_is_unserved_without_a_running_sequence_after_a_long_wait() {
        assert!(has_unserved(&[waiting(0, -5, 0, 3)]));
        assert!(!has_unserved(&[waiting(0, 5, 0, 1)]), "it waits for a short time");
        assert!(!has_unserved(&[waiting(0, 5, 1, 3)]), "one of its sequences runs");
    }
}
