//! The backend of models whose rows of logits stay on a device of libtorch. A device computes a step after
//! its launch.
//!
//! One upload has the inputs of the model and of the sampler, and one download has the tokens. They also stay
//! on the device, as inputs of the next step. A call without memory is made a second time, after libtorch's
//! unused memory is freed.

use std::collections::VecDeque;

use tandem_core::cache::CacheSize;
use tandem_core::error::{DeviceFault, StepError};
use tandem_core::models::{Backend, DevicePart, Drawn, KeptRow, ModelShape, SequenceChunk};
use tandem_core::sampling::{Chosen, HostSampler, RowPlan, Sampling, Slot, TokenPlan};
use tch::Tensor;

use super::model::{DeviceRows, TorchModel};
use crate::device::event::Event;
use crate::device::upload::Upload;
use crate::error::Error;
use crate::sampler::{DeviceSampler, Launched, Planned, RowOutcome};

/// Computes steps with a model, and draws their tokens on the device.
#[derive(Debug)]
pub struct TorchBackend {
    model: Box<dyn TorchModel>,
    sampler: DeviceSampler,
    /// Draws the tokens whose parameters the device does not support.
    host: HostSampler,
    /// The launched steps, the earliest first.
    launched: VecDeque<Step>,
    /// The rows of the last finished step, if one is undecided.
    undecided: Option<Tensor>,
}

/// A launched step.
#[derive(Debug, Default)]
struct Step {
    /// `[rows, vocabulary]`. `None`: no logits are needed.
    rows: Option<Tensor>,
    uses: Vec<Use>,
    /// `None`: the device chooses no token.
    launched: Option<Launched>,
    /// The end of a step of which the device chooses no token. `None` on the CPU too.
    end: Option<Event>,
}

/// The use of a row.
#[derive(Debug, Clone, Copy)]
enum Use {
    /// The device chooses the token.
    Chosen,
    /// The row of this index is copied on the device.
    Kept(usize),
    /// The row of this index is copied to the host.
    Fetched(usize),
}

impl Use {
    fn of(plan: &RowPlan<'_>) -> Self {
        match plan.token {
            TokenPlan::Given(_) | TokenPlan::Drawn(_) => Self::Chosen,
            TokenPlan::Kept => Self::Kept(plan.row),
            TokenPlan::Fetched => Self::Fetched(plan.row),
        }
    }

    /// Returns the index of the row, if it is copied to the host.
    fn fetched(self) -> Option<usize> {
        match self {
            Self::Fetched(row) => Some(row),
            Self::Chosen | Self::Kept(_) => None,
        }
    }
}

/// Returns the plans of the rows whose tokens the device chooses.
fn chosen<'a, 'b>(plans: &'b [RowPlan<'a>]) -> Vec<&'b RowPlan<'a>> {
    plans.iter().filter(|plan| matches!(Use::of(plan), Use::Chosen)).collect()
}

impl TorchBackend {
    /// Creates the backend of a model.
    #[must_use]
    pub fn new(model: Box<dyn TorchModel>) -> Self {
        let sampler = model.sampler();
        Self { model, sampler, host: HostSampler::default(), launched: VecDeque::new(), undecided: None }
    }

