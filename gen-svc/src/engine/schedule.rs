//! Chooses the sequences of the next step and their token budgets.
//!
//! The highest priority starts first; within a priority, the caller with the fewest running
//! sequences. One start of four goes to the longest wait, whatever its priority. A caller with
//! fewer running sequences may preempt the caller with the most. Running sequences are ordered by
//! priority, then by arrival. Each in decode takes part with one token; on a CPU, at most 32 do, in
//! turns. The rest of a step's budget goes to prompts in equal shares of their callers; an unused
//! share goes to the others. If a caller with few running sequences has a prompt, every other step
//! is for such callers alone, so that their first token does not wait for a step of all. For a
//! while after that, fewer sequences take part in a step, so that the next prompt of such a caller
//! waits for a shorter step. When the KV cache is full, sequences with slow readers are preempted
//! first, then the lowest-ranked one. A preempted sequence returns to the queue, and may find its
//! blocks again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_images::PreparedImage;

use super::command::Job;
use super::config::EngineLimits;
use super::requests::{RequestId, RequestState, Requests};
use super::sequence::Sequence;
use crate::cache::{BlockPool, Digest};
use crate::error::Error;

/// The wait after which a sequence may start before higher priorities.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// One of this many starts goes to the longest of the long waits.
const STARTS_PER_LONG_WAIT: u64 = 4;
/// A caller has few running sequences if another has at least this many times as many.
const EXPRESS_SHARE: usize = 4;
/// How long steps stay short after a prompt of a caller with few running sequences.
const SHORT_STEPS: Duration = Duration::from_secs(5);
/// How long fewer sequences run after a step that exceeded the device's memory.
const CROWDED: Duration = Duration::from_secs(30);
/// How long a channel must be full before its sequences are preempted for others.
const SLOW_READER_GRACE: Duration = Duration::from_secs(2);

/// The requests, and their sequences in the order of rank.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) pool: BlockPool,
    pub(super) requests: Requests,
    pub(super) running: Vec<Sequence>,
    waiting: Vec<Sequence>,
    limits: EngineLimits,
    /// Sequences that have left the queue since the start.
    starts: u64,
    /// Preemptions since the start.
    pub(super) preemptions: u64,
    /// The steps planned since the start.
    steps: u64,
    /// True if the last step was for callers with few running sequences alone.
    was_express: bool,
    /// The time of the last step for callers with few running sequences.
    last_express: Option<Instant>,
    /// The running sequences that were left when a step exceeded the device's memory, and the time.
    crowded: Option<(usize, Instant)>,
}

/// An image that a running sequence waits for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) request: RequestId,
    /// Its index in the request.
    pub(super) index: usize,
    pub(super) digest: Digest,
    pub(super) image: Arc<PreparedImage>,
}

/// The turn of the sequence with the longest wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No sequence has waited long, or it is not the turn of such.
    NotDue,
    /// It started, or another was preempted for it.
    Taken,
    /// There is no room for it.
    Blocked,
}

