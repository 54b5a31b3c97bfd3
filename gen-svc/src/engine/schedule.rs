//! Who takes part in the next step, and with how many tokens.
//!
//! Sequences are ranked by priority, then by arrival. Every running one that generates takes part with its one token. What is left of
//! a step goes to prompts: each gets the same share, and what a short one leaves goes to the others. Memory that runs out is taken
//! from those whose callers do not read, then from who ranks last. They wait again, and what they had computed may still be found when
//! their turn comes.

use std::time::Duration;

use super::sequence::Sequence;
use crate::cache::BlockPool;

/// How long a caller may read nothing before its outputs have to wait again if others need their memory.
const UNREAD: Duration = Duration::from_secs(2);

/// The sequences, each list in the order of rank.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) pool: BlockPool,
    pub(super) running: Vec<Sequence>,
    waiting: Vec<Sequence>,
    max_running: usize,
    /// Prompt tokens in a step at most.
    chunk: usize,
    /// How often one had to wait again.
    pub(super) preemptions: u64,
}

impl Scheduler {
    pub(super) fn new(pool: BlockPool, max_running: usize, chunk: usize) -> Self {
        let (running, waiting) = (Vec::new(), Vec::new());
        Self { pool, running, waiting, max_running: max_running.max(1), chunk: chunk.max(1), preemptions: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// Adds one that waits.
    pub(super) fn enqueue(&mut self, sequence: Sequence) {
        insert(&mut self.waiting, sequence);
    }

    /// Removes those that have ended, and frees their memory.
    pub(super) fn remove(&mut self, mut ended: impl FnMut(&mut Sequence) -> bool) {
        let Self { running, waiting, pool, .. } = self;
        for list in [running, waiting] {
            list.retain_mut(|sequence| {
                let ended = ended(sequence);
                if ended {
                    sequence.release(pool);
                }
                !ended
            });
        }
    }

    /// Lets those run that there is room for, in the order of rank.
    pub(super) fn admit(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            if self.waiting[at].awaits_sibling() || !is_ready(&self.waiting[at]) {
                at += 1;
                continue;
            }
            if self.running.len() >= self.max_running {
                if !self.preempt_for(at) {
                    return;
                }
                continue;
            }
            let mut sequence = self.waiting.remove(at);
            sequence.find_cached(&mut self.pool);
            if !self.fits(&sequence) {
                sequence.release(&mut self.pool);
                self.waiting.insert(at, sequence);
                if !self.preempt_for(at) {
                    return;
                }
                continue;
            }
            sequence.start();
            insert(&mut self.running, sequence);
        }
    }

    /// Whether there is memory for all its tokens, besides what the running still need for theirs, and a block more for each.
    fn fits(&self, sequence: &Sequence) -> bool {
        let missing_blocks = |sequence: &Sequence| sequence.table.missing_blocks(sequence.length() + 1);
        let promised: usize = self.running.iter().map(|running| missing_blocks(running) + 1).sum();
        self.running.is_empty() || missing_blocks(sequence) + promised <= self.pool.available()
    }

    /// Makes one of the running wait again for the `at`-th that waits: one whose caller does not read, or the last if it has less
    /// priority. That one may come to stand before the `at`-th, which then comes later.
    fn preempt_for(&mut self, at: usize) -> bool {
        let priority = self.waiting[at].priority();
        self.preempt_unread() || {
            let below = self.running.last().is_some_and(|last| last.priority() < priority);
            if below {
                self.preempt_last();
            }
            below
        }
    }

    /// Makes one wait again whose caller has not read for a while.
    fn preempt_unread(&mut self) -> bool {
        let unread = self.running.iter().rposition(|sequence| sequence.caller.is_unread_for(UNREAD));
        if let Some(at) = unread {
            self.preempt(at);
        }
        unread.is_some()
    }

    fn preempt_last(&mut self) {
        if let Some(last) = self.running.len().checked_sub(1) {
            self.preempt(last);
        }
    }

    fn preempt(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        sequence.preempt(&mut self.pool);
        self.preemptions += 1;
        insert(&mut self.waiting, sequence);
    }

    /// Whether the running whose callers read lack memory for their next token.
    fn lacks_memory(&self) -> bool {
        let reading = self.running.iter().filter(|sequence| is_ready(sequence));
        let missing_blocks: usize =
            reading.map(|sequence| sequence.table.missing_blocks(sequence.length_after(1))).sum();
        missing_blocks > self.pool.available()
    }

    /// How many tokens of each running sequence the next step computes. Their blocks have room for them.
    pub(super) fn plan(&mut self) -> Vec<usize> {
        while self.lacks_memory() && self.preempt_unread() {}
        let mut counts = vec![0; self.running.len()];
        for (at, count) in counts.iter_mut().enumerate() {
            let generates = self.running.get(at).is_some_and(|sequence| is_ready(sequence) && sequence.pending() == 1);
            if generates && self.make_room(at, 1) {
                *count = 1;
            }
        }
        let mut left = self.chunk;
        let prompts = self.prompts();
        for (done, &at) in prompts.iter().enumerate() {
            let share = left.div_ceil(prompts.len() - done);
            let Some(sequence) = self.running.get(at) else { continue };
            let count = sequence.most().min(share).min(left);
            if count > 0 && self.make_room(at, count) {
                counts[at] = count;
                left -= count;
            }
        }
        counts.truncate(self.running.len());
        counts
    }

    /// The running whose prompts are yet to be read, those with the least left first.
    fn prompts(&self) -> Vec<usize> {
        let is_prompt = |at: &usize| is_ready(&self.running[*at]) && self.running[*at].pending() > 1;
        let mut prompts: Vec<usize> = (0..self.running.len()).filter(is_prompt).collect();
        prompts.sort_by_key(|&at| self.running[at].pending());
        prompts
    }

    /// Whether there is room for `count` more tokens of the `at`-th, be it by making those wait again that rank after it.
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
}

fn is_ready(sequence: &Sequence) -> bool {
    !sequence.caller.is_full()
}

fn insert(list: &mut Vec<Sequence>, sequence: Sequence) {
    let at = list.partition_point(|other| other.rank() <= sequence.rank());
    list.insert(at, sequence);
}
