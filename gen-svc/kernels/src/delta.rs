//! The recurrence of gated DeltaNet: linear attention whose state is corrected by the delta rule.
//!
//! Shapes: T tokens of a step, Hk key heads, Hv value heads, Dk key size, Dv value size,
//! C = 2 * Hk * Dk + Hv * Dv.
//!
//! Per value head, with the state S \[Dk\]\[Dv\], and for each token in order:
//!
//! ```text
//! m = decay * sum over i of S[i] * k[i]       the value that the state has for the key
//! d = beta * (v - m)                          its correction
//! S[i] = decay * S[i] + k[i] * d
//! o = sum over i of S[i] * q[i]               the output, of the updated state
//! ```
//!
//! Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024,
//! as transformers computes it for Qwen3-Next and Qwen3.5.
//!
//! Tokens are computed one after the other, so a token's result does not depend on the chunks of a
//! prompt. The columns of S are independent: a task computes sixteen of them for a whole run, and this
//! panel stays in the L1 cache.

use std::ops::Range;

use crate::clock::Part;
use crate::disjoint::Disjoint;
use crate::error::{Error, expect, product};
use crate::isa::{Isa, Kernel, WIDE};
use crate::kernels::Kernels;
use crate::state::{LayerStates, Operation, StateRun, StateShape, StateStep};

/// The key head of a value head h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeads {
    /// Consecutive value heads share a key head: h / (Hv / Hk).
    Adjacent,
    /// h % Hk. GGUF files of Qwen3.5 have this order.
    Strided,
}

impl KeyHeads {
    fn of(self, head: usize, shape: &StateShape) -> usize {
        match self {
            Self::Adjacent => head / (shape.value_heads / shape.key_heads),
            Self::Strided => head % shape.key_heads,
        }
    }
}

/// The recurrence of one layer.
#[derive(Debug, Clone, Copy)]
pub struct DeltaRule<'a> {
    /// The index among the store's layers.
    pub layer: usize,
    pub key_heads: KeyHeads,
    /// \[T\]\[C\]: queries \[Hk\]\[Dk\], keys \[Hk\]\[Dk\] and values \[Hv\]\[Dv\] of each token. Queries and keys
    /// are [normalized](Kernels::normalize_queries_and_keys).
    pub rows: &'a [f32],
    /// \[T\]\[Hv\].
    pub decay: &'a [f32],
    /// \[T\]\[Hv\].
    pub beta: &'a [f32],
}

/// The smallest count of state numbers, times tokens, for which several threads are faster than one.
const MIN_PARALLEL_STATE: usize = 32 << 10;

/// The least tokens of a run for which two panels are computed together. With fewer tokens, most of the
/// time is that of reading the state, which is faster one panel after the other.
const MIN_PAIR_TOKENS: usize = 4;

impl Kernels {
    /// Computes the recurrence of every token of the step's runs: `out` is \[T\]\[Hv\]\[Dv\]. Stores the
    /// states in the slots that the runs write.
    pub fn recur(&self, step: &mut StateStep<'_>, rule: DeltaRule<'_>, out: &mut [f32]) -> Result<(), Error> {
        let _running = self.time(Part::Recurrence);
        let (shape, sizes, tokens) = (*step.shape(), step.sizes(), step.tokens());
        step.check_layer(Operation::Recurrence, rule.layer)?;
        expect("rows of queries, keys and values", product(&[tokens, sizes.channels])?, rule.rows.len())?;
        expect("decays", product(&[tokens, shape.value_heads])?, rule.decay.len())?;
        expect("update rates", rule.decay.len(), rule.beta.len())?;
        expect("output", product(&[tokens, sizes.values])?, out.len())?;
        let is_small = out.len().saturating_mul(shape.key_size) < MIN_PARALLEL_STATE;
        let (runs, out) = (step.runs(), Disjoint::new(out));
        let firsts = step.firsts();
        let states = step.advance(Operation::Recurrence, rule.layer);
        let (pairs, heads) = (shape.panels().div_ceil(2), shape.value_heads);
        self.team.run_serially_if(is_small, runs.len() * heads * pairs, &|task| {
            let (run, head, panel) = (task / pairs / heads, task / pairs % heads, task % pairs * 2);
            self.level.run(Columns {
                rule,
                shape: &shape,
                states: &states,
                run: &runs[run],
                first: firsts[run],
                head,
                panels: panel..(panel + 2).min(shape.panels()),
                out: &out,
            });
        });
        Ok(())
    }
}

/// One or two panels of a value head, for the tokens of one run.
struct Columns<'a> {
    rule: DeltaRule<'a>,
    shape: &'a StateShape,
    states: &'a LayerStates<'a>,
    run: &'a StateRun<'a>,
    /// Index of the run's first token among the tokens of all runs.
    first: usize,
    head: usize,
    panels: Range<usize>,
    out: &'a Disjoint<'a, f32>,
}

impl Kernel for Columns<'_> {
    type Output = ();

    /// Two panels share the loads of queries and keys if there are registers for the sums of both.
    /// The results are the same.
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let has_registers = I::REGISTERS > 4 * CHAINS;
        if self.panels.len() == 2 && has_registers && self.run.length >= MIN_PAIR_TOKENS {
            return self.compute::<I, 2>(isa, self.panels.start);
        }
        for panel in self.panels.clone() {
            self.compute::<I, 1>(isa, panel);
        }
    }
}

