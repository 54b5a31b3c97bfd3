//! The thread team: one phase of work after another, each handed out task by task to whoever is free.
//!
//! Tasks are claimed from a counter, so a thread that the system has paused costs its one task and no more. Idle threads spin
//! briefly, since the next phase of a step comes within microseconds, and then sleep: on a machine with other work, a team
//! that spins for long slows everybody down, itself included.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use crate::disjoint::Disjoint;

/// How often an idle thread looks for work before it sleeps: some 20 µs.
const SPINS_BEFORE_SLEEP: u32 = 1_000;

/// Threads that work together. The thread that calls [`Team::run`] is one of them.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Held while a phase runs.
    phase_lock: Mutex<()>,
}

/// One call of [`Team::run`]. Lives on the caller's stack.
struct Phase<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
}

#[derive(Default)]
struct Shared {
    /// Tasks of the phase that nobody has claimed yet. Zero between phases.
    unclaimed: AtomicUsize,
    /// Tasks of the phase that are done.
    done: AtomicUsize,
    /// Valid for whoever has claimed a task and not yet counted it as done.
    phase: AtomicPtr<Phase<'static>>,
    /// Threads that sleep, or are about to, until `wake`.
    sleepers: AtomicUsize,
    /// Whether the caller sleeps, or is about to, until `finished`.
    waiting: AtomicBool,
    closing: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
    finished: Condvar,
    /// The first panic of the phase.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Team {
    /// A team of `threads`, the caller's included; at least one. Threads that the system refuses to start are done without.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let start = |index| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("kernels-{index}")).spawn(move || shared.run_worker()).ok()
        };
        let threads = (1..threads).map_while(start).collect();
        Self { shared, threads, phase_lock: Mutex::new(()) }
    }

    /// How many threads share the work.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `task` once with every number below `tasks`, in any order and at the same time, and returns when all are done.
    /// A single task, and a call from within a task, is computed by the caller alone.
    ///
    /// # Panics
    /// When a task panicked, with the same payload, after all have ended.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match self.lock_phase() {
            Some(_lock) if tasks > 1 => self.shared.run(&Phase { task, tasks }),
            _ => (0..tasks).for_each(task),
        }
    }

    /// As [`Team::run`], by the caller alone if the work is is_serial: telling another thread takes some microseconds.
    pub(crate) fn run_serially_if(&self, is_serial: bool, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if is_serial { (0..tasks).for_each(task) } else { self.run(tasks, task) }
    }

    /// The right to start a phase. None while one runs, and when there is nobody else.
    fn lock_phase(&self) -> Option<MutexGuard<'_, ()>> {
        match self.phase_lock.try_lock() {
            _ if self.threads.is_empty() => None,
            Ok(lock) => Some(lock),
            // An earlier phase panicked, after it had ended.
            Err(TryLockError::Poisoned(lock)) => Some(lock.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Cuts `data` into pieces of `length` (the last may be shorter) and calls `task` with the number and the content of each.
    pub fn run_on_chunks<T: Send>(&self, data: &mut [T], length: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let total = data.len();
        let data = Disjoint::new(data);
        self.run(total.div_ceil(length.max(1)), &|index| {
            let start = index * length;
            // SAFETY: pieces do not overlap, and every index is handed out once.
            task(index, unsafe { data.slice(start, length.min(total - start)) });
        });
    }
}

impl Shared {
    fn run(&self, phase: &Phase<'_>) {
        self.done.store(0, SeqCst);
        self.phase.store(ptr::from_ref(phase).cast_mut().cast(), SeqCst);
        self.unclaimed.store(phase.tasks, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            let _sleep = lock(&self.sleep);
            self.wake.notify_all();
        }
        while self.run_task() {}
        self.wait_for_others(phase.tasks);
        if let Some(payload) = lock(&self.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Returns once every task is counted as done, so that nobody refers to the phase any more.
    fn wait_for_others(&self, tasks: usize) {
        let all_done = || self.done.load(SeqCst) == tasks;
        if spin_until(all_done) {
            return;
        }
        let mut sleep = lock(&self.sleep);
        self.waiting.store(true, SeqCst);
        while !all_done() {
            sleep = self.finished.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, SeqCst);
    }

    /// What every thread but the caller does until the team is dropped.
    fn run_worker(&self) {
        let has_work = || self.unclaimed.load(SeqCst) > 0 || self.closing.load(SeqCst);
        while !self.closing.load(SeqCst) {
            if self.run_task() || spin_until(has_work) {
                continue;
            }
            let mut sleep = lock(&self.sleep);
            self.sleepers.fetch_add(1, SeqCst);
            while !has_work() {
                sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, SeqCst);
        }
    }

    /// Does one task. False if none is left.
    fn run_task(&self) -> bool {
        let Ok(unclaimed) = self.unclaimed.fetch_update(SeqCst, SeqCst, |unclaimed| unclaimed.checked_sub(1)) else {
            return false;
        };
        // SAFETY: a task of the phase is claimed, and `run` keeps the phase alive until it is counted as done, below.
        let phase = unsafe { &*self.phase.load(SeqCst) };
        let tasks = phase.tasks;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (phase.task)(tasks - unclaimed))) {
            lock(&self.panic).get_or_insert(payload);
        }
        self.count_done(tasks);
        true
    }

    fn count_done(&self, tasks: usize) {
        if self.done.fetch_add(1, SeqCst) + 1 == tasks && self.waiting.load(SeqCst) {
            let _sleep = lock(&self.sleep);
            self.finished.notify_all();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, SeqCst);
        {
            let _sleep = lock(&self.shared.sleep);
            self.shared.wake.notify_all();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("threads", &self.threads()).finish()
    }
}

/// Looks for a while. Whether it came true.
fn spin_until(condition: impl Fn() -> bool) -> bool {
    for _ in 0..SPINS_BEFORE_SLEEP {
        if condition() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Nothing is left half-written under these locks, so a panic elsewhere does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
