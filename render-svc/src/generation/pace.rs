//! Compares the speed of the replicas of a model: of prompts, up to the first token, and of the tokens after it.
//!
//! A replica is too slow if it took more than [`MAX_RATIO`] times as long as the median of the others in each of two
//! periods: the last two of the last minute in which others were measured too. Of two others, the faster one is the
//! median. Periods begin at the same times for all replicas, so none is compared with a time before all became slow.
//!
//! The time of the replica that is judged is the least that it can have taken: the waits of its tasks. The time of
//! the others is the most: the reading of their callers is included. So slow callers make no replica slow, and none
//! fast.

use std::ops::AddAssign;
use std::time::Duration;

/// How many times as long as the others a replica may take. The load of replicas differs.
const MAX_RATIO: f64 = 12.0;
/// Length of a period.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// The last minute.
const PERIODS: usize = 6;
/// The waits in a period from which a replica is judged, and the time from which any number of tokens is a measure.
const MIN_TIME: Duration = Duration::from_secs(1);

/// The parts of an output that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Up to the first token.
    Prompt,
    /// The tokens after it.
    Output,
}

impl Kind {
    /// Returns the time of a prompt or token that is never slow, and the number of them that is a measure.
    fn limits(self) -> (Duration, usize) {
        match self {
            Self::Prompt => (Duration::from_millis(100), 1),
            Self::Output => (Duration::from_millis(10), 10),
        }
    }
}

/// Work of a replica, and the time that it took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Prompts, or tokens of outputs.
    pub(super) parts: usize,
    /// Tokens. Those of prompts are without the cached ones.
    pub(super) tokens: usize,
    pub(super) time: Duration,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.parts += other.parts;
        self.tokens += other.tokens;
        self.time += other.time;
    }
}

/// The work of some time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measure {
    /// With the least time. Running prompts are included.
    pub(super) least: Work,
    /// With the most time.
    pub(super) most: Work,
}

/// The work of some time, by kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    prompt: Measure,
    output: Measure,
}

impl Sums {
    pub(super) fn of(&mut self, kind: Kind) -> &mut Measure {
        match kind {
            Kind::Prompt => &mut self.prompt,
            Kind::Output => &mut self.output,
        }
    }

    /// Returns how many times as long as the median of its peers this work took, or None if none is measured. Of the
    /// two kinds, returns the larger number.
    fn ratio(&self, min_time: Duration, peers: &[Self]) -> Option<f64> {
        let of_kind = |kind, own: Work, most: fn(&Self) -> Work| {
            let mut ratios: Vec<_> = peers.iter().filter_map(|peer| ratio(kind, own, most(peer))).collect();
            ratios.sort_by(|left, right| right.total_cmp(left));
            let is_measured = !own.time.is_zero() && own.time >= min_time;
            ratios.get(ratios.len().saturating_sub(1) / 2).copied().filter(|_| is_measured)
        };
        let prompt = of_kind(Kind::Prompt, self.prompt.least, |peer| peer.prompt.most);
        let output = of_kind(Kind::Output, self.output.least, |peer| peer.output.most);
        prompt.into_iter().chain(output).max_by(f64::total_cmp)
    }

    /// Returns how many times as long as its peers in the last minute this work took, if that is too slow.
    pub(super) fn slowness(&self, peers: &[Pace], period: u64) -> Option<f64> {
        let peers: Vec<_> = peers.iter().map(|peer| peer.last_minute(period)).collect();
        self.ratio(Duration::ZERO, &peers).filter(|ratio| *ratio > MAX_RATIO)
    }
}

/// Returns how many times as long as the peer a replica took, or None if the peer is not measured. Both the time of a
/// part and that of a token have to be longer: the time of a prompt has no fixed relation to its length.
fn ratio(kind: Kind, own: Work, peer: Work) -> Option<f64> {
    let (fast, least) = kind.limits();
    if peer.parts < least && peer.time < MIN_TIME {
        return None;
    }
    let each = |work: Work, count: usize| work.time.as_secs_f64().max(1e-6) / count.max(1) as f64;
    if each(own, own.parts) <= fast.as_secs_f64() {
        return Some(0.0);
    }
    let parts = each(own, own.parts) / each(peer, peer.parts);
    Some(parts.min(each(own, own.tokens) / each(peer, peer.tokens)))
}

/// The speed of a replica in the last minute, as the tasks of this service see it.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    /// Each with the number of its period.
    periods: [(u64, Sums); PERIODS],
}

impl Pace {
    /// Returns the work of a period, to add to. The last periods are kept.
    pub(super) fn at(&mut self, period: u64) -> &mut Sums {
        let kept = &mut self.periods[(period % PERIODS as u64) as usize];
        if kept.0 != period {
            *kept = (period, Sums::default());
        }
        &mut kept.1
    }

    fn get(&self, period: u64) -> Option<&Sums> {
        let kept = &self.periods[(period % PERIODS as u64) as usize];
        (kept.0 == period).then_some(&kept.1)
    }

    /// Returns the work of the minute that ends with a period.
    fn last_minute(&self, period: u64) -> Sums {
        let mut all = Sums::default();
        for sums in last_periods(period).filter_map(|period| self.get(period)) {
            for (sum, added) in [(&mut all.prompt, sums.prompt), (&mut all.output, sums.output)] {
                sum.least += added.least;
                sum.most += added.most;
            }
        }
        all
    }

