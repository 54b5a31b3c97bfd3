//! Samples the rows of a step at once, on the device where libtorch keeps them.
//!
//! The steps, their order and their meaning are those of the host. Weights are 32-bit floats and their
//! sums 64-bit floats on both, but exponentials and the order of sums differ, so that a draw near the
//! boundary of two tokens may choose the other one.
//!
//! Nothing but the tokens and their log-probabilities travels to the host, in one copy. Top-p needs the
//! likeliest tokens in order: a limited number is ranked at first. A row that needs more is drawn again
//! with all ranked.
//!
//! Shapes: R rows that are planned, D that are drawn, S of them at random, V vocabulary, N likeliest
//! tokens.

use tandem_core::error::StepError;
use tandem_core::sampling::{Chosen, Draw, Logprobs, RowPlan, Sampling, Slot, TokenPlan};
use tch::{Device, Kind, Tensor};

mod change;
mod cumulative;
mod fault;
mod filter;
mod likeliest;
mod slots;

pub use fault::SamplerCall;

use crate::device::download::Download;
use crate::device::upload::{Part, Sent, Upload};
use crate::error::Error;
use change::Changes;
use fault::Faults;
use filter::{Drawn, Filters};
use likeliest::likeliest;
use slots::{OCCURRENCE, Recount, Slots};

/// The likeliest tokens of a row that are ranked for top-p at first.
const RANKED: usize = 1024;

/// The columns of a row's result before the likeliest tokens: the id, whether the logits are finite,
/// whether the token is final, and the log-probability.
const COLUMNS: usize = 4;

/// Samples rows on a device.
#[derive(Debug)]
pub struct DeviceSampler {
    device: Device,
    slots: Slots,
    ranked: usize,
    faults: Faults,
}

/// The parts of an upload for one pass.
#[derive(Debug)]
struct Pass {
    /// R indexes among the rows of the step. None: all rows, in order.
    rows: Option<Part>,
    /// R tokens; zero if a token is drawn.
    given: Part,
    /// D indexes among the R rows.
    drawn: Part,
    /// S indexes among the D rows.
    random: Part,
    changes: Changes,
    filters: Option<Filters>,
    /// Draws with penalties: indexes among the D rows, and the places of token 0 in the counts.
    counted: (Part, Part),
    /// N, or None if no row needs log-probabilities.
    likeliest: Option<usize>,
}

/// The draws of a pass.
#[derive(Debug)]
struct Draws {
    /// `[D, 1]`
    ids: Tensor,
    /// `[D, 1]`, the largest logit.
    best: Tensor,
    /// `[D, 1]`, true if the token is final.
    is_final: Tensor,
}

impl DeviceSampler {
    /// Creates a sampler of rows of `vocabulary` logits.
    #[must_use]
    pub fn new(vocabulary: usize, device: Device) -> Self {
        Self { device, slots: Slots::new(vocabulary, device), ranked: RANKED, faults: Faults::default() }
    }

    /// Returns a sampler that ranks this many tokens at first.
    #[must_use]
    pub fn ranking(mut self, tokens: usize) -> Self {
        self.ranked = tokens.max(1);
        self
    }

    /// Returns a sampler whose calls fail as a test decides: with the error of `fault`, which gets the call and
    /// the number of its rows.
    #[must_use]
    pub fn failing(self, fault: impl FnMut(SamplerCall, usize) -> Result<(), Error> + Send + 'static) -> Self {
        Self { faults: Faults::new(fault), ..self }
    }

    /// Returns true if tokens can be drawn with these parameters.
    #[must_use]
    pub fn supports(sampling: &Sampling) -> bool {
        sampling.typical_p >= 1.0
    }

    /// Returns a place for the counts of one output's tokens, if the parameters need it.
    #[must_use]
    pub fn slot(&mut self, sampling: &Sampling) -> Option<Slot> {
        sampling.has_penalties().then(|| self.slots.take())
    }

