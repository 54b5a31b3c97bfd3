//! Compares the speed of the replicas of a model: of the prompt, up to the first token, and of the tokens after it.
//!
//! Only the times of waits count, so that slow callers make no replica slow, and only the other replicas decide:
//! if all are slow, none is.

use std::time::Duration;

use tokio::time::Instant;

/// How many times slower than the median of its peers a replica may be.
const MAX_RATIO: f64 = 12.0;
/// The wait that a judgement of a replica needs.
const MIN_WAIT: Duration = Duration::from_secs(5);
/// The wait from which older parts weigh half.
const WINDOW: Duration = Duration::from_secs(20);
/// The least work from which a peer's speed is known: prompt tokens of three prompts, or tokens.
const MIN_WORK: f64 = 20.0;
/// The least work of a prompt, as a number of its tokens. A short prompt costs as much as one of this length.
const MIN_PROMPT: usize = 256;
/// The times that are never slow: for a token, and for that number of prompt tokens.
const FAST: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(500));
/// The age of a peer's last token up to which its speed counts.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The speed of a replica, as the tasks of this service see it.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    prompt: Rate,
    output: Rate,
    last_token: Option<Instant>,
}

/// Work, and the wait for it in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    work: f64,
    seconds: f64,
}

/// The cause of a task's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request's turn in the replica's queue. Its length is no speed.
    Queue,
    /// The first token.
    Prompt,
    /// The next token.
    Output,
}

impl Rate {
    fn add(&mut self, work: f64, wait: Duration) {
        if self.seconds > WINDOW.as_secs_f64() {
            (self.work, self.seconds) = (self.work / 2.0, self.seconds / 2.0);
        }
        self.work += work;
        self.seconds += wait.as_secs_f64();
    }

    /// Returns the seconds per unit of work, if enough work was done.
    fn cost(self) -> Option<f64> {
        (self.work >= MIN_WORK).then(|| self.seconds / self.work)
    }
}

impl Pace {
    /// Adds a wait of a task.
    pub(super) fn wait(&mut self, phase: Phase, wait: Duration) {
        match phase {
            Phase::Queue => {}
            Phase::Prompt => self.prompt.add(0.0, wait),
            Phase::Output => self.output.add(0.0, wait),
        }
    }

    /// Adds a prompt that the replica begins to compute, without its cached tokens.
    pub(super) fn prompt(&mut self, tokens: usize) {
        self.prompt.add(tokens.max(MIN_PROMPT) as f64, Duration::ZERO);
    }

    /// Adds tokens of an output.
    pub(super) fn tokens(&mut self, count: usize) {
        self.output.add(count as f64, Duration::ZERO);
        self.last_token = Some(Instant::now());
    }

    /// Returns how many times slower than its peers the replica is, if it is too slow.
    pub(super) fn slowness(&self, peers: &[Self]) -> Option<f64> {
        let (token, prompt) = (FAST.0.as_secs_f64(), FAST.1.as_secs_f64() / MIN_PROMPT as f64);
        let prompts = ratio(self.prompt, prompt, peers.iter().map(|peer| peer.prompt));
        prompts.or_else(|| ratio(self.output, token, peers.iter().map(|peer| peer.output)))
    }

    /// Returns true if a task that ended at its deadline after this wait for its first token is the replica's fault:
    /// its peers need a small part of the time.
    pub(super) fn is_too_late(tokens: usize, wait: Duration, peers: &[Self]) -> bool {
        let is_recent = |peer: &&Self| peer.last_token.is_some_and(|last| last.elapsed() < MAX_AGE);
        let costs = peers.iter().filter(is_recent).filter_map(|peer| peer.prompt.cost()).collect();
        let expected = median(costs).map(|cost| cost * tokens.max(MIN_PROMPT) as f64);
        wait >= FAST.1 * 4 && expected.is_some_and(|expected| wait.as_secs_f64() > MAX_RATIO * expected)
    }
}

/// Returns how many times slower a replica is than the median of its peers, if that is too slow. `fast`: the seconds
/// per unit of work that are never slow.
fn ratio(own: Rate, fast: f64, peers: impl Iterator<Item = Rate>) -> Option<f64> {
    if own.seconds < MIN_WAIT.as_secs_f64() {
        return None;
    }
    let usual = median(peers.filter_map(Rate::cost).collect())?.max(1e-6);
    let cost = own.seconds / own.work.max(1e-3);
    Some(cost / usual).filter(|ratio| *ratio > MAX_RATIO && cost > fast)
}

fn median(mut costs: Vec<f64>) -> Option<f64> {
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied()
}
