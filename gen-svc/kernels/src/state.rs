//! The states of linear attention (gated DeltaNet): memory of fixed size per sequence, in slots that
//! the caller assigns.
//!
//! Shapes: K taps of the convolution, Hk key heads, Hv value heads, Dk key size, Dv value size,
//! C = 2 * Hk * Dk + Hv * Dv channels.
//!
//! A slot holds, for every layer, the last K - 1 rows before the convolution, \[K - 1\]\[C\], the
//! oldest first. The recurrent state of every value head follows, in panels of sixteen columns:
//! \[Hv\]\[Dv / 16\]\[Dk\]\[16\]. If Dv is not a multiple of 16, the last panel is padded.
//!
//! # Steps
//! A slot has a position: the number of tokens that its state contains. [`StateStore::begin`] checks
//! the positions and slots of all runs once for all layers, and marks the slots that the step will
//! write as undefined. The returned [`StateStep`] is the only access to the memory. After the last
//! layer, [`StateStep::finish`] sets the positions. If a step is dropped before, its written slots stay
//! undefined: a later run that starts from one of them is refused.

mod layer;
mod shape;

pub(crate) use layer::LayerStates;
pub use shape::StateShape;

use crate::buffer::Buffer;
use crate::disjoint::Disjoint;
use crate::error::{Error, expect, expect_below, product, sum};
use shape::Sizes;

/// Consecutive tokens of one sequence, and the slots of the sequence's state.
#[derive(Debug, Clone, Copy)]
pub struct StateRun<'a> {
    /// Positions before the first token.
    pub past: usize,
    /// Number of tokens.
    pub length: usize,
    /// The slot of the state before the first token, whose position is `past`. Runs may share it,
    /// unless one of them writes it. `None`: a state of zeros, and `past` is zero.
    pub from: Option<u32>,
    /// The slot of the state after the last token. It may equal `from`.
    pub to: u32,
    /// States to save on the way, in the order of the tokens.
    pub saves: &'a [StateSave],
}

/// A state to save within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSave {
    /// Tokens of the run that the state contains: at most all.
    pub tokens: usize,
    /// No other run of the step uses this slot, and the state is in neither `from` nor `to`.
    pub slot: u32,
}

impl StateRun<'_> {
    /// Returns the slots that the run writes, and their positions afterwards.
    fn written(&self) -> impl Iterator<Item = (u32, usize)> {
        let saves = self.saves.iter().map(|save| (save.slot, self.past + save.tokens));
        saves.chain([(self.to, self.past + self.length)])
    }
}

/// The memory of states.
#[derive(Debug)]
pub struct StateStore {
    shape: StateShape,
    sizes: Sizes,
    buffer: Buffer,
    /// \[slots\]. `None`: undefined content.
    positions: Vec<Option<usize>>,
}

impl StateStore {
    /// Reserves memory. The system commits a page, of up to 2 MiB, when it is first written.
    pub fn new(shape: StateShape) -> Result<Self, Error> {
        let sizes = shape.sizes()?;
        let buffer = Buffer::zeroed(product(&[shape.slot_bytes()?, shape.slots])?)?;
        let mut positions = Vec::new();
        let memory = |_| Error::Memory { bytes: shape.slots.checked_mul(size_of::<Option<usize>>()) };
        positions.try_reserve_exact(shape.slots).map_err(memory)?;
        positions.resize(shape.slots, None);
        Ok(Self { shape, sizes, buffer, positions })
    }

    #[must_use]
    pub fn shape(&self) -> &StateShape {
        &self.shape
    }

    /// Returns the tokens that a slot's state contains. `None` if the slot holds no state, or if there
    /// is no such slot.
    #[must_use]
    pub fn position(&self, slot: u32) -> Option<usize> {
        self.positions.get(slot as usize).copied().flatten()
    }