    /// Chooses the tokens of planned rows of `logits`, `[rows, V]`. A row without finite logits has the
    /// error [`StepError::NotFinite`].
    ///
    /// # Errors
    /// libtorch failed.
    pub fn run(&mut self, logits: &Tensor, plans: &[RowPlan<'_>]) -> Result<Vec<Result<Chosen, Error>>, Error> {
        let plans: Vec<&RowPlan<'_>> = plans.iter().collect();
        let mut outcomes = self.attempt(SamplerCall::Apart, logits, &plans)?;
        let left: Vec<usize> = (0..plans.len()).filter(|&i| outcomes[i] == RowOutcome::Undecided).collect();
        let again = self.decide(logits, &left.iter().map(|&i| plans[i]).collect::<Vec<_>>())?;
        left.into_iter().zip(again).for_each(|(i, outcome)| outcomes[i] = outcome);
        Ok(outcomes.into_iter().map(RowOutcome::chosen).collect())
    }

    /// Chooses the tokens of rows that were undecided.
    ///
    /// # Errors
    /// libtorch failed.
    pub(crate) fn decide(&mut self, logits: &Tensor, plans: &[&RowPlan<'_>]) -> Result<Vec<RowOutcome>, Error> {
        let histories = plans.iter().filter_map(|plan| plan.draw()?.history);
        histories.for_each(|history| self.slots.forget(history.slot));
        self.attempt(SamplerCall::Again, logits, plans)
    }

    /// Copies a row `[1, V]` of a step, so that its token can be chosen later, and the step's other rows are
    /// freed.
    ///
    /// # Errors
    /// libtorch failed.
    pub(crate) fn keep(&mut self, row: &Tensor) -> Result<Tensor, Error> {
        self.faults.check(SamplerCall::Keep, 1)?;
        let mut copy = row.f_empty_like()?;
        copy.f_copy_(row)?;
        Ok(copy)
    }

    /// Copies rows `[n, V]` to the host.
    ///
    /// # Errors
    /// libtorch failed.
    pub(crate) fn fetch(&mut self, rows: &Tensor) -> Result<Vec<f32>, Error> {
        self.faults.check(SamplerCall::Fetch, usize::try_from(rows.size()[0]).unwrap_or_default())?;
        let mut numbers = vec![0.0; rows.numel()];
        rows.f_to_device(Device::Cpu)?.f_contiguous()?.f_copy_data(&mut numbers, rows.numel())?;
        Ok(numbers)
    }

    /// Chooses tokens, with an upload for them alone.
    fn attempt(
        &mut self,
        call: SamplerCall,
        logits: &Tensor,
        plans: &[&RowPlan<'_>],
    ) -> Result<Vec<RowOutcome>, Error> {
        if plans.is_empty() {
            return Ok(Vec::new());
        }
        let mut upload = Upload::default();
        let planned = self.plan_call(call, logits.size2()?.0 as usize, plans, &mut upload);
        let sent = upload.send(self.device)?;
        self.launch(planned, logits, &sent)?.finish()
    }

    /// Adds the inputs of planned rows, among `rows` rows of a step, to an upload. Rows that need more
    /// likeliest tokens than are ranked at first are undecided.
    pub(crate) fn plan(&mut self, rows: usize, plans: &[&RowPlan<'_>], upload: &mut Upload) -> Planned {
        self.plan_call(SamplerCall::Step, rows, plans, upload)
    }

    fn plan_call(&mut self, call: SamplerCall, rows: usize, plans: &[&RowPlan<'_>], upload: &mut Upload) -> Planned {
        let histories = || plans.iter().filter_map(|plan| plan.draw()?.history);
        let ranked = if call == SamplerCall::Again { usize::MAX } else { self.ranked };
        Planned {
            call,
            recount: self.slots.plan(histories(), upload),
            pass: Pass::new(plans, [rows, self.slots.vocabulary()], ranked, upload),
            counted: histories().map(|history| history.after_next()).collect(),
            logprobs: plans.iter().map(|plan| plan.logprobs).collect(),
        }
    }

    /// Chooses the tokens of planned rows of `logits`, `[rows, V]`. The host does not wait for them.
    ///
    /// # Errors
    /// libtorch failed.
    pub(crate) fn launch(&mut self, planned: Planned, logits: &Tensor, sent: &Sent) -> Result<Launched, Error> {
        let Planned { call, recount, pass, counted, logprobs } = planned;
        self.slots.write(recount.as_ref(), sent)?;
        let rows = match pass.rows {
            None => logits.shallow_clone(),
            Some(rows) => logits.f_index_select(0, &sent.get(rows)?)?,
        };
        let draws = pass.draw(&rows, sent, &self.slots)?;
        pass.count(&draws, sent, &mut self.slots)?;
        // A second try must repair the changes of the first, so a test's failure is in the middle.
        self.faults.check(call, logprobs.len())?;
        let ids = pass.ids(&draws, sent)?;
        let results = pass.results(&rows, &ids, &draws, sent)?;
        counted.into_iter().for_each(|(slot, tokens)| self.slots.set_counted(slot, tokens));
        Ok(Launched { ids, results: Download::start(&results)?, logprobs })
    }
}

/// Planned rows, whose inputs are in an upload.
#[derive(Debug)]
pub(crate) struct Planned {
    call: SamplerCall,
    recount: Option<Recount>,
    pass: Pass,
    /// The slots of draws with penalties, and the number of tokens that they count afterwards.
    counted: Vec<(usize, usize)>,
    logprobs: Vec<Option<usize>>,
}

/// Rows whose tokens the device chooses.
#[derive(Debug)]
pub(crate) struct Launched {
    /// `[R, 1]`
    ids: Tensor,
    /// `[R, COLUMNS + 2 N]`
    results: Download,
    logprobs: Vec<Option<usize>>,
}

/// The result of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowOutcome {
    Chosen(Chosen),
    /// No logit is a finite number.
    NotFinite,
    /// More tokens must be ranked.
    Undecided,
}

impl Launched {
    /// Returns the tokens on the device, `[R, 1]`.
    pub(crate) fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// Waits for the tokens.
    pub(crate) fn finish(self) -> Result<Vec<RowOutcome>, Error> {
        let numbers = self.results.finish()?;
        let width = (numbers.len() / self.logprobs.len().max(1)).max(1);
        Ok(self.logprobs.iter().zip(numbers.chunks_exact(width)).map(|(count, row)| outcome(*count, row)).collect())
    }
}

impl RowOutcome {
    /// Returns the token.
    ///
    /// # Errors
    /// [`StepError::NotFinite`].
    pub(crate) fn chosen(self) -> Result<Chosen, Error> {
        match self {
            Self::Chosen(chosen) => Ok(chosen),
            Self::NotFinite | Self::Undecided => Err(Error::Step(StepError::NotFinite)),
        }
    }
}

impl Pass {
    fn new(plans: &[&RowPlan<'_>], [count, vocabulary]: [usize; 2], ranked: usize, upload: &mut Upload) -> Self {
        let is_whole = plans.iter().map(|plan| plan.row).eq(0..count);
        let drawn: Vec<(usize, &Draw<'_>)> =
            plans.iter().enumerate().filter_map(|(i, plan)| Some((i, plan.draw()?))).collect();
        let draws: Vec<&Draw<'_>> = drawn.iter().map(|(_, draw)| *draw).collect();
        let is_random = |i: &usize| draws[*i].sampling.temperature > 0.0;
        let random: Vec<usize> = (0..draws.len()).filter(is_random).collect();
        let filtered: Vec<&Draw<'_>> = random.iter().map(|&i| draws[i]).collect();
        let counted: Vec<(usize, &Slot)> =
            draws.iter().enumerate().filter_map(|(i, draw)| Some((i, draw.history?.slot))).collect();
        let given = |plan: &&RowPlan<'_>| match plan.token {
            TokenPlan::Given(id) => i64::from(id),
            _ => 0,
        };
        Self {
            rows: (!is_whole).then(|| upload.add(plans.iter().map(|plan| plan.row as i64))),
            given: upload.add(plans.iter().map(given)),
            drawn: upload.add(drawn.iter().map(|(i, _)| *i as i64)),
            random: upload.add(random.iter().map(|&i| i as i64)),
            counted: (
                upload.add(counted.iter().map(|(i, _)| *i as i64)),
                upload.add(counted.iter().map(|(_, slot)| (slot.index() * vocabulary) as i64)),
            ),
            changes: Changes::new(&draws, vocabulary, upload),
            filters: (!filtered.is_empty()).then(|| Filters::new(&filtered, vocabulary, ranked, upload)),
            likeliest: plans.iter().filter_map(|plan| plan.logprobs).max().map(|count| count.min(vocabulary)),
        }
    }

    /// Draws tokens from the rows `[R, V]`.
    fn draw(&self, rows: &Tensor, sent: &Sent, slots: &Slots) -> Result<Draws, Error> {
        let drawn = sent.get(self.drawn)?;
        let logits =
            if drawn.size()[0] == rows.size()[0] { rows.shallow_clone() } else { rows.f_index_select(0, &drawn)? };
        let logits = self.changes.apply(&logits, sent, slots)?;
        if logits.size()[0] == 0 {
            let none = |kind| Tensor::f_zeros([0, 1], (kind, rows.device()));
            return Ok(Draws { ids: none(Kind::Int64)?, best: none(Kind::Float)?, is_final: none(Kind::Bool)? });
        }
        let (best, mut ids) = logits.f_max_dim(1, true)?;
        let mut is_final = ids.f_ge(0_i64)?;
        if let Some(filters) = &self.filters {
            let random = sent.get(self.random)?;
            let of = |all: &Tensor| all.f_index_select(0, &random);
            let Drawn { ids: drawn, is_final: finals } = filters.draw(&of(&logits)?, &of(&best)?, sent)?;
            drop(ids.f_index_copy_(0, &random, &drawn)?);
            if let Some(finals) = finals {
                drop(is_final.f_index_copy_(0, &random, &finals)?);
            }
        }
        Ok(Draws { ids, best, is_final })
    }

    /// Counts the tokens of draws with penalties, if they are final.
    fn count(&self, draws: &Draws, sent: &Sent, slots: &mut Slots) -> Result<(), Error> {
        let (rows, places) = (sent.get(self.counted.0)?, sent.get(self.counted.1)?);
        if rows.size()[0] == 0 {
            return Ok(());
        }
        let of = |column: &Tensor| column.f_index_select(0, &rows)?.f_squeeze_dim(1);
        let counted = of(&draws.is_final)?.f_to_kind(Kind::Int)?.f_mul_scalar(OCCURRENCE)?;
        let places = places.f_add(&of(&draws.ids)?)?;
        drop(slots.counts.f_view([-1])?.f_index_add_(0, &places, &counted)?);
        Ok(())
    }

    /// Returns the tokens, `[R, 1]`.
    fn ids(&self, draws: &Draws, sent: &Sent) -> Result<Tensor, Error> {
        let mut ids = sent.column(self.given)?;
        drop(ids.f_index_copy_(0, &sent.get(self.drawn)?, &draws.ids)?);
        Ok(ids)
    }

    /// Returns the results, `[R, COLUMNS + 2 N]` 64-bit floats, which represent every id.
    fn results(&self, rows: &Tensor, ids: &Tensor, draws: &Draws, sent: &Sent) -> Result<Tensor, Error> {
        let drawn = sent.get(self.drawn)?;
        let (mut is_finite, mut is_final) = (ids.f_ones_like()?, ids.f_ones_like()?);
        drop(is_finite.f_index_copy_(0, &drawn, &draws.best.f_isfinite()?.f_to_kind(Kind::Int64)?)?);
        drop(is_final.f_index_copy_(0, &drawn, &draws.is_final.f_to_kind(Kind::Int64)?)?);
        let mut columns = vec![ids.shallow_clone(), is_finite, is_final];
        match self.likeliest {
            None => columns.push(ids.f_zeros_like()?),
            Some(count) => columns.extend(logprobs(rows, ids, count as i64)?),
        }
        let columns: Vec<Tensor> = columns.iter().map(|it| it.f_to_kind(Kind::Double)).collect::<Result<_, _>>()?;
        Ok(Tensor::f_cat(&columns, 1)?)
    }
}

/// Returns the log-probabilities of tokens, `[R, 1]`, and the N likeliest tokens with theirs, `[R, N]`
/// each: `[R, V], [R, 1]`
fn logprobs(rows: &Tensor, ids: &Tensor, count: i64) -> Result<Vec<Tensor>, Error> {
    let totals = rows.f_logsumexp([1], true)?;
    let of = |ids: &Tensor| rows.f_gather(1, ids, false)?.f_sub(&totals);
    if count == 0 {
        return Ok(vec![of(ids)?]);
    }
    let top = likeliest(rows, count)?;
    let top_logprobs = of(&top)?;
    Ok(vec![of(ids)?, top, top_logprobs])
}

/// Reads a row's result, with log-probabilities of this many likeliest tokens.
fn outcome(logprobs: Option<usize>, row: &[f64]) -> RowOutcome {
    let (first, rest) = row.split_at(COLUMNS);
    let [id, is_finite, is_final, logprob] = first else { return RowOutcome::NotFinite };
    if *is_finite == 0.0 {
        return RowOutcome::NotFinite;
    }
    if *is_final == 0.0 {
        return RowOutcome::Undecided;
    }
    let (ids, numbers) = rest.split_at(rest.len() / 2);
    let top = ids.iter().zip(numbers).map(|(&id, &logprob)| (id as u32, logprob as f32));
    let logprobs = logprobs.map(|count| Logprobs { logprob: *logprob as f32, top: top.take(count).collect() });
    RowOutcome::Chosen(Chosen { id: *id as u32, logprobs })
}
