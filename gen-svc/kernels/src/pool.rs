//! The thread team: runs one phase after another and distributes the tasks of a phase over the
//! threads.
//!
//! Threads claim tasks from a counter, so a thread that the system has paused delays one task only.
//! Idle threads spin briefly, since the next phase of a step starts within microseconds, and then
//! sleep. Longer spinning would slow down the whole machine when other processes run.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock;
use crate::disjoint::Disjoint;

/// Polls for work before an idle thread sleeps: about 20 µs.
const SPINS_BEFORE_SLEEP: u32 = 1_000;

/// A team of threads. The thread that calls [`Team::run`] is one of them.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Locked while a phase runs.
    phase_lock: Mutex<()>,
}

/// One call of [`Team::run`], on the caller's stack.
struct Phase<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
}

#[derive(Default)]
struct Shared {
    /// Unclaimed tasks of the phase. Zero between phases.
    unclaimed: AtomicUsize,
    /// Finished tasks of the phase.
    done: AtomicUsize,
    /// Valid for a thread that has claimed a task and not yet reported it as finished.
    phase: AtomicPtr<Phase<'static>>,
    /// Threads that sleep, or are about to, until `wake`.
    sleepers: AtomicUsize,
    /// True while the caller sleeps, or is about to, until `finished`.
    waiting: AtomicBool,
    closing: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
    finished: Condvar,
    /// True if a clock runs.
    is_timed: AtomicBool,
    /// The time that callers have waited for other threads, in nanoseconds.
    waited: AtomicU64,
    /// The first panic of the phase.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Team {
    /// Creates a team of `threads`, the caller's included; at least one. If the system refuses a
    /// thread, the team is smaller.
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

    /// Returns the number of threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `task` once with every number below `tasks`, in any order and concurrently. Returns
    /// when all calls have finished.
    ///
    /// The caller alone runs a single task, and the tasks of a call from within a task.
    ///
    /// # Panics
    /// Panics with the payload of the first task that panicked, after all tasks have ended.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match self.lock_phase() {
            Some(_lock) if tasks > 1 => self.shared.run(&Phase { task, tasks }),
            _ => (0..tasks).for_each(task),
        }
    }

    /// Runs tasks as [`Team::run`] does, but the caller alone runs the tasks if `is_serial`: waking
    /// another thread takes some microseconds.
    pub(crate) fn run_serially_if(&self, is_serial: bool, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if is_serial { (0..tasks).for_each(task) } else { self.run(tasks, task) }
    }

    /// Locks the team for a phase. `None` while another phase runs, and if the team has one thread.
    fn lock_phase(&self) -> Option<MutexGuard<'_, ()>> {
        match self.phase_lock.try_lock() {
            _ if self.threads.is_empty() => None,
            Ok(lock) => Some(lock),
            // An earlier phase ended with a panic.
            Err(TryLockError::Poisoned(lock)) => Some(lock.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Measures how long callers wait for other threads from now on.
    pub(crate) fn start_clock(&self) {
        self.shared.is_timed.store(true, Relaxed);
    }

    /// Returns how long callers have waited for other threads since the last call. Zero if no clock runs.
    #[must_use]
    pub fn take_waits(&self) -> Duration {
        Duration::from_nanos(self.shared.waited.swap(0, Relaxed))
    }

    /// Divides `data` into chunks of `length` (the last may be shorter) and calls `task` with the
    /// index and the content of each.
    pub fn run_on_chunks<T: Send>(&self, data: &mut [T], length: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let total = data.len();
        let data = Disjoint::new(data);
        self.run(total.div_ceil(length.max(1)), &|index| {
            let start = index * length;
            // SAFETY: chunks do not overlap, and every index is used once.
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
        let start = self.is_timed.load(Relaxed).then(Instant::now);
        self.wait_for_others(phase.tasks);
        start.into_iter().for_each(|start| clock::add(&self.waited, start));
        if let Some(payload) = lock(&self.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Returns when every task is finished, so that no thread refers to the phase afterwards.
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

    /// Runs the loop of every thread but the caller's, until the team is dropped.
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

    /// Runs one task. Returns false if no task is left.
    fn run_task(&self) -> bool {
        let Ok(unclaimed) = self.unclaimed.fetch_update(SeqCst, SeqCst, |unclaimed| unclaimed.checked_sub(1)) else {
            return false;
        };
        // SAFETY: this thread has claimed a task, and `run` keeps the phase alive until the task is
        // reported as finished below.
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

/// Polls a condition for a limited time. Returns true if the condition became true.
fn spin_until(condition: impl Fn() -> bool) -> bool {
    for _ in 0..SPINS_BEFORE_SLEEP {
        if condition() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

/// Ignores poisoning: data under these locks is never left half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
