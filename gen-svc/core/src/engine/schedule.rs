//! Moves sequences between the queue and the running ones, and reserves their blocks.
//!
//! The rules are pure functions over a [`snapshot`]: [`admission`] chooses the sequences that start, [`preemption`]
//! the ones that leave, and [`batch`] the ones of a step with their tokens. The README of this crate has a table of
//! all situations.

pub(super) mod admission;
mod batch;
pub(super) mod long_waits;
mod preemption;
mod prompt_rows;
pub(super) mod snapshot;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_images::PreparedImage;

use self::long_waits::LongWaits;
pub(super) use self::prompt_rows::MAX_PROMPT_ROWS;
use self::snapshot::{Running, Waiting};
use super::config::EngineLimits;
use super::requests::{RequestId, RequestState, Requests};
use super::sequence::{Sequence, SequenceId};
use crate::answer::Answer;
use crate::cache::{BlockPool, Digest};
use crate::error::StepError;
use crate::models::Backend;

/// How long fewer sequences run after a step that exceeded the device's memory.
const REDUCED_FOR: Duration = Duration::from_secs(30);

/// The requests, and their sequences in the order of rank.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) pool: BlockPool,
    pub(super) requests: Requests,
    pub(super) running: Vec<Sequence>,
    waiting: Vec<Sequence>,
    limits: EngineLimits,
    /// The most tokens that a step drafts for a sequence.
    max_drafted: usize,
    /// The most tokens of a sequence that is not long.
    long_after: Option<usize>,
    long_waits: LongWaits,
    /// Preemptions since the start.
    pub(super) preemptions: u64,
    /// The last time that a sequence of an interactive caller was ready.
    last_interactive: Option<Instant>,
    /// The running sequences that were left when a step exceeded the device's memory, and the time.
    reduced: Option<(usize, Instant)>,
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

