//! Chooses the sequences of the next step and their token budgets.
//!
//! The highest priority starts first; within a priority, the caller with the fewest running
//! sequences. One start of four goes to a long wait, whatever its priority, in turns of callers. A caller with
//! fewer running sequences may preempt the caller with the most: one without any may do so whatever the
//! priorities, after a long wait. Running sequences are ordered by
//! priority, then by arrival. Each in decode takes part with one token; of the kernels' steps, at most 32
//! do, in turns of their callers. The rest of a step's budget goes to prompts in equal shares of their
//! callers; an unused share goes to the others. If a caller with few running sequences has a prompt,
//! steps are for such callers alone until they have computed a chunk, so that their first token does
//! not wait for steps of all. While such a caller is active, and for a while after that, fewer
//! sequences and shorter chunks of the others take part in a step, so that its tokens and its next
//! prompt wait for shorter steps. When the KV cache is full, sequences with slow readers are
//! preempted first, then the last of the caller with the most, then the lowest-ranked one. A
//! preempted sequence returns to the queue, and may find its blocks again.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_images::PreparedImage;

use super::config::EngineLimits;
use super::long_waits::LongWaits;
use super::prompt_rows::PromptRows;
use super::requests::{RequestId, RequestState, Requests};
use super::sequence::{Sequence, SequenceId};
use super::shares;
use crate::answer::Answer;
use crate::cache::{BlockPool, Digest};
use crate::error::StepError;
use crate::models::Backend;

/// The wait after which a sequence may start before higher priorities.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// One of this many starts goes to a long wait.
const STARTS_PER_LONG_WAIT: u64 = 4;
/// How long steps stay short after a caller with few running sequences was active.
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
    /// The most tokens that a step drafts for a sequence.
    max_drafted: usize,
    /// The most tokens of a sequence that is not long.
    long_after: Option<usize>,
    /// The starts until it is the turn of the longest wait.
    until_long_wait: u64,
    long_waits: LongWaits,
    /// Preemptions since the start.
    pub(super) preemptions: u64,
    /// The steps planned since the start.
    steps: u64,
    /// The tokens of the steps for callers with few running sequences alone, since the last step of
    /// all.
    express_tokens: usize,
    /// The last time that a caller with few running sequences was active.
    last_few: Option<Instant>,
    /// The running sequences that were left when a step exceeded the device's memory, and the time.
    crowded: Option<(usize, Instant)>,
}