    /// Chooses the tokens of a step as planned, with the step's upload if that has the plans.
    fn choose(
        &mut self,
        step: &mut Step,
        plans: &[RowPlan<'_>],
        first: impl FnOnce(&mut DeviceSampler, &Tensor) -> Result<Option<Launched>, Error>,
    ) -> Result<(), Error> {
        if let Some(rows) = &step.rows {
            step.launched = match first(&mut self.sampler, rows) {
                // If another step is in flight, this one is computed again after it.
                Err(error) if error.is_out_of_memory() && self.launched.is_empty() => {
                    self.model.free_cache();
                    choose_now(&mut self.sampler, rows, plans)?
                }
                launched => launched?,
            };
        }
        if step.launched.is_none() {
            step.end = Event::record(self.model.device())?;
        }
        step.uses = plans.iter().map(Use::of).collect();
        Ok(())
    }

    /// Copies a row `[1, vocabulary]` of a step.
    fn copied(&mut self, rows: Option<&Tensor>, used: Use) -> Result<KeptRow, Error> {
        let row = |row: usize| Ok::<_, Error>(rows.ok_or(Error::Step(StepError::Broken))?.f_narrow(0, row as i64, 1)?);
        match used {
            Use::Chosen => Err(Error::Step(StepError::Broken)),
            Use::Kept(at) => {
                let row = row(at)?;
                let kept = self.with_second_try(|sampler| sampler.keep(&row))?;
                Ok(KeptRow::Device(Box::new(kept)))
            }
            Use::Fetched(at) => {
                let row = row(at)?;
                self.with_second_try(|sampler| sampler.fetch(&row)).map(KeptRow::Host)
            }
        }
    }

    /// Copies adjacent rows to the host in one copy. Returns none if there are not several, or if the copy fails:
    /// each is then copied alone.
    ///
    /// # Errors
    /// The device has failed for good.
    fn fetched_together(&mut self, rows: Option<&Tensor>, uses: &[Use]) -> Result<VecDeque<Vec<f32>>, Error> {
        let wanted: Vec<usize> = uses.iter().filter_map(|used| used.fetched()).collect();
        let is_adjacent = wanted.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let Some(rows) = rows.filter(|_| wanted.len() > 1 && is_adjacent) else { return Ok(VecDeque::new()) };
        let copied = rows.f_narrow(0, wanted[0] as i64, wanted.len() as i64).map_err(Error::from);
        let numbers = match copied.and_then(|rows| self.sampler.fetch(&rows)) {
            Err(error) if error.device_fault() == Some(DeviceFault::Lost) => return Err(error),
            numbers => numbers.unwrap_or_default(),
        };
        Ok(numbers.chunks_exact((numbers.len() / wanted.len()).max(1)).map(<[f32]>::to_vec).collect())
    }

    fn with_second_try<T>(&mut self, mut call: impl FnMut(&mut DeviceSampler) -> Result<T, Error>) -> Result<T, Error> {
        match call(&mut self.sampler) {
            Err(error) if error.is_out_of_memory() => {
                self.free(&error);
                call(&mut self.sampler)
            }
            done => done,
        }
    }

    fn free(&mut self, error: &Error) {
        tracing::warn!(error = error.chain(), "sampling exceeds the device's memory, trying again");
        self.model.free_cache();
    }

    /// Decides an undecided row alone. If the device has too little memory, the row fails.
    fn decide_alone(&mut self, rows: &Tensor, plan: &RowPlan<'_>) -> Result<Drawn, Error> {
        match self.sampler.decide(rows, &[plan]) {
            Err(error) if error.is_out_of_memory() => {
                self.free(&error);
                Ok(failed(error))
            }
            decided => Ok(drawn_of(decided?.into_iter().next())),
        }
    }
}

impl Backend for TorchBackend {
    fn shape(&self) -> ModelShape {
        self.model.shape()
    }

    fn long_after(&self) -> Option<usize> {
        self.model.long_after()
    }

    fn allocate(&mut self, size: CacheSize) -> Result<(), StepError> {
        Ok(self.model.allocate(size.blocks)?)
    }

    fn device_parts(&self) -> Vec<DevicePart> {
        self.model.device_parts()
    }

    fn free_cache(&mut self) {
        self.model.free_cache();
    }

    fn is_pipelined(&self) -> bool {
        true
    }

    fn can_draw(&self, sampling: &Sampling) -> bool {
        DeviceSampler::supports(sampling)
    }

    fn slot(&mut self, sampling: &Sampling) -> Option<Slot> {
        if self.can_draw(sampling) { self.sampler.slot(sampling) } else { self.host.slot(sampling) }
    }

    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), StepError> {
        let _no_grad = tch::no_grad_guard();
        self.undecided = None;
        let mut upload = Upload::default();
        let rows = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
        let planned = plans.and_then(|plans| planned(&mut self.sampler, rows, plans, &mut upload));
        let last = self.launched.back().and_then(|step| step.launched.as_ref()).map(Launched::ids);
        let on_device = self.model.forward(chunks, upload, last)?;
        let (rows, sent) = on_device.map(|DeviceRows { rows, sent }| (rows, sent)).unzip();
        let mut step = Step { rows, ..Step::default() };
        if let Some(plans) = plans {
            self.choose(&mut step, plans, |sampler, rows| match (planned, sent) {
                (Some(planned), Some(sent)) => sampler.launch(planned, rows, &sent).map(Some),
                _ => Ok(None),
            })?;
        }
        self.launched.push_back(step);
        Ok(())
    }