    /// Starts a step over the tokens of `runs`, in the order of the runs. The slots that the runs write
    /// are undefined until [`StateStep::finish`].
    ///
    /// Fails and changes nothing if a slot is out of range, if a run's `from` has another position than
    /// `past`, if saves are out of order, or if a slot is written and used twice. Only `from` and `to` of
    /// one run may be the same slot.
    pub fn begin<'a>(&'a mut self, runs: &'a [StateRun<'a>]) -> Result<StateStep<'a>, Error> {
        runs.iter().try_for_each(|run| self.check_run(run))?;
        check_slots(runs)?;
        let tokens = runs.iter().try_fold(0, |tokens, run| sum(&[tokens, run.length]))?;
        for (slot, _) in runs.iter().flat_map(StateRun::written) {
            self.positions[slot as usize] = None;
        }
        Ok(StateStep { store: self, runs, tokens, convolved: 0, recurred: 0 })
    }

    fn check_run(&self, run: &StateRun<'_>) -> Result<(), Error> {
        sum(&[run.past, run.length])?;
        let mut least = 0;
        for save in run.saves {
            expect_below("tokens of a saved state", sum(&[run.length, 1])?, save.tokens)?;
            expect_below("tokens of the previous saved state", sum(&[save.tokens, 1])?, least)?;
            least = save.tokens;
        }
        for slot in run.saves.iter().map(|save| save.slot).chain(run.from).chain([run.to]) {
            expect_below("state slot", self.shape.slots, slot as usize)?;
        }
        match run.from {
            None => expect("position of a state of zeros", 0, run.past),
            Some(slot) => match self.position(slot) {
                Some(position) if position == run.past => Ok(()),
                found => Err(Error::Position { slot: slot as usize, expected: run.past, found }),
            },
        }
    }
}

/// Fails if a slot is written twice, or is written and read other than as `from` and `to` of one run.
fn check_slots(runs: &[StateRun<'_>]) -> Result<(), Error> {
    let mut written: Vec<u32> = runs.iter().flat_map(StateRun::written).map(|(slot, _)| slot).collect();
    written.sort_unstable();
    if let Some(pair) = written.array_windows().find(|[slot, next]| slot == next) {
        return Err(Error::SharedSlot { slot: pair[0] as usize });
    }
    for run in runs {
        if let Some(slot) = run.from.filter(|slot| *slot != run.to && written.binary_search(slot).is_ok()) {
            return Err(Error::SharedSlot { slot: slot as usize });
        }
    }
    Ok(())
}

/// A step of a model with states. Every layer, in ascending order, is convolved once and recurs once.
#[must_use = "the positions of the written slots are set by `finish`"]
#[derive(Debug)]
pub struct StateStep<'a> {
    store: &'a mut StateStore,
    runs: &'a [StateRun<'a>],
    tokens: usize,
    /// Layers whose convolution is done.
    convolved: usize,
    /// Layers whose recurrence is done.
    recurred: usize,
}

/// An operation on the state of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Convolution,
    Recurrence,
}

impl<'a> StateStep<'a> {
    #[must_use]
    pub fn shape(&self) -> &StateShape {
        &self.store.shape
    }

    /// Sets the positions of the written slots. Fails if a layer is missing; the slots are then
    /// undefined.
    pub fn finish(self) -> Result<(), Error> {
        expect("layers of the step's convolutions", self.store.shape.layers, self.convolved)?;
        expect("layers of the step's recurrences", self.store.shape.layers, self.recurred)?;
        for (slot, position) in self.runs.iter().flat_map(StateRun::written) {
            self.store.positions[slot as usize] = Some(position);
        }
        Ok(())
    }

    /// Returns the number of tokens of all runs.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn runs(&self) -> &'a [StateRun<'a>] {
        self.runs
    }

    /// Returns the index of each run's first token among the tokens of all runs.
    pub(crate) fn firsts(&self) -> Vec<usize> {
        let mut end = 0;
        let mut firsts = Vec::with_capacity(self.runs.len());
        for run in self.runs {
            firsts.push(end);
            end += run.length;
        }
        firsts
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.store.sizes
    }

    /// Fails unless `layer` is the next layer of the operation: its state can be advanced once only.
    pub(crate) fn check_layer(&self, operation: Operation, layer: usize) -> Result<(), Error> {
        expect_below("layer", self.store.shape.layers, layer)?;
        match operation {
            Operation::Convolution => expect("next layer of the step's convolutions", self.convolved, layer),
            Operation::Recurrence => expect("next layer of the step's recurrences", self.recurred, layer),
        }
    }

    /// Returns the states of a layer, and records that the operation is done.
    pub(crate) fn advance(&mut self, operation: Operation, layer: usize) -> LayerStates<'_> {
        match operation {
            Operation::Convolution => self.convolved += 1,
            Operation::Recurrence => self.recurred += 1,
        }
        let (shape, sizes) = (self.store.shape, self.store.sizes);
        LayerStates { shape, sizes, layer, memory: Disjoint::new(self.store.buffer.as_mut_slice()) }
    }
}
