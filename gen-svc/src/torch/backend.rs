//! The backend of models whose rows of logits stay on a device of libtorch. A device computes a step after
//! its launch.
//!
//! One upload has the inputs of the model and of the sampler, and one download has the tokens. They also stay
//! on the device, as inputs of the next step. A call without memory is made a second time, after libtorch's
//! unused memory is freed.

use std::collections::VecDeque;

use tch::Tensor;

use super::model::{DeviceRows, TorchModel};
use crate::error::Error;
use crate::models::{Backend, DevicePart, Drawn, KeptRow, ModelShape, SequenceChunk};
use crate::sampling::{Chosen, HostSampler, RowPlan, Sampling, Slot, TokenPlan};
use crate::torch::device::event::Event;
use crate::torch::device::upload::Upload;
use crate::torch::sampler::{DeviceSampler, Launched, Planned, RowOutcome};

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
                // Beside another step, this one is computed again.
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
        let row = |row: usize| Ok::<_, Error>(rows.ok_or(Error::EngineFailed)?.f_narrow(0, row as i64, 1)?);
        match used {
            Use::Chosen => Err(Error::EngineFailed),
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
                Ok(Drawn::Failed(error))
            }
            decided => Ok(decided?.into_iter().next().map_or(Err(Error::NotFinite), RowOutcome::chosen).into()),
        }
    }
}

impl Backend for TorchBackend {
    fn shape(&self) -> ModelShape {
        self.model.shape()
    }

    fn allocate(&mut self, blocks: u32) -> Result<(), Error> {
        self.model.allocate(blocks)
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

    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), Error> {
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

    fn draw(&mut self, plans: &[RowPlan<'_>]) -> Result<(), Error> {
        let _no_grad = tch::no_grad_guard();
        let mut step = self.launched.pop_back().ok_or(Error::EngineFailed)?;
        self.choose(&mut step, plans, |sampler, rows| choose_now(sampler, rows, plans))?;
        self.launched.push_back(step);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Drawn>, Error> {
        let _no_grad = tch::no_grad_guard();
        let Step { rows, uses, launched, end } = self.launched.pop_front().ok_or(Error::EngineFailed)?;
        end.map_or(Ok(()), Event::wait)?;
        let mut outcomes = launched.map_or(Ok(Vec::new()), Launched::finish)?.into_iter();
        let mut drawn = Vec::with_capacity(uses.len());
        for used in uses {
            drawn.push(match used {
                Use::Chosen => match outcomes.next() {
                    Some(RowOutcome::Undecided) => Drawn::Undecided,
                    outcome => outcome.map_or(Err(Error::NotFinite), RowOutcome::chosen).into(),
                },
                copied => match self.copied(rows.as_ref(), copied) {
                    Err(error) if error.is_device_lost() => return Err(error),
                    row => row.map_or_else(Drawn::Failed, Drawn::Kept),
                },
            });
        }
        self.undecided = rows.filter(|_| drawn.iter().any(|drawn| matches!(drawn, Drawn::Undecided)));
        Ok(drawn)
    }

    fn draw_again(&mut self, plans: &[RowPlan<'_>]) -> Result<Vec<Drawn>, Error> {
        let _no_grad = tch::no_grad_guard();
        let rows = self.undecided.take().ok_or(Error::EngineFailed)?;
        match self.sampler.decide(&rows, &plans.iter().collect::<Vec<_>>()) {
            Err(error) if error.is_out_of_memory() => {
                self.free(&error);
                plans.iter().map(|plan| self.decide_alone(&rows, plan)).collect()
            }
            decided => Ok(decided?.into_iter().map(|outcome| outcome.chosen().into()).collect()),
        }
    }

    fn draw_kept(&mut self, row: KeptRow, plan: &RowPlan<'_>) -> Result<Chosen, Error> {
        let _no_grad = tch::no_grad_guard();
        match row {
            KeptRow::Host(mut row) => {
                let draw = plan.draw().ok_or(Error::EngineFailed)?;
                self.host.draw(&mut row, draw, plan.logprobs)
            }
            KeptRow::Device(row) => {
                let row = row.downcast_ref::<Tensor>().ok_or(Error::EngineFailed)?;
                let chosen = self.with_second_try(|sampler| sampler.run(row, std::slice::from_ref(plan)))?;
                chosen.into_iter().next().unwrap_or(Err(Error::NotFinite))
            }
        }
    }
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