impl Scheduler {
    pub(super) fn new(pool: BlockPool, limits: EngineLimits) -> Self {
        Self {
            pool,
            requests: Requests::default(),
            running: Vec::new(),
            waiting: Vec::new(),
            limits,
            starts: 0,
            preemptions: 0,
            steps: 0,
            was_express: false,
            last_express: None,
            crowded: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Adds a request. Its sequences wait.
    pub(super) fn enqueue(&mut self, job: Job) {
        let id = self.requests.add(job);
        for sequence in Sequence::of(id, &self.requests.get(id).request) {
            insert(&mut self.waiting, sequence);
        }
    }

    /// Removes the sequences for which `ended` returns true, and releases their blocks.
    pub(super) fn remove(&mut self, mut ended: impl FnMut(&mut Sequence, &mut RequestState) -> bool) {
        let Self { running, waiting, pool, requests, .. } = self;
        for list in [running, waiting] {
            list.retain_mut(|sequence| {
                let ended = ended(sequence, requests.get_mut(sequence.request));
                if ended {
                    sequence.release(pool);
                    requests.release_sequence(sequence.request);
                }
                !ended
            });
        }
    }

    /// Returns the image that the running sequence of the highest rank waits for, or None if none waits.
    pub(super) fn wanted_image(&self) -> Option<Wanted> {
        self.running.iter().find_map(|sequence| {
            let state = self.requests.get(sequence.request);
            let span = sequence.missing_image(state)?;
            let image = Arc::clone(state.request.media.as_ref()?.images.get(span.image)?);
            Some(Wanted { request: sequence.request, index: span.image, digest: span.digest, image })
        })
    }

    /// Ends all sequences of a request with an error.
    pub(super) fn fail(&mut self, request: RequestId, error: &Error) {
        self.remove(|sequence, state| sequence.request == request && sequence.fail(state, error));
    }

    /// Starts waiting sequences while there is room.
    pub(super) fn admit(&mut self) {
        loop {
            match self.start_long_wait() {
                Turn::Taken => {}
                // The next sequence would take the memory for which this one waits.
                Turn::Blocked => return,
                Turn::NotDue if self.start_next() => {}
                Turn::NotDue => return,
            }
        }
    }

    /// Starts the sequence with the longest wait, if one has waited long and it is the turn of such.
    fn start_long_wait(&mut self) -> Turn {
        if !self.starts.is_multiple_of(STARTS_PER_LONG_WAIT) {
            return Turn::NotDue;
        }
        let now = Instant::now();
        let waits_long = self.ready().filter(|(_, sequence)| sequence.waits_longer_than(LONG_WAIT, now));
        let Some((at, _)) = waits_long.min_by_key(|(_, sequence)| sequence.waits_since()) else {
            return Turn::NotDue;
        };
        if self.start(at, true) || self.preempt_for(at) { Turn::Taken } else { Turn::Blocked }
    }

    /// Starts the next sequence by priority and by the shares of callers. Returns true if it started,
    /// or another was preempted for it.
    fn start_next(&mut self) -> bool {
        let running = self.running_by_caller();
        let count = |sequence: &Sequence| running.get(&*sequence.caller).copied().unwrap_or(0);
        let next = self.ready().min_by_key(|(at, sequence)| (Reverse(sequence.priority()), count(sequence), *at));
        let Some((at, _)) = next else { return false };
        self.start(at, false) || self.preempt_for(at)
    }

    /// Returns the waiting sequences that could start, with their places in the queue.
    fn ready(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        self.waiting.iter().enumerate().filter(|(_, sequence)| {
            let state = self.requests.get(sequence.request);
            !sequence.awaits_sibling(state) && !state.sink.is_full()
        })
    }

    /// Starts the `at`-th waiting sequence if there is room. `is_raised`: with the highest priority.
    fn start(&mut self, at: usize, is_raised: bool) -> bool {
        if self.running.len() >= self.max_running() {
            return false;
        }
        let mut sequence = self.waiting.remove(at);
        sequence.find_cached(self.requests.get(sequence.request), &mut self.pool);
        if !self.fits(&sequence) {
            sequence.release(&mut self.pool);
            self.waiting.insert(at, sequence);
            return false;
        }
        if is_raised {
            sequence.raise();
        }
        self.starts += 1;
        sequence.start(self.requests.get_mut(sequence.request));
        insert(&mut self.running, sequence);
        true
    }

    /// Returns the most sequences that may run. After a step that exceeded the device's memory, this is
    /// the number that was left, for a while.
    fn max_running(&self) -> usize {
        let crowded = self.crowded.filter(|(_, since)| since.elapsed() < CROWDED);
        crowded.map_or(self.limits.max_running, |(left, _)| left.min(self.limits.max_running))
    }

    /// Preempts the lower-ranked half of the sequences with a count above zero, and removes their counts.
    /// Returns false if there is only one.
    pub(super) fn halve(&mut self, counts: &mut Vec<usize>) -> bool {
        let taking_part: Vec<usize> = (0..counts.len()).filter(|&at| counts[at] > 0).collect();
        for &at in taking_part[taking_part.len().div_ceil(2)..].iter().rev() {
            self.preempt(at);
            counts.remove(at);
        }
        self.crowded = Some((self.running.len(), Instant::now()));
        taking_part.len() > 1
    }

    /// Returns the number of running sequences of each caller.
    fn running_by_caller(&self) -> HashMap<&str, usize> {
        let mut counts = HashMap::new();
        self.running.iter().for_each(|sequence| *counts.entry(&*sequence.caller).or_default() += 1);
        counts
    }

    /// Returns true if the pool has the sequence's blocks besides the blocks that the running
    /// sequences still need, and one more for each.
    fn fits(&self, sequence: &Sequence) -> bool {
        let missing = |sequence: &Sequence| sequence.table.missing_blocks(sequence.length() + 1);
        let promised: usize = self.running.iter().map(|running| missing(running) + 1).sum();
        self.running.is_empty() || missing(sequence) + promised <= self.pool.available()
    }

    /// Preempts a running sequence for the `at`-th waiting one. A sequence with a slow reader is
    /// preempted first. Without one, it is the last sequence if its priority is lower, else one of
    /// a caller with more than its share. The preempted sequence may be queued before the `at`-th,
    /// and then runs first. Returns true if a sequence was preempted.
    fn preempt_for(&mut self, at: usize) -> bool {
        if self.preempt_slow_reader() {
            return true;
        }
        let priority = self.waiting[at].priority();
        let is_lower = self.running.last().is_some_and(|last| last.priority() < priority);
        let preempted = if is_lower { self.running.len().checked_sub(1) } else { self.over_share(&self.waiting[at]) };
        if let Some(preempted) = preempted {
            self.preempt(preempted);
        }
        preempted.is_some()
    }

    /// Returns the last running sequence, of the caller with the most, among those whose priority is
    /// not higher than the waiting one's. Callers that would then have fewer than the waiting
    /// sequence's caller keep theirs.
    fn over_share(&self, waiting: &Sequence) -> Option<usize> {
        let counts = self.running_by_caller();
        let own = counts.get(&*waiting.caller).copied().unwrap_or(0);
        let count = |sequence: &Sequence| counts.get(&*sequence.caller).copied().unwrap_or(0);
        let may_go = |sequence: &&Sequence| sequence.priority() <= waiting.priority() && count(sequence) > own + 1;
        let most = self.running.iter().filter(may_go).map(count).max()?;
        self.running.iter().rposition(|sequence| may_go(&sequence) && count(sequence) == most)
    }

    /// Preempts the last sequence whose channel has been full for a while. Returns false if none
    /// has.
    fn preempt_slow_reader(&mut self) -> bool {
        let now = Instant::now();
        let is_slow =
            |sequence: &Sequence| self.requests.get(sequence.request).sink.is_full_for(SLOW_READER_GRACE, now);
        let slow = self.running.iter().rposition(is_slow);
        if let Some(at) = slow {
            self.preempt(at);
        }
        slow.is_some()
    }

    fn preempt_last(&mut self) {
        if let Some(last) = self.running.len().checked_sub(1) {
            self.preempt(last);
        }
    }

    fn preempt(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        sequence.preempt(self.requests.get(sequence.request), &mut self.pool);
        self.preemptions += 1;
        insert(&mut self.waiting, sequence);
    }

    /// Returns true if the pool lacks blocks for the next token of every sequence that is not slow.
    fn lacks_memory(&self) -> bool {
        let ready = self.running.iter().filter(|sequence| self.is_ready(sequence));
        let missing: usize = ready.map(|sequence| sequence.table.missing_blocks(sequence.length_after(1))).sum();
        missing > self.pool.available()
    }

    /// Returns how many tokens of each running sequence the next step computes, and reserves their
    /// blocks.
    /// `spent` is the part of its budget that images took.
    pub(super) fn plan(&mut self, spent: usize) -> Vec<usize> {
        while self.lacks_memory() && self.preempt_slow_reader() {}
        self.steps += 1;
        let express = if self.was_express { None } else { self.express_callers() };
        self.was_express = express.is_some();
        if express.is_some() {
            self.last_express = Some(Instant::now());
            let counts = self.plan_for(express.as_deref(), spent);
            if counts.iter().any(|count| *count > 0) {
                return counts;
            }
        }
        self.plan_for(None, spent)
    }

    /// Plans a step of these callers. None: of all.
    fn plan_for(&mut self, callers: Option<&[Arc<str>]>, spent: usize) -> Vec<usize> {
        let takes_part = |sequence: &Sequence| callers.is_none_or(|callers| callers.contains(&sequence.caller));
        let mut counts = vec![0; self.running.len()];
        for at in self.decodes(takes_part) {
            if at < self.running.len() && self.make_room(at, 1) {
                counts[at] = 1;
                self.running[at].last_step = self.steps;
            }
        }
        let mut left = self.limits.prefill_chunk.saturating_sub(spent);
        let mut prompts = self.prompts_by_caller();
        prompts.retain(|prompts| prompts.first().is_some_and(|&at| takes_part(&self.running[at])));
        for (done, of_caller) in prompts.iter().enumerate() {
            let share = left.div_ceil(prompts.len() - done);
            left -= self.plan_prompts(of_caller, share.min(left), &mut counts);
        }
        counts.truncate(self.running.len());
        counts
    }

    /// Returns the sequences in decode that the next step computes, in the order of rank: the highest
    /// priorities, then those whose last step is the longest ago.
    fn decodes(&self, takes_part: impl Fn(&Sequence) -> bool) -> Vec<usize> {
        let decodes = |at: &usize| {
            let sequence = &self.running[*at];
            takes_part(sequence) && self.is_ready(sequence) && sequence.pending() == 1
        };
        let mut chosen: Vec<usize> = (0..self.running.len()).filter(decodes).collect();
        let most = self.max_decodes();
        if chosen.len() > most {
            chosen.sort_by_key(|&at| (Reverse(self.running[at].priority()), self.running[at].last_step, at));
            chosen.truncate(most);
            chosen.sort_unstable();
        }
        chosen
    }

    /// Returns the most sequences in decode that the next step computes.
    fn max_decodes(&self) -> usize {
        let is_shared = self.last_express.is_some_and(|last| last.elapsed() < SHORT_STEPS);
        if is_shared { self.limits.max_shared_decodes } else { self.limits.max_decodes }
    }

    /// Returns the callers with a prompt and few running sequences: at most one for
    /// [`EXPRESS_SHARE`] of the caller with the most. None if there is no such caller.
    fn express_callers(&self) -> Option<Vec<Arc<str>>> {
        let counts = self.running_by_caller();
        let most = counts.values().copied().max()?;
        let has_few = |caller: &str| counts.get(caller).is_some_and(|count| count * EXPRESS_SHARE <= most);
        let prompts = self.prompts().into_iter().map(|at| &self.running[at].caller);
        let callers: Vec<_> = prompts.filter(|caller| has_few(caller)).cloned().collect();
        (!callers.is_empty()).then_some(callers)
    }

    /// Gives the prompts of one caller equal shares of `budget`. Returns the number of tokens that
    /// they use.
    fn plan_prompts(&mut self, prompts: &[usize], budget: usize, counts: &mut [usize]) -> usize {
        let mut left = budget;
        for (done, &at) in prompts.iter().enumerate() {
            let share = left.div_ceil(prompts.len() - done);
            let Some(sequence) = self.running.get(at) else { continue };
            let limit = sequence.step_limit(self.requests.get(sequence.request));
            let count = sequence.whole_spans(self.requests.get(sequence.request), limit.min(share).min(left));
            if count > 0 && self.make_room(at, count) {
                counts[at] = count;
                left = left.saturating_sub(count);
            }
        }
        budget - left
    }

    /// Returns the prompts of each caller, the caller with the fewest tokens first.
    fn prompts_by_caller(&self) -> Vec<Vec<usize>> {
        let mut callers: Vec<(&str, Vec<usize>)> = Vec::new();
        for at in self.prompts() {
            let caller = &*self.running[at].caller;
            match callers.iter_mut().find(|(known, _)| *known == caller) {
                Some((_, prompts)) => prompts.push(at),
                None => callers.push((caller, vec![at])),
            }
        }
        callers.sort_by_key(|(_, prompts)| prompts.iter().map(|&at| self.running[at].pending()).sum::<usize>());
        callers.into_iter().map(|(_, prompts)| prompts).collect()
    }

    /// Returns the running sequences in prefill, the shortest rest first.
    fn prompts(&self) -> Vec<usize> {
        let is_prompt = |at: &usize| self.is_ready(&self.running[*at]) && self.running[*at].pending() > 1;
        let mut prompts: Vec<usize> = (0..self.running.len()).filter(is_prompt).collect();
        prompts.sort_by_key(|&at| self.running[at].pending());
        prompts
    }

    /// Reserves blocks for `count` more tokens of the `at`-th running sequence. Preempts
    /// lower-ranked sequences where that is needed. Returns false if the blocks are still missing.
    fn make_room(&mut self, at: usize, count: usize) -> bool {
        let positions = self.running[at].length_after(count);
        loop {
            if self.pool.reserve(&mut self.running[at].table, positions) {
                return true;
            }
            if self.running.len() - 1 == at {
                return false;
            }
            self.preempt_last();
        }
    }

    /// Returns true if the request's channel has slots for the events of a step, and the next token
    /// waits for no image.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let state = self.requests.get(sequence.request);
        !state.sink.is_full() && sequence.is_available(state)
    }
}

fn insert(list: &mut Vec<Sequence>, sequence: Sequence) {
    let at = list.partition_point(|other| other.rank() <= sequence.rank());
    list.insert(at, sequence);
}