/// A step that is planned.
#[derive(Debug)]
struct Plan {
    /// The tokens of each running sequence.
    counts: Vec<usize>,
    /// The rows for log-probabilities of prompts that are left.
    rows: PromptRows,
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

/// The turn of a sequence that has waited long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No sequence has waited long, or it is not the turn of such.
    NotDue,
    /// It started, or another was preempted for it.
    Taken,
    /// There is no room for it. Its caller has this number of running sequences.
    Blocked(usize),
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
            max_drafted: backend.max_drafted(),
            long_after: backend.long_after(),
            until_long_wait: 0,
            long_waits: LongWaits::default(),
            preemptions: 0,
            steps: 0,
            express_tokens: 0,
            last_few: None,
            crowded: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Returns true if nothing keeps a step from being computed: all running sequences are ready, or none runs
    /// and one waits that could start. A sequence that is not ready may hold the memory of the others.
    pub(super) fn must_compute(&self) -> bool {
        match self.running.is_empty() {
            true => self.ready().next().is_some(),
            false => self.running.iter().all(|sequence| self.is_ready(sequence)),
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
        loop {
            let has_advanced = match self.start_long_wait() {
                Turn::Taken => true,
                // The next sequence would take the memory for which this one waits. Only a caller with
                // fewer running sequences may.
                Turn::Blocked(running) => self.start_next(running),
                Turn::NotDue => self.start_next(usize::MAX),
            };
            if !has_advanced && !self.preempt_for_unserved() {
                return;
            }
        }
    }

    /// Preempts a sequence of the caller with the most, whatever its priority, for a caller without a running
    /// sequence that has waited long, and makes it the turn of that one. Returns false if there is no such
    /// caller, or none with several running sequences.
    fn preempt_for_unserved(&mut self) -> bool {
        let Some((0, at)) = self.longest_wait() else { return false };
        let Some(preempted) = self.over_share(&self.waiting[at].caller, i32::MAX) else { return false };
        self.preempt(preempted);
        // The preempted sequence may have a higher priority, and would start again.
        self.until_long_wait = 0;
        true
    }

    /// Returns the waiting sequence whose turn among the long waits is next: its caller's number of running
    /// sequences, and its place in the queue. Callers with the fewest come first, in turns, each with the
    /// longest of its waits.
    fn longest_wait(&self) -> Option<(usize, usize)> {
        let now = Instant::now();
        let running = shares::by_caller(&self.running);
        let count = |sequence: &Sequence| running.get(&*sequence.caller).copied().unwrap_or(0);
        let waits_long = self.ready().filter(|(_, sequence)| sequence.waits_longer_than(LONG_WAIT, now));
        let ranked = waits_long.map(|(at, sequence)| {
            (count(sequence), self.long_waits.last_turn(&sequence.caller), sequence.waits_since(), at)
        });
        ranked.min().map(|(count, .., at)| (count, at))
    }

    /// Starts the next sequence that has waited long, if one has and it is the turn of such.
    fn start_long_wait(&mut self) -> Turn {
        // While no place is free, a sequence that preempts another takes nothing from this one.
        if self.until_long_wait > 0 || self.running.len() >= self.max_running() {
            return Turn::NotDue;
        }
        let Some((count, at)) = self.longest_wait() else { return Turn::NotDue };
        let caller = Arc::clone(&self.waiting[at].caller);
        if self.start(at, true) {
            self.until_long_wait = STARTS_PER_LONG_WAIT - 1;
            let waiting = &self.waiting;
            self.long_waits.record(caller, |caller| waiting.iter().any(|sequence| &*sequence.caller == caller));
            return Turn::Taken;
        }
        if self.preempt_for(at) { Turn::Taken } else { Turn::Blocked(count) }
    }

    /// Starts the next sequence by priority and by the shares of callers, of the callers with fewer running
    /// sequences than `below`. Returns true if it started, or another was preempted for it.
    fn start_next(&mut self, below: usize) -> bool {
        let running = shares::by_caller(&self.running);
        let count = |sequence: &Sequence| running.get(&*sequence.caller).copied().unwrap_or(0);
        let may_start = self.ready().filter(|(_, sequence)| count(sequence) < below);
        let next = may_start.min_by_key(|(at, sequence)| (Reverse(sequence.priority()), count(sequence), *at));
        let Some((at, _)) = next else { return false };
        self.start(at, false) || self.preempt_for(at)
    }

    /// Returns the waiting sequences that could start, with their places in the queue.
    fn ready(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        self.waiting.iter().enumerate().filter(|(_, sequence)| {
            let state = self.requests.get(sequence.request);
            !sequence.awaits_sibling(state) && !state.answer.is_full()
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
        self.until_long_wait = self.until_long_wait.saturating_sub(1);
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

    /// Returns true if the pool has the sequence's blocks besides the blocks that the running
    /// sequences still need, and one more for each.
    fn fits(&self, sequence: &Sequence) -> bool {
        let missing = |sequence: &Sequence| self.pool.missing_blocks(&sequence.table, sequence.length() + 1);
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
        let (caller, priority) = (&self.waiting[at].caller, self.waiting[at].priority());
        let is_lower = self.running.last().is_some_and(|last| last.priority() < priority);
        let preempted = if is_lower { self.running.len().checked_sub(1) } else { self.over_share(caller, priority) };
        if let Some(preempted) = preempted {
            self.preempt(preempted);
        }
        preempted.is_some()
    }

    /// Returns the last running sequence, of the caller with the most, among those whose priority is
    /// at most `priority`. Callers that would then have fewer than `caller` keep theirs.
    fn over_share(&self, caller: &str, priority: i32) -> Option<usize> {
        let counts = shares::by_caller(&self.running);
        let own = counts.get(caller).copied().unwrap_or(0);
        let count = |sequence: &Sequence| counts.get(&*sequence.caller).copied().unwrap_or(0);
        let may_go = |sequence: &&Sequence| sequence.priority() <= priority && count(sequence) > own + 1;
        let most = self.running.iter().filter(may_go).map(count).max()?;
        self.running.iter().rposition(|sequence| may_go(&sequence) && count(sequence) == most)
    }

    /// Preempts the last sequence whose channel has been full for a while. Returns false if none
    /// has.
    fn preempt_slow_reader(&mut self) -> bool {
        let now = Instant::now();
        let is_slow =
            |sequence: &Sequence| self.requests.get(sequence.request).answer.is_full_for(SLOW_READER_GRACE, now);
        let slow = self.running.iter().rposition(is_slow);
        if let Some(at) = slow {
            self.preempt(at);
        }
        slow.is_some()
    }

    /// Preempts the last sequence of the caller with the most, among those of the lowest priority.
    /// Returns false if no caller has more than another.
    fn preempt_over_share(&mut self) -> bool {
        let counts = shares::by_caller(&self.running);
        let lowest = self.running.last().map(Sequence::priority);
        let of_lowest = self.running.iter().enumerate().filter(|(_, sequence)| Some(sequence.priority()) == lowest);
        let by_count: Vec<_> = of_lowest.map(|(at, sequence)| (counts[&*sequence.caller], at)).collect();
        let (Some(&(least, _)), Some(&(most, at))) = (by_count.iter().min(), by_count.iter().max()) else {
            return false;
        };
        if most > least + 1 {
            self.preempt(at);
        }
        most > least + 1
    }

    fn preempt_last(&mut self) {
        if let Some(last) = self.running.len().checked_sub(1) {
            self.preempt(last);
        }
    }

    fn preempt(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        sequence.preempt(self.requests.get_mut(sequence.request), &mut self.pool);
        self.preemptions += 1;
        insert(&mut self.waiting, sequence);
    }

    /// Returns true if the pool lacks blocks for the next token of every sequence that is not slow.
    fn lacks_memory(&self) -> bool {
        let ready = self.running.iter().filter(|sequence| self.is_ready(sequence));
        let missing: usize =
            ready.map(|sequence| self.pool.missing_blocks(&sequence.table, sequence.length_after(1))).sum();
        missing > self.pool.available()
    }

    /// Returns how many tokens of each running sequence the next step computes, and reserves their
    /// blocks.
    /// `spent` is the part of its budget that images took.
    pub(super) fn plan(&mut self, spent: usize) -> Vec<usize> {
        let Self { running, requests, pool, .. } = self;
        running.iter_mut().for_each(|sequence| sequence.restart_if_long(requests.get_mut(sequence.request), pool));
        while self.lacks_memory() && (self.preempt_slow_reader() || self.preempt_over_share()) {}
        self.steps += 1;
        let few = self.active_with_few();
        if !few.is_empty() {
            self.last_few = Some(Instant::now());
        }
        let chunk = self.limits.prefill_chunk;
        if self.express_tokens < chunk && self.has_prompt(&few) {
            let counts = self.plan_for(true, &few, chunk.saturating_sub(spent));
            self.express_tokens += counts.iter().sum::<usize>();
            if counts.iter().any(|count| *count > 0) {
                return counts;
            }
        }
        self.express_tokens = 0;
        self.plan_for(false, &few, chunk.saturating_sub(spent))
    }

    /// Returns the callers with few running sequences, without those of which none is ready.
    fn active_with_few(&self) -> Vec<Arc<str>> {
        let mut callers = shares::callers_with_few(&self.running);
        callers.retain(|caller| self.running.iter().any(|of| of.caller == *caller && self.is_ready(of)));
        callers
    }

    /// Returns true if one of these callers has a prompt.
    fn has_prompt(&self, callers: &[Arc<str>]) -> bool {
        !callers.is_empty() && self.prompts().into_iter().any(|at| callers.contains(&self.running[at].caller))
    }

    /// Plans a step with at most `budget` tokens of prompts. `few` are the callers with few running
    /// sequences. `is_express`: for these alone.
    fn plan_for(&mut self, is_express: bool, few: &[Arc<str>], budget: usize) -> Vec<usize> {
        let mut counts = vec![0; self.running.len()];
        self.running.iter_mut().for_each(|sequence| sequence.set_drafted(0));
        for at in self.decodes(is_express, few) {
            if at < self.running.len() && self.make_room(at, 1) {
                counts[at] = 1;
                self.running[at].last_step = self.steps;
                self.draft(at);
            }
        }
        let (of_few, others): (Vec<_>, Vec<_>) =
            self.prompts_by_caller().into_iter().partition(|prompts| few.contains(&self.running[prompts[0]].caller));
        let prompts = of_few.iter().chain(others.iter().filter(|_| !is_express)).flatten();
        let mut plan = Plan { counts, rows: self.prompt_rows(prompts.copied()) };
        if is_express {
            self.plan_callers(&of_few, budget, 0, &mut plan);
        } else {
            let left = budget - self.plan_callers(&of_few, budget, others.len(), &mut plan);
            self.plan_callers(&others, left.min(self.max_prompt_tokens()), 0, &mut plan);
        }
        plan.counts.truncate(self.running.len());
        plan.counts
    }

    /// Lets the backend draft tokens of the `at`-th running sequence, if blocks for them are free.
    fn draft(&mut self, at: usize) {
        let Self { running, requests, pool, max_drafted, .. } = self;
        let sequence = &mut running[at];
        let drafted = sequence.can_draft(requests.get(sequence.request), *max_drafted);
        let positions = sequence.length_after(1 + drafted);
        if drafted > 0 && pool.reserve(&mut sequence.table, positions) {
            sequence.set_drafted(drafted);
        }
    }

    /// Returns the rows for log-probabilities of these prompts.
    fn prompt_rows(&self, prompts: impl Iterator<Item = usize>) -> PromptRows {
        let sequences = prompts.map(|at| &self.running[at]);
        PromptRows::new(sequences.map(|sequence| (sequence, self.requests.get(sequence.request))))
    }

    /// Gives the prompts of these callers equal shares of `budget`, and keeps a share for each of
    /// `others`, a number of other callers.
    /// Returns the number of tokens that the prompts of these use.
    fn plan_callers(&mut self, callers: &[Vec<usize>], budget: usize, others: usize, plan: &mut Plan) -> usize {
        let mut left = budget;
        for (done, prompts) in callers.iter().enumerate() {
            let share = left.div_ceil(others + callers.len() - done);
            left -= self.plan_prompts(prompts, share.min(left), plan);
        }
        budget - left
    }

    /// Returns the sequences in decode that the next step computes, in the order of rank.
    fn decodes(&self, is_express: bool, few: &[Arc<str>]) -> Vec<usize> {
        let is_of_few = |at: &usize| few.contains(&self.running[*at].caller);
        let decodes = |at: &usize| {
            let sequence = &self.running[*at];
            (!is_express || is_of_few(at)) && self.is_ready(sequence) && sequence.pending() == 1
        };
        let chosen: Vec<usize> = (0..self.running.len()).filter(decodes).collect();
        let most = if self.is_shared() {
            let of_few = chosen.iter().filter(|at| is_of_few(at)).count();
            self.limits.max_decodes.min(self.limits.max_shared_decodes.saturating_add(2 * of_few))
        } else {
            self.limits.max_decodes
        };
        shares::in_turns(&self.running, chosen, most)
    }

    /// Returns true if a caller with few running sequences is active, or was so recently.
    fn is_shared(&self) -> bool {
        self.last_few.is_some_and(|last| last.elapsed() < SHORT_STEPS)
    }

    /// Returns the most tokens of prompts, of callers without few running sequences, in the next step.
    fn max_prompt_tokens(&self) -> usize {
        if self.is_shared() { self.limits.max_shared_prompt_tokens } else { usize::MAX }
    }

    /// Gives the prompts of one caller equal shares of `budget`. Returns the number of tokens that
    /// they use.
    fn plan_prompts(&mut self, prompts: &[usize], budget: usize, plan: &mut Plan) -> usize {
        let mut left = budget;
        for (done, &at) in prompts.iter().enumerate() {
            let share = left.div_ceil(prompts.len() - done);
            let Some(sequence) = self.running.get(at) else { continue };
            let count = plan.rows.take(sequence, self.requests.get(sequence.request), share.min(left));
            if count > 0 && self.make_room(at, count) {
                plan.counts[at] = count;
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
            // Cancelling the copy changes which tokens are pending. The next step plans them.
            if self.running[at].cancel_copy(&mut self.pool) || self.running.len() - 1 == at {
                return false;
            }
            self.preempt_last();
        }
    }

    /// Returns true if the request's channel has slots for the events of a step, and the next token
    /// waits for no image.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let state = self.requests.get(sequence.request);
        !state.answer.is_full() && sequence.is_available(state)
    }
}

fn insert(list: &mut Vec<Sequence>, sequence: Sequence) {
    let at = list.partition_point(|other| other.rank() <= sequence.rank());
    list.insert(at, sequence);
}