impl Scheduler {
    /// Creates a scheduler for steps of `backend`.
    pub(super) fn new(pool: BlockPool, limits: EngineLimits, backend: &dyn Backend) -> Self {
        Self {
            pool,
            requests: Requests::default(),
            running: Vec::new(),
            waiting: Vec::new(),
            limits,
            // A state cannot forget a rejected token.
            max_drafted: if backend.shape().state_bytes > 0 { 0 } else { backend.max_drafted() },
            long_after: backend.long_after(),
            long_waits: LongWaits::default(),
            preemptions: 0,
            last_interactive: None,
            reduced: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Returns true if nothing keeps a step from being computed: all running sequences are ready, or none runs
    /// and one waits that could start. A sequence that is not ready may hold the memory of the others.
    pub(super) fn must_compute(&self) -> bool {
        match self.running.is_empty() {
            true => !self.queue().is_empty(),
            false => self.snapshot().iter().all(Running::is_ready),
        }
    }

    /// Adds a request. Its sequences wait.
    pub(super) fn enqueue(&mut self, answer: Answer) {
        let id = self.requests.add(answer);
        for sequence in Sequence::of(id, &self.requests.get(id).answer.request, self.long_after) {
            insert(&mut self.waiting, sequence);
        }
    }

    /// Removes the sequences for which `ended` returns true, and releases their blocks.
    pub(super) fn remove(&mut self, mut ended: impl FnMut(&mut Sequence, &mut RequestState) -> bool) {
        let settled = self.settle(|sequence, state, _| Ok(ended(sequence, state)));
        debug_assert!(settled.is_ok(), "no call fails");
    }

    /// As [`remove`](Self::remove), with the pool of blocks. After an error, no further sequence is asked.
    ///
    /// # Errors
    /// The first of `ended`.
    pub(super) fn settle(
        &mut self,
        mut ended: impl FnMut(&mut Sequence, &mut RequestState, &mut BlockPool) -> Result<bool, StepError>,
    ) -> Result<(), StepError> {
        let Self { running, waiting, pool, requests, .. } = self;
        let mut settled = Ok(());
        for list in [running, waiting] {
            list.retain_mut(|sequence| {
                if settled.is_err() {
                    return true;
                }
                let ended = ended(sequence, requests.get_mut(sequence.request), pool);
                let is_ended = ended.unwrap_or_else(|error| {
                    settled = Err(error);
                    false
                });
                if is_ended {
                    sequence.release(pool);
                    requests.release_sequence(sequence.request);
                }
                !is_ended
            });
        }
        settled
    }

    /// Returns a sequence that waits or runs, and its request.
    pub(super) fn find(&self, id: SequenceId) -> Option<(&Sequence, &RequestState)> {
        let sequence = self.running.iter().chain(&self.waiting).find(|sequence| sequence.id() == id)?;
        Some((sequence, self.requests.get(sequence.request)))
    }

    /// As [`find`](Self::find), to be changed.
    pub(super) fn find_mut(&mut self, id: SequenceId) -> Option<(&mut Sequence, &mut RequestState)> {
        let Self { running, waiting, requests, .. } = self;
        let sequence = running.iter_mut().chain(waiting).find(|sequence| sequence.id() == id)?;
        let state = requests.get_mut(sequence.request);
        Some((sequence, state))
    }

    /// Returns the image that the running sequence of the highest rank waits for, or None if none waits.
    pub(super) fn wanted_image(&self) -> Option<Wanted> {
        self.running.iter().find_map(|sequence| {
            let state = self.requests.get(sequence.request);
            let span = sequence.missing_image(state)?;
            let image = Arc::clone(state.answer.request.media.as_ref()?.images.get(span.image)?);
            Some(Wanted { request: sequence.request, index: span.image, digest: span.digest, image })
        })
    }

    /// Returns the running sequences with a count above zero, to be changed, and their requests.
    pub(super) fn taking_part<'a>(
        &'a mut self,
        counts: &'a [usize],
    ) -> impl Iterator<Item = (&'a mut Sequence, &'a RequestState)> {
        let Self { running, requests, .. } = self;
        let taking_part = running.iter_mut().zip(counts).filter(|(_, count)| **count > 0);
        taking_part.map(|(sequence, _)| {
            let state = requests.get(sequence.request);
            (sequence, state)
        })
    }

    /// Ends sequences with an error.
    pub(super) fn fail_sequences(&mut self, ids: &[SequenceId], error: &StepError) {
        self.remove(|sequence, state| ids.contains(&sequence.id()) && sequence.fail(state, error));
    }

    /// Ends all sequences of a request with an error.
    pub(super) fn fail(&mut self, request: RequestId, error: &StepError) {
        self.remove(|sequence, state| sequence.request == request && sequence.fail(state, error));
    }

    /// Starts waiting sequences while there is room.
    pub(super) fn admit(&mut self) {
        while !self.waiting.is_empty() && self.admit_next() {}
    }

    /// Starts a sequence, or preempts one for it. Returns false if no rule allows either.
    fn admit_next(&mut self) -> bool {
        let queue = self.queue();
        // While no place is free, a sequence that preempts another takes nothing from a long wait.
        let is_turn = self.long_waits.starts_until_next == 0 && self.has_place();
        let long_wait = if is_turn { admission::by_long_wait(&queue) } else { None };
        if long_wait.is_some_and(|next| self.start_or_preempt(&next, true)) {
            return true;
        }
        let next = admission::by_priority(&queue, long_wait);
        if next.is_some_and(|next| self.start_or_preempt(&next, false)) {
            return true;
        }
        let is_preempted = admission::has_unserved(&queue) && self.preempt(preemption::for_unserved(&self.snapshot()));
        if is_preempted {
            // The preempted sequence may have a higher priority, and would start again.
            self.long_waits.starts_until_next = 0;
        }
        is_preempted
    }

    /// Starts a waiting sequence if there is room, or preempts one for it. The preempted one may be queued before
    /// it, and then starts first. Returns false if neither is possible.
    fn start_or_preempt(&mut self, next: &Waiting, is_long_wait: bool) -> bool {
        self.start(next.at, is_long_wait) || self.preempt(preemption::for_waiting(&self.snapshot(), next))
    }

    /// Returns the waiting sequences that could start.
    fn queue(&self) -> Vec<Waiting> {
        let (callers, now) = (self.callers(), Instant::now());
        let of = |(at, sequence): (usize, &Sequence)| {
            let state = self.requests.get(sequence.request);
            let is_ready = !sequence.awaits_sibling(state) && !state.answer.is_full();
            is_ready.then(|| Waiting {
                at,
                priority: sequence.priority(),
                of_caller: callers.get(&*sequence.caller).map_or(0, |(_, count)| *count),
                waited: sequence.waited(now),
                last_turn: self.long_waits.last_turn(&sequence.caller),
            })
        };
        self.waiting.iter().enumerate().filter_map(of).collect()
    }

    /// Returns the running sequences.
    fn snapshot(&self) -> Vec<Running> {
        let (callers, now) = (self.callers(), Instant::now());
        let of = |sequence: &Sequence| {
            let state = self.requests.get(sequence.request);
            let (caller, of_caller) = callers[&*sequence.caller];
            Running {
                priority: sequence.priority(),
                caller,
                of_caller,
                unread: state.answer.unread(now),
                pending: sequence.pending(),
                available: self.available(sequence),
                last_step: sequence.last_step,
                reports_prompt: sequence.reports_prompt(state),
                images: sequence.whole_images(state),
            }
        };
        self.running.iter().map(of).collect()
    }

    /// Returns a number for each caller with running sequences, and the number of these.
    fn callers(&self) -> HashMap<&str, (usize, usize)> {
        let mut callers = HashMap::new();
        for sequence in &self.running {
            let number = callers.len();
            callers.entry(&*sequence.caller).or_insert((number, 0)).1 += 1;
        }
        callers
    }

    /// Returns the tokens of a running sequence that steps can compute now. 0 if its channel has no slots for the
    /// events of a step, or its next token waits for an image.
    fn available(&self, sequence: &Sequence) -> usize {
        let state = self.requests.get(sequence.request);
        if state.answer.is_full() { 0 } else { sequence.available(state) }
    }

    /// Starts the `at`-th waiting sequence if there is room: after a long wait with the highest priority.
    fn start(&mut self, at: usize, is_long_wait: bool) -> bool {
        if !self.has_place() || !self.pool.has_slot() {
            return false;
        }
        let mut sequence = self.waiting.remove(at);
        sequence.find_cached(self.requests.get(sequence.request), &mut self.pool);
        if !self.fits(&sequence) || !self.pool.take_state(&mut sequence.table) {
            sequence.release(&mut self.pool);
            self.waiting.insert(at, sequence);
            return false;
        }
        self.long_waits.record_start();
        if is_long_wait {
            sequence.raise();
            let waiting = &self.waiting;
            let waits = |caller: &str| waiting.iter().any(|sequence| &*sequence.caller == caller);
            self.long_waits.record_turn(Arc::clone(&sequence.caller), waits);
        }
        sequence.start(self.requests.get_mut(sequence.request));
        insert(&mut self.running, sequence);
        true
    }

    /// Returns true if a further sequence may run. For a while after a step that exceeded the device's memory, only
    /// as many may run as were left.
    fn has_place(&self) -> bool {
        let reduced = self.reduced.filter(|(_, since)| since.elapsed() < REDUCED_FOR);
        self.running.len() < reduced.map_or(usize::MAX, |(left, _)| left).min(self.limits.max_running)
    }

    /// Preempts the lower-ranked half of the sequences with a count above zero, and removes their counts.
    /// Returns false if there is only one.
    pub(super) fn halve(&mut self, counts: &mut Vec<usize>) -> bool {
        let taking_part: Vec<usize> = (0..counts.len()).filter(|&at| counts[at] > 0).collect();
        for &at in taking_part[taking_part.len().div_ceil(2)..].iter().rev() {
            self.preempt(Some(at));
            counts.remove(at);
        }
        self.reduced = Some((self.running.len(), Instant::now()));
        taking_part.len() > 1
    }

    /// Returns true if the pool has the sequence's blocks besides the blocks that the running sequences still need, and
    /// one more for each.
    fn fits(&self, sequence: &Sequence) -> bool {
        let missing = |sequence: &Sequence| self.pool.missing_blocks(&sequence.table, sequence.length() + 1);
        let promised: usize = self.running.iter().map(|running| missing(running) + 1).sum();
        self.running.is_empty() || missing(sequence) + promised <= self.pool.available()
    }

    /// Preempts the sequence that a rule has chosen. Returns false if none was.
    fn preempt(&mut self, at: Option<usize>) -> bool {
        let Some(at) = at else { return false };
        let mut sequence = self.running.remove(at);
        sequence.preempt(self.requests.get_mut(sequence.request), &mut self.pool);
        self.preemptions += 1;
        insert(&mut self.waiting, sequence);
        true
    }

    /// Returns true if the pool lacks blocks for the next token of every sequence that is ready.
    fn lacks_memory(&self) -> bool {
        let ready = self.running.iter().filter(|sequence| self.available(sequence) > 0);
        let missing: usize =
            ready.map(|sequence| self.pool.missing_blocks(&sequence.table, sequence.length_after(1))).sum();
        missing > self.pool.available()
    }

    /// Returns how many tokens of each running sequence the next step computes, and reserves their
    /// blocks. `spent` is the part of its budget that images took.
    pub(super) fn plan(&mut self, spent: usize) -> Vec<usize> {
        let Self { running, requests, pool, .. } = self;
        for sequence in running {
            sequence.restart_if_long(requests.get_mut(sequence.request), pool);
            sequence.set_drafted(0);
        }
        while self.lacks_memory() && self.preempt(preemption::for_memory(&self.snapshot())) {}
        let (running, now) = (self.snapshot(), Instant::now());
        self.last_interactive = batch::interactive(&running).next().map(|_| now).or(self.last_interactive);
        let since_interactive = self.last_interactive.map(|last| now - last);
        let budget = self.limits.prefill_chunk.saturating_sub(spent);
        let mut counts = vec![0; running.len()];
        for (at, count) in batch::plan(&running, self.limits, budget, since_interactive) {
            if at < self.running.len() && self.make_room(at, count) {
                counts[at] = count;
                self.draft(at);
            }
        }
        counts.truncate(self.running.len());
        counts
    }

    /// Lets the backend draft tokens of the `at`-th running sequence if it is in decode and blocks for them are free.
    fn draft(&mut self, at: usize) {
        let Self { running, requests, pool, max_drafted, .. } = self;
        let sequence = &mut running[at];
        let drafted = sequence.can_draft(requests.get(sequence.request), *max_drafted);
        let positions = sequence.length_after(1 + drafted);
        if sequence.pending() == 1 && drafted > 0 && pool.reserve(&mut sequence.table, positions) {
            sequence.set_drafted(drafted);
        }
    }

    /// Reserves blocks for `count` more tokens of the `at`-th running sequence, and slots for the states to keep. Preempts
    /// lower-ranked sequences where that is needed. Returns false if the blocks are still missing.
    fn make_room(&mut self, at: usize, count: usize) -> bool {
        let positions = self.running[at].length_after(count);
        loop {
            let table = &mut self.running[at].table;
            if self.pool.reserve(table, positions) {
                self.pool.plan_saves(table, positions - count..positions);
                return true;
            }
            // Cancelling the copy changes which tokens are pending. The next step plans them.
            if self.running[at].cancel_copy(&mut self.pool) || self.running.len() - 1 == at {
                return false;
            }
            self.preempt(Some(self.running.len() - 1));
        }
    }
}

fn insert(list: &mut Vec<Sequence>, sequence: Sequence) {
    let at = list.partition_point(|other| other.rank() <= sequence.rank());
    list.insert(at, sequence);
}
