//! The results of tasks.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// The failures of a worker that are printed.
const PRINTED: usize = 5;

/// Results of tasks, with their times and different answers.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    failed: usize,
    times: Vec<Duration>,
    /// The kinds of tasks, each with its different answers.
    answers: BTreeSet<(usize, String)>,
}

impl Figures {
    pub(crate) fn answer(&mut self, kind: usize, text: String, time: Duration) {
        self.times.push(time);
        self.answers.insert((kind, text));
    }

    /// Counts a failure, and prints the first ones.
    pub(crate) fn failure(&mut self, text: &str) {
        self.failed += 1;
        if self.failed <= PRINTED {
            eprintln!("{text}");
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.times.extend(other.times);
        self.answers.extend(other.answers);
    }

    /// Returns the number of tasks that succeeded.
    pub(crate) fn done(&self) -> usize {
        self.times.len()
    }

    fn kinds(&self) -> usize {
        self.answers.iter().map(|(kind, _)| kind).collect::<BTreeSet<_>>().len()
    }

    /// Returns true if no task failed, and equal tasks have equal answers.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && !self.times.is_empty() && self.answers.len() == self.kinds()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.times.clone();
        times.sort();
        let at = |part: f64| times.get((times.len() as f64 * part) as usize).or(times.last());
        let [median, longest] = [0.5, 1.0].map(|part| at(part).map_or(0.0, Duration::as_secs_f64));
        let (done, failed, answers, kinds) = (times.len(), self.failed, self.answers.len(), self.kinds());
        write!(f, "{done} tasks done, {failed} failed, {answers} different answers of {kinds} different tasks, ")?;
        write!(f, "median {median:.2} s, longest {longest:.2} s")
    }
}