    /// Returns how many times slower than its peers the replica is, if it is too slow.
    pub(super) fn slowness(&self, peers: &[Self], period: u64) -> Option<f64> {
        let mut ratios = last_periods(period).filter_map(|period| {
            let peers: Vec<_> = peers.iter().filter_map(|peer| peer.get(period)).copied().collect();
            self.get(period)?.ratio(MIN_TIME, &peers)
        });
        let slower = ratios.next()?.min(ratios.next()?);
        (slower > MAX_RATIO).then_some(slower)
    }
}

/// Returns the periods of the minute that ends with this one, the last first.
fn last_periods(period: u64) -> impl Iterator<Item = u64> {
    (0..PERIODS as u64).filter_map(move |age| period.checked_sub(age))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work of a period: its number, a kind, parts, tokens of each, and milliseconds of each.
    type Row = (u64, Kind, usize, usize, u64);

    fn pace(rows: &[Row]) -> Pace {
        let mut pace = Pace::default();
        for &(period, kind, parts, tokens, milliseconds) in rows {
            let time = Duration::from_millis(milliseconds) * parts as u32;
            let work = Work { parts, tokens: parts * tokens, time };
            let measure = pace.at(period).of(kind);
            measure.least += work;
            measure.most += work;
        }
        pace
    }

    /// Tokens of outputs in two periods, each of this time.
    fn tokens(milliseconds: u64) -> Vec<Row> {
        [6, 7].map(|period| (period, Kind::Output, 100, 1, milliseconds)).to_vec()
    }

    /// Prompts in two periods.
    fn prompts(tokens: usize, milliseconds: u64) -> Vec<Row> {
        [6, 7].map(|period| (period, Kind::Prompt, 5, tokens, milliseconds)).to_vec()
    }

    #[test]
    fn a_replica_is_slow_only_if_the_others_were_faster_in_the_same_two_periods() {
        let (output, fast, slow) = (Kind::Output, || tokens(20), || tokens(440));
        let idle_before = vec![(6, output, 20, 1, 440), (7, output, 20, 1, 440)];
        let around = vec![(4, output, 9, 1, 440), (6, output, 9, 1, 440)];
        let cases: Vec<(&str, Vec<Row>, Vec<Vec<Row>>, bool)> = vec![
            ("one of two", slow(), vec![fast()], true),
            ("two of three", slow(), vec![fast(), slow()], true),
            ("two of four", slow(), vec![fast(), slow(), fast()], true),
            ("the fast one", fast(), vec![slow(), slow()], false),
            ("one fast of four", slow(), vec![fast(), slow(), slow()], false),
            ("all", slow(), vec![slow(), slow()], false),
            ("less than 12 times", tokens(200), vec![fast()], false),
            ("the only one", slow(), vec![], false),
            ("beside idle ones", slow(), vec![vec![], vec![]], false),
            ("one period", vec![slow()[1]], vec![fast()], false),
            ("before the last period", vec![slow()[0], fast()[1]], vec![fast()], false),
            ("around an idle period", around, vec![vec![(4, output, 99, 1, 20), (6, output, 99, 1, 20)]], true),
            (
                "a minute ago",
                vec![(1, output, 9, 1, 440), (2, output, 9, 1, 440)],
                vec![vec![(1, output, 99, 1, 20), (2, output, 99, 1, 20)]],
                false,
            ),
            (
                "idle until all became slow",
                idle_before.clone(),
                vec![vec![(5, output, 500, 1, 20), (6, output, 250, 1, 30), (7, output, 20, 1, 440)]],
                false,
            ),
            (
                "beside one that is idle since all became slow",
                idle_before,
                vec![vec![(5, output, 500, 1, 20), (6, output, 250, 1, 20)]],
                false,
            ),
            ("beside few tokens", slow(), vec![vec![(6, output, 9, 1, 1), (7, output, 9, 1, 1)]], false),
            ("shorter than 10 ms", tokens(10), vec![vec![(6, output, 2000, 1, 0), (7, output, 2000, 1, 0)]], false),
            ("prompts", prompts(50, 2200), vec![prompts(50, 100)], true),
            ("long prompts beside short ones", prompts(5000, 20_000), vec![prompts(10, 50)], false),
            ("short prompts beside long ones", prompts(10, 2200), vec![prompts(5000, 20_000)], false),
            ("all prompts", prompts(50, 2200), vec![prompts(50, 2200)], false),
        ];
        for (case, own, peers, is_slow) in cases {
            let peers: Vec<_> = peers.iter().map(|rows| pace(rows)).collect();
            let slowness = pace(&own).slowness(&peers, 7);
            assert_eq!(slowness.is_some(), is_slow, "{case}: {slowness:?}");
        }
    }

    #[test]
    fn one_task_shows_that_a_replica_is_still_slow() {
        let peer = pace(&tokens(20));
        let own = |milliseconds: u64| {
            let mut sums = Sums::default();
            sums.of(Kind::Output).least = Work { parts: 5, tokens: 5, time: Duration::from_millis(5 * milliseconds) };
            sums
        };
        assert!(own(440).slowness(std::slice::from_ref(&peer), 9).is_some());
        assert!(own(30).slowness(std::slice::from_ref(&peer), 9).is_none());
        assert!(own(440).slowness(&[], 9).is_none(), "there is no other");
        assert!(own(440).slowness(&[peer], 20).is_none(), "the other one was measured minutes ago");
    }
}