impl Columns<'_> {
    /// Computes P panels from `panel` on. They are updated in the slot `to`.
    #[inline(always)]
    fn compute<I: Isa, const P: usize>(&self, isa: I, panel: usize) {
        let Self { run, head, .. } = *self;
        // SAFETY: only this task accesses the panels in the slots that the run writes.
        let state = unsafe { self.states.panels_mut(run.to, head, panel, P) };
        match run.from {
            None => state.fill(0.0),
            Some(slot) if slot == run.to => {}
            // SAFETY: no run writes a slot that is not the `to` of the run that reads it.
            Some(slot) => state.copy_from_slice(unsafe { self.states.panels(slot, head, panel, P) }),
        }
        let mut done = 0;
        for save in run.saves {
            self.advance::<I, P>(isa, state, panel, done..save.tokens);
            done = save.tokens;
            // SAFETY: only this task accesses the panels in the slots that the run writes.
            unsafe { self.states.panels_mut(save.slot, head, panel, P) }.copy_from_slice(state);
        }
        self.advance::<I, P>(isa, state, panel, done..run.length);
    }

    /// Computes tokens of the run.
    #[inline(always)]
    fn advance<I: Isa, const P: usize>(&self, isa: I, state: &mut [f32], panel: usize, tokens: Range<usize>) {
        let Self { rule, shape, .. } = self;
        let (size, heads) = (shape.key_size, shape.value_heads);
        let keys = shape.key_heads * size;
        let channels = 2 * keys + heads * shape.value_size;
        let query = rule.key_heads.of(self.head, shape) * size;
        let first = panel * WIDE;
        let column = self.head * shape.value_size + first;
        let width = (shape.value_size - first).min(P * WIDE);
        let panels = state.as_chunks_mut::<WIDE>().0.as_chunks_mut::<CHAINS>().0;
        for token in self.first + tokens.start..self.first + tokens.end {
            let row = &rule.rows[token * channels..][..channels];
            let value = &row[2 * keys + column..][..width];
            let mut values = [isa.splat(0.0); P];
            for (lanes, value) in values.iter_mut().zip(value.chunks(WIDE)) {
                *lanes = isa.wide_load_part(value);
            }
            let token_row = Token {
                query: &row[query..][..size],
                key: &row[keys + query..][..size],
                decay: rule.decay[token * heads + self.head],
                beta: rule.beta[token * heads + self.head],
            };
            let lanes = token_row.update(isa, panels, values);
            // SAFETY: only this task accesses these columns of the token.
            let out = unsafe { self.out.slice(token * heads * shape.value_size + column, width) };
            for (lanes, out) in lanes.iter().zip(out.chunks_mut(WIDE)) {
                isa.wide_store_part(*lanes, out);
            }
        }
    }
}

/// One token of a head.
struct Token<'a> {
    /// \[Dk\].
    query: &'a [f32],
    /// \[Dk\].
    key: &'a [f32],
    decay: f32,
    beta: f32,
}

/// Rows of a panel, one per chain.
type Rows = [[f32; WIDE]; CHAINS];

impl Token<'_> {
    /// Updates panels, \[Dk\]\[16\] each, and returns their outputs. Sums over Dk are added in four
    /// chains, which fixes the order.
    #[inline(always)]
    fn update<I: Isa, const P: usize>(&self, isa: I, panels: &mut [Rows], values: [I::W; P]) -> [I::W; P] {
        let (keys, queries) = (self.key.as_chunks::<CHAINS>().0, self.query.as_chunks::<CHAINS>().0);
        let groups = keys.len();
        let (queries, panels) = (&queries[..groups], &mut panels[..P * groups]);
        let decay: I::W = isa.splat(self.decay);
        let mut sums: [[I::W; CHAINS]; P] = [[isa.splat(0.0); CHAINS]; P];
        for group in 0..groups {
            for i in 0..CHAINS {
                let key: I::W = isa.splat(keys[group][i]);
                for p in 0..P {
                    sums[p][i] = isa.fma(isa.wide_load(&panels[p * groups + group][i]), key, sums[p][i]);
                }
            }
        }
        let mut corrections: [I::W; P] = [isa.splat(0.0); P];
        for p in 0..P {
            let known = isa.mul(decay, total(isa, sums[p]));
            corrections[p] = isa.mul(isa.splat(self.beta), isa.sub(values[p], known));
        }
        let mut sums: [[I::W; CHAINS]; P] = [[isa.splat(0.0); CHAINS]; P];
        for group in 0..groups {
            for i in 0..CHAINS {
                let key: I::W = isa.splat(keys[group][i]);
                let query: I::W = isa.splat(queries[group][i]);
                for p in 0..P {
                    let state = &mut panels[p * groups + group][i];
                    let updated = isa.fma(corrections[p], key, isa.mul(decay, isa.wide_load(state)));
                    isa.wide_store(updated, state);
                    sums[p][i] = isa.fma(updated, query, sums[p][i]);
                }
            }
        }
        let mut outputs: [I::W; P] = [isa.splat(0.0); P];
        for p in 0..P {
            outputs[p] = total(isa, sums[p]);
        }
        outputs
    }
}

/// Chains of a sum.
const CHAINS: usize = 4;

#[inline(always)]
fn total<I: Isa>(isa: I, sums: [I::W; CHAINS]) -> I::W {
    isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3]))
}