    fn draw(&mut self, plans: &[RowPlan<'_>]) -> Result<(), StepError> {
        let _no_grad = tch::no_grad_guard();
        let mut step = self.launched.pop_back().ok_or(StepError::Broken)?;
        self.choose(&mut step, plans, |sampler, rows| choose_now(sampler, rows, plans))?;
        self.launched.push_back(step);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Drawn>, StepError> {
        let _no_grad = tch::no_grad_guard();
        let Step { rows, uses, launched, end } = self.launched.pop_front().ok_or(StepError::Broken)?;
        end.map_or(Ok(()), Event::wait)?;
        let mut outcomes = launched.map_or(Ok(Vec::new()), Launched::finish)?.into_iter();
        let mut fetched = self.fetched_together(rows.as_ref(), &uses)?;
        let mut drawn = Vec::with_capacity(uses.len());
        for used in uses {
            drawn.push(match used {
                Use::Fetched(_) if !fetched.is_empty() => {
                    Drawn::Kept(KeptRow::Host(fetched.pop_front().unwrap_or_default()))
                }
                Use::Chosen => match outcomes.next() {
                    Some(RowOutcome::Undecided) => Drawn::Undecided,
                    outcome => drawn_of(outcome),
                },
                copied => match self.copied(rows.as_ref(), copied) {
                    Err(error) if error.device_fault() == Some(DeviceFault::Lost) => return Err(error.into()),
                    row => row.map_or_else(failed, Drawn::Kept),
                },
            });
        }
        self.undecided = rows.filter(|_| drawn.iter().any(|drawn| matches!(drawn, Drawn::Undecided)));
        Ok(drawn)
    }

    fn draw_again(&mut self, plans: &[RowPlan<'_>]) -> Result<Vec<Drawn>, StepError> {
        let _no_grad = tch::no_grad_guard();
        let rows = self.undecided.take().ok_or(StepError::Broken)?;
        match self.sampler.decide(&rows, &plans.iter().collect::<Vec<_>>()) {
            Err(error) if error.is_out_of_memory() => {
                self.free(&error);
                plans.iter().map(|plan| Ok(self.decide_alone(&rows, plan)?)).collect()
            }
            decided => Ok(decided?.into_iter().map(|outcome| drawn_of(Some(outcome))).collect()),
        }
    }

    fn draw_kept(&mut self, row: KeptRow, plan: &RowPlan<'_>) -> Result<Chosen, StepError> {
        let _no_grad = tch::no_grad_guard();
        match row {
            KeptRow::Host(mut row) => {
                let draw = plan.draw().ok_or(StepError::Broken)?;
                self.host.draw(&mut row, draw, plan.logprobs)
            }
            KeptRow::Device(row) => {
                let row = row.downcast_ref::<Tensor>().ok_or(StepError::Broken)?;
                let chosen = self.with_second_try(|sampler| sampler.run(row, std::slice::from_ref(plan)))?;
                Ok(chosen.into_iter().next().unwrap_or(Err(StepError::NotFinite.into()))?)
            }
        }
    }
}

/// Returns the result of a row whose token the device chose.
fn drawn_of(outcome: Option<RowOutcome>) -> Drawn {
    outcome.map_or(Err(StepError::NotFinite.into()), RowOutcome::chosen).map_or_else(failed, Drawn::Chosen)
}

fn failed(error: Error) -> Drawn {
    Drawn::Failed(error.into())
}

/// Adds the sampler's inputs to an upload. Returns `None` if the device chooses no token.
fn planned(sampler: &mut DeviceSampler, rows: usize, plans: &[RowPlan<'_>], upload: &mut Upload) -> Option<Planned> {
    let chosen = chosen(plans);
    (!chosen.is_empty()).then(|| sampler.plan(rows, &chosen, upload))
}

/// Plans and chooses tokens, with an upload for them alone.
fn choose_now(sampler: &mut DeviceSampler, rows: &Tensor, plans: &[RowPlan<'_>]) -> Result<Option<Launched>, Error> {
    let mut upload = Upload::default();
    let count = usize::try_from(rows.size()[0]).unwrap_or_default();
    let Some(planned) = planned(sampler, count, plans, &mut upload) else { return Ok(None) };
    let sent = upload.send(rows.device())?;
    sampler.launch(planned, rows, &sent).map(Some)
}
