//! The thread team: runs one phase after another and distributes the tasks of a phase over the
//! threads.
//!
//! Each thread has a share of consecutive tasks, so that it reads consecutive memory, and then takes
//! tasks from the ends of the others' shares. A thread that the system has paused delays one task
//! only.
//!
//! Idle threads poll briefly, since the next phase of a step starts within microseconds, and then
//! sleep. Beside other processes that need the processor, they poll only a tenth as long: the system
//! charges polling to a thread's share of the processor.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock;
use crate::disjoint::Disjoint;

mod share;

use share::Share;

/// Polls for work before an idle thread sleeps: about 20 µs.
const POLLS: u32 = 1_000;
/// Polls after a thread has lost its core.
const SHORT_POLLS: u32 = 100;
/// The phases after a lost core in which threads poll less: about ten steps of a small model.
const PHASES_WITH_SHORT_POLLS: u32 = 1_500;
/// A caller that sleeps for longer than this, and than it has computed in the phase, probably waits
/// for a thread that has lost its core.
const LOST_CORE: Duration = Duration::from_micros(400);

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
    /// The unclaimed tasks of the phase, by thread; the caller's first. Empty between phases.
    shares: Box<[Share]>,
    /// Counts the phases.
    phases: AtomicU64,
    /// The phases that are left in which threads poll less.
    short_polls: AtomicU32,
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
        let shares = (0..threads.max(1)).map(|_| Share::default()).collect();
        let shared = Arc::new(Shared { shares, ..Shared::default() });
        let start = |index| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("kernels-{index}")).spawn(move || shared.run_worker(index)).ok()
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
            Some(_lock) if (2..=Share::MOST_TASKS).contains(&tasks) => {
                self.shared.run(&Phase { task, tasks }, self.threads())
            }
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
    fn run(&self, phase: &Phase<'_>, threads: usize) {
        self.done.store(0, SeqCst);
        self.phase.store(ptr::from_ref(phase).cast_mut().cast(), SeqCst);
        let tasks = phase.tasks;
        let start = |thread: usize| (thread * tasks).div_ceil(threads);
        for (thread, share) in self.shares[..threads].iter().enumerate() {
            share.fill(start(thread)..start(thread + 1));
        }
        self.phases.fetch_add(1, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            let _sleep = lock(&self.sleep);
            self.wake.notify_all();
        }
        let start = Instant::now();
        self.run_tasks(0);
        let end = Instant::now();
        self.wait_for_others(tasks, end - start);
        if self.is_timed.load(Relaxed) {
            clock::add(&self.waited, end);
        }
        if let Some(payload) = lock(&self.panic).take() {
            resume_unwind(payload);
        }
    }

    /// Returns when every task is finished, so that no thread refers to the phase afterwards. The
    /// caller has computed for the time `computed`.
    fn wait_for_others(&self, tasks: usize, computed: Duration) {
        let short_polls = self.short_polls.load(Relaxed);
        if short_polls > 0 {
            self.short_polls.store(short_polls - 1, Relaxed);
        }
        let all_done = || self.done.load(SeqCst) == tasks;
        if self.poll(all_done) {
            return;
        }
        let start = Instant::now();
        let mut sleep = lock(&self.sleep);
        self.waiting.store(true, SeqCst);
        while !all_done() {
            sleep = self.finished.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.store(false, SeqCst);
        if start.elapsed() > LOST_CORE.max(computed) {
            self.short_polls.store(PHASES_WITH_SHORT_POLLS, Relaxed);
        }
    }

    /// Runs the loop of every thread but the caller's, until the team is dropped.
    fn run_worker(&self, thread: usize) {
        let mut last = 0;
        while !self.closing.load(SeqCst) {
            let has_work = || self.phases.load(SeqCst) != last || self.closing.load(SeqCst);
            if !self.poll(has_work) {
                let mut sleep = lock(&self.sleep);
                self.sleepers.fetch_add(1, SeqCst);
                while !has_work() {
                    sleep = self.wake.wait(sleep).unwrap_or_else(PoisonError::into_inner);
                }
                self.sleepers.fetch_sub(1, SeqCst);
            }
            last = self.phases.load(SeqCst);
            self.run_tasks(thread);
        }
    }

    /// Runs the thread's tasks, and then tasks that others have not begun.
    fn run_tasks(&self, thread: usize) {
        while let Some(task) = self.shares[thread].claim_first() {
            self.run_task(task);
        }
        let threads = self.shares.len();
        for other in 1..threads {
            while let Some(task) = self.shares[(thread + other) % threads].claim_last() {
                self.run_task(task);
            }
        }
    }

    /// Runs a task that this thread has claimed.
    fn run_task(&self, task: usize) {
        // SAFETY: this thread has claimed a task. `run` stores the pointer before it fills the shares,
        // and keeps the phase alive until the task is reported as finished below.
        let phase = unsafe { &*self.phase.load(SeqCst) };
        let tasks = phase.tasks;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (phase.task)(task))) {
            let mut first = lock(&self.panic);
            // A payload that panics when it is dropped must not prevent the report.
            if first.is_some() { std::mem::forget(payload) } else { *first = Some(payload) }
        }
        self.count_done(tasks);
    }

    /// Polls a condition for a limited time. Returns true if the condition became true.
    fn poll(&self, condition: impl Fn() -> bool) -> bool {
        let polls = if self.short_polls.load(Relaxed) > 0 { SHORT_POLLS } else { POLLS };
        for _ in 0..polls {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
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

/// Ignores poisoning: data under these locks is never left half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
