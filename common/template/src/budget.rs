//! The budget of one render: computing steps, memory, output and recursion. Steps also measure when
//! the render checks whether it is cancelled.
//!
//! A render stays on one thread from start to end, so the meter is a thread-local that
//! [`Meter::start`] resets. As a parameter it would be passed to nearly every operation. Steps measure time. Every operation and every loop round costs steps,
//! and operations on long texts cost steps by length. Bytes measure memory: every new value is
//! charged. Lists, dicts and long texts, which templates build piece by piece, are credited when
//! they are dropped. A long conversation therefore does not exhaust the budget, even if the sum of
//! all pieces exceeds it.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use minijinja::Value;

use crate::error::{Fallible, Limit, cancelled, limit};
use crate::limits::Limits;

/// Texts of at least this size are credited when they are dropped.
const LARGE_TEXT_BYTES: usize = 16 * 1024;
/// Bytes of large texts that may be charged before the next sweep.
const SWEEP_INTERVAL_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes that are copied or searched in the time of one step.
const BYTES_PER_STEP: usize = 32;
/// Products of two 64-bit digits that are computed in the time of one step.
const LIMB_PRODUCTS_PER_STEP: u64 = 16;
/// The cost in bytes of a value inside a list or dict.
pub(crate) const VALUE_BYTES: usize = 32;
/// The steps between two checks of cancellation: some hundred microseconds.
const STEPS_PER_CHECK: u64 = 1 << 14;
/// The cost of a macro call in steps, without its body.
const CALL_STEPS: usize = 20;
/// Steps and bytes that every byte of the conversation adds to the budget.
const STEPS_PER_INPUT_BYTE: u64 = 16;
const BYTES_PER_INPUT_BYTE: u64 = 8;
/// The maximum nesting of macro calls, about the same as CPython's recursion limit.
const MAX_CALLS: u32 = 200;

