//! Chooses the sequences of the next step and their token budgets.
//!
//! Sequences are ordered by priority, then by arrival. Every running sequence in decode takes part
//! with one token. The rest of a step's budget goes to prompts in equal shares; the unused share of
//! a short prompt goes to the others. When the KV cache is full, sequences with slow readers are
//! preempted first, then the lowest-ranked one. A preempted sequence returns to the queue, and may
//! find its blocks again.

use std::time::{Duration, Instant};

use super::command::Job;
use super::config::EngineLimits;
use super::requests::{RequestState, Requests};
use super::sequence::Sequence;
use crate::cache::BlockPool;

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
    /// Preemptions since the start.
    pub(super) preemptions: u64,
}

impl Scheduler {
    pub(super) fn new(pool: BlockPool, limits: EngineLimits) -> Self {
        Self { pool, requests: Requests::default(), running: Vec::new(), waiting: Vec::new(), limits, preemptions: 0 }
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

    /// Starts waiting sequences while there is room, in the order of rank.
    pub(super) fn admit(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            let state = self.requests.get(self.waiting[at].request);
            if self.waiting[at].awaits_sibling(state) || state.sink.is_full() {
                at += 1;
                continue;
            }
            if self.running.len() >= self.limits.max_running {
                if !self.preempt_for(at) {
                    return;
                }
                continue;
            }
            let mut sequence = self.waiting.remove(at);
            sequence.find_cached(self.requests.get(sequence.request), &mut self.pool);
            if !self.fits(&sequence) {
                sequence.release(&mut self.pool);
                self.waiting.insert(at, sequence);
                if !self.preempt_for(at) {
                    return;
                }
                continue;
            }
            sequence.start(self.requests.get_mut(sequence.request));
            insert(&mut self.running, sequence);
        }
    }

    /// Returns true if the pool has the sequence's blocks besides the blocks that the running
    /// sequences still need, and one more for each.
    fn fits(&self, sequence: &Sequence) -> bool {
        let missing = |sequence: &Sequence| sequence.table.missing_blocks(sequence.length() + 1);
        let promised: usize = self.running.iter().map(|running| missing(running) + 1).sum();
        self.running.is_empty() || missing(sequence) + promised <= self.pool.available()
    }

    /// Preempts a running sequence for the `at`-th waiting one: one with a slow reader, or the last
    /// if its priority is lower. The preempted sequence may be queued before the `at`-th, and then
    /// runs first. Returns true if a sequence was preempted.
    fn preempt_for(&mut self, at: usize) -> bool {
        if self.preempt_slow_reader() {
            return true;
        }
        let priority = self.waiting[at].priority();
        let is_lower = self.running.last().is_some_and(|last| last.priority() < priority);
        if is_lower {
            self.preempt_last();
        }
        is_lower
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
    pub(super) fn plan(&mut self) -> Vec<usize> {
        while self.lacks_memory() && self.preempt_slow_reader() {}
        let mut counts = vec![0; self.running.len()];
        for (at, count) in counts.iter_mut().enumerate() {
            let decodes = |sequence: &Sequence| self.is_ready(sequence) && sequence.pending() == 1;
            if self.running.get(at).is_some_and(decodes) && self.make_room(at, 1) {
                *count = 1;
            }
        }
        let mut left = self.limits.prefill_chunk;
        let prompts = self.prompts();
        for (done, &at) in prompts.iter().enumerate() {
            let share = left.div_ceil(prompts.len() - done);
            let Some(sequence) = self.running.get(at) else { continue };
            let limit = sequence.step_limit(self.requests.get(sequence.request));
            let count = limit.min(share).min(left);
            if count > 0 && self.make_room(at, count) {
                counts[at] = count;
                left -= count;
            }
        }
        counts.truncate(self.running.len());
        counts
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

    /// Returns true if the request's channel has slots for the events of a step.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        !self.requests.get(sequence.request).sink.is_full()
    }
}

fn insert(list: &mut Vec<Sequence>, sequence: Sequence) {
    let at = list.partition_point(|other| other.rank() <= sequence.rank());
    list.insert(at, sequence);
}