thread_local! {
    /// The steps before the next check of cancellation.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// The steps after it.
    static LATER_STEPS: Cell<u64> = const { Cell::new(0) };
    /// The steps that the running render got at its start.
    static GIVEN_STEPS: Cell<u64> = const { Cell::new(0) };
    /// The steps left to all renders of a [`StepsPool`].
    static POOL: Cell<Option<u64>> = const { Cell::new(None) };
    static IS_CANCELLED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static OUTPUT: Cell<u64> = const { Cell::new(0) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static LARGE: RefCell<LargeTexts> = const { RefCell::new(LargeTexts::new()) };
}

/// While it exists, renders on this thread end with
/// [`RenderError::Cancelled`](crate::RenderError::Cancelled) soon after its check returns true.
#[derive(Debug)]
pub struct CancelScope {
    outer: Option<fn() -> bool>,
}

impl CancelScope {
    /// Starts a scope on this thread. `is_cancelled` is called from time to time during a render.
    #[must_use]
    pub fn start(is_cancelled: fn() -> bool) -> Self {
        Self { outer: IS_CANCELLED.replace(Some(is_cancelled)) }
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        IS_CANCELLED.set(self.outer);
    }
}

/// While it exists, the renders on this thread share a number of steps, in addition to the limit of each. A pool within
/// another one takes its steps from it.
#[derive(Debug)]
pub struct StepsPool {
    outer: Option<u64>,
    steps: u64,
}

impl StepsPool {
    /// Starts a pool on this thread.
    #[must_use]
    pub fn start(steps: u64) -> Self {
        let outer = POOL.get();
        let steps = outer.map_or(steps, |outer| outer.min(steps));
        POOL.set(Some(steps));
        Self { outer, steps }
    }

    /// Returns true if no steps are left in the thread's pool.
    #[must_use]
    pub fn is_spent() -> bool {
        POOL.get() == Some(0)
    }
}

impl Drop for StepsPool {
    fn drop(&mut self) {
        let used = self.steps.saturating_sub(POOL.get().unwrap_or_default());
        POOL.set(self.outer.map(|outer| outer.saturating_sub(used)));
    }
}

/// The budget of the running render. Dropping it discards the tracked texts.
#[derive(Debug)]
pub(crate) struct Meter(());

impl Meter {
    pub(crate) fn start(limits: &Limits) -> Self {
        let steps = POOL.get().map_or(limits.steps, |pool| pool.min(limits.steps));
        GIVEN_STEPS.set(steps);
        set_steps(steps);
        BYTES.set(limits.bytes);
        OUTPUT.set(limits.output);
        CALLS.set(0);
        LARGE.with_borrow_mut(LargeTexts::clear);
        Self(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let used = GIVEN_STEPS.get().saturating_sub(all_steps());
        POOL.set(POOL.get().map(|pool| pool.saturating_sub(used)));
        LARGE.with_borrow_mut(LargeTexts::clear);
    }
}

/// Charges computing time.
pub(crate) fn steps(count: usize) -> Fallible<()> {
    match STEPS.get().checked_sub(count as u64) {
        Some(left) => {
            STEPS.set(left);
            Ok(())
        }
        None => later_steps(count as u64),
    }
}

/// Charges computing time beyond the next check of cancellation.
#[cold]
fn later_steps(count: u64) -> Fallible<()> {
    let Some(left) = all_steps().checked_sub(count) else { return Err(limit(Limit::Steps)) };
    if IS_CANCELLED.get().is_some_and(|is_cancelled| is_cancelled()) {
        return Err(cancelled());
    }
    set_steps(left);
    Ok(())
}

fn all_steps() -> u64 {
    STEPS.get().saturating_add(LATER_STEPS.get())
}

fn set_steps(count: u64) {
    let next = count.min(STEPS_PER_CHECK);
    STEPS.set(next);
    LATER_STEPS.set(count - next);
}

/// Charges the time to copy or search `bytes` bytes.
pub(crate) fn scan(bytes: usize) -> Fallible<()> {
    steps(1 + bytes / BYTES_PER_STEP)
}

/// Charges the time to visit every character of a text of `bytes` bytes.
pub(crate) fn walk(bytes: usize) -> Fallible<()> {
    scan(bytes.saturating_mul(8))
}

/// Charges steps in code that cannot fail. If too few are left, the next charge fails.
pub(crate) fn spend(count: usize) {
    match STEPS.get().checked_sub(count as u64) {
        Some(left) => STEPS.set(left),
        None => set_steps(all_steps().saturating_sub(count as u64)),
    }
}

/// Charges as [`walk`] does, in code that cannot fail.
pub(crate) fn walked(bytes: usize) {
    spend(bytes * 8 / BYTES_PER_STEP);
}

/// Charges memory that is about to be allocated, and the time to fill it.
pub(crate) fn alloc(bytes: usize) -> Fallible<()> {
    scan(bytes)?;
    if let Some(left) = BYTES.get().checked_sub(bytes as u64) {
        BYTES.set(left);
        return Ok(());
    }
    sweep();
    match BYTES.get().checked_sub(bytes as u64) {
        Some(left) => {
            BYTES.set(left);
            Ok(())
        }
        None => Err(limit(Limit::Bytes)),
    }
}

/// Fails if the budget has no room for `bytes` temporary bytes. Charges only the time to fill them.
pub(crate) fn room(bytes: usize) -> Fallible<()> {
    alloc(bytes)?;
    BYTES.set(BYTES.get().saturating_add(bytes as u64));
    Ok(())
}

/// Charges the time to multiply or divide integers of this many bits.
pub(crate) fn product(left: u64, right: u64) -> Fallible<()> {
    steps(((left / 64 + 1) * (right / 64 + 1) / LIMB_PRODUCTS_PER_STEP) as usize)
}

/// Charges a list or dict of `len` values.
pub(crate) fn alloc_values(len: usize) -> Fallible<()> {
    alloc(len.saturating_mul(VALUE_BYTES))
}

/// Credits a list or dict of `len` values that was charged and is now dropped.
pub(crate) fn free_values(len: usize) {
    BYTES.set(BYTES.get().saturating_add(len as u64 * VALUE_BYTES as u64));
}

/// Adds the steps and bytes that `bytes` bytes of input allow.
pub(crate) fn grant(bytes: usize) {
    let left = POOL.get().map_or(u64::MAX, |pool| pool.saturating_sub(GIVEN_STEPS.get()));
    let steps = left.min(bytes as u64 * STEPS_PER_INPUT_BYTE);
    GIVEN_STEPS.set(GIVEN_STEPS.get().saturating_add(steps));
    LATER_STEPS.set(LATER_STEPS.get().saturating_add(steps));
    BYTES.set(BYTES.get().saturating_add(bytes as u64 * BYTES_PER_INPUT_BYTE));
}

/// Charges text of the prompt.
pub(crate) fn output(bytes: usize) -> Fallible<()> {
    scan(bytes)?;
    match OUTPUT.get().checked_sub(bytes as u64) {
        Some(left) => {
            OUTPUT.set(left);
            Ok(())
        }
        None => Err(limit(Limit::Output)),
    }
}

/// Tracks a charged text, so that it is credited when it is dropped.
pub(crate) fn track(text: &Value) {
    let Some(text) = text.as_str().filter(|text| text.len() >= LARGE_TEXT_BYTES).and_then(|_| text.to_str()) else {
        return;
    };
    if LARGE.with_borrow_mut(|large| large.add(&text)) {
        sweep();
    }
}

fn sweep() {
    let credit = LARGE.with_borrow_mut(LargeTexts::sweep);
    BYTES.set(BYTES.get().saturating_add(credit));
}

/// Runs `call` one level deeper, on a stack that is large enough for it.
pub(crate) fn recurse<T>(call: impl FnOnce() -> Fallible<T>) -> Fallible<T> {
    let depth = CALLS.get();
    if depth >= MAX_CALLS {
        return Err(limit(Limit::Recursion));
    }
    steps(CALL_STEPS)?;
    CALLS.set(depth + 1);
    let result = with_stack(call);
    CALLS.set(depth);
    result
}

/// The stack that one operation on the most deeply nested value needs, in a debug build.
const STACK_RED_ZONE_BYTES: usize = 1024 * 1024;
const STACK_SEGMENT_BYTES: usize = 4 * 1024 * 1024;

/// The stack that parsing and compiling the deepest template need, in a debug build.
const COMPILER_STACK_BYTES: usize = 32 * 1024 * 1024;

/// Runs the compiler on a separate stack.
pub(crate) fn with_compiler_stack<T>(call: impl FnOnce() -> T) -> T {
    stacker::grow(COMPILER_STACK_BYTES, call)
}

/// Runs `call` with enough stack for one operation on any value.
pub(crate) fn with_stack<T>(call: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_RED_ZONE_BYTES, STACK_SEGMENT_BYTES, call)
}

/// The large texts that are currently charged.
#[derive(Debug)]
struct LargeTexts {
    texts: Vec<(Weak<str>, u64)>,
    since_sweep: u64,
}

impl LargeTexts {
    const fn new() -> Self {
        Self { texts: Vec::new(), since_sweep: 0 }
    }

    fn clear(&mut self) {
        self.texts = Vec::new();
        self.since_sweep = 0;
    }

    /// Adds a text; returns true if a sweep is due.
    fn add(&mut self, text: &Arc<str>) -> bool {
        self.texts.push((Arc::downgrade(text), text.len() as u64));
        self.since_sweep += text.len() as u64;
        self.since_sweep >= SWEEP_INTERVAL_BYTES
    }

    /// Removes the texts that were dropped, and returns their size.
    fn sweep(&mut self) -> u64 {
        self.since_sweep = 0;
        let mut credit = 0;
        self.texts.retain(|(text, len)| {
            let dead = text.strong_count() == 0;
            credit += if dead { *len } else { 0 };
            !dead
        });
        credit
    }
}
