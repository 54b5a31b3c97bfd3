//! Changes of logits before tokens are drawn: bias, penalties, masks and forbidden tokens.
//!
//! Shapes: D rows that are drawn, V vocabulary, P rows with penalties, M rows with masks, W words of a
//! mask.

use tandem_core::sampling::Draw;
use tandem_core::sampling::History;
use tch::{Kind, Tensor};

use super::slots::Slots;
use crate::device::upload::{Part, Sent, Upload};
use crate::error::Error;

/// Bits of a mask's word.
const WORD: i64 = 32;

/// The changes of a pass, in the upload.
#[derive(Debug)]
pub(super) struct Changes {
    /// Places in `[D * V]`, and the bias of each.
    bias: Option<(Part, Part)>,
    penalties: Option<Penalties>,
    /// M row indexes, and their words.
    masks: Option<(Part, Part)>,
    /// Places in `[D * V]`.
    forbidden: Option<Part>,
}

/// P of each.
#[derive(Debug)]
struct Penalties {
    rows: Part,
    slots: Part,
    repetition: Part,
    presence: Part,
    frequency: Part,
}

impl Changes {
    /// Adds the changes of draws to an upload.
    pub(super) fn new(draws: &[&Draw<'_>], vocabulary: usize, upload: &mut Upload) -> Self {
        let place = |row: usize, id: u32| (row * vocabulary) as i64 + i64::from(id);
        let bias: Vec<(i64, f32)> = numbered(draws)
            .flat_map(|(row, draw)| draw.sampling.logit_bias.iter().map(move |&(id, bias)| (place(row, id), bias)))
            .collect();
        let forbidden: Vec<i64> = numbered(draws)
            .flat_map(|(row, draw)| draw.forbidden.iter().map(move |&id| (row, id)))
            .filter(|(_, id)| (*id as usize) < vocabulary)
            .map(|(row, id)| place(row, id))
            .collect();
        Self {
            bias: (!bias.is_empty())
                .then(|| (upload.add(bias.iter().map(|it| it.0)), upload.add(bias.iter().map(|it| it.1)))),
            penalties: Penalties::new(draws, upload),
            masks: masks(draws, vocabulary, upload),
            forbidden: (!forbidden.is_empty()).then(|| upload.add(forbidden)),
        }
    }

    /// Returns the changed logits: `[D, V] -> [D, V]`. `logits` is not changed.
    pub(super) fn apply(&self, logits: &Tensor, sent: &Sent, slots: &Slots) -> Result<Tensor, Error> {
        let Self { bias, penalties, masks, forbidden } = self;
        if bias.is_none() && penalties.is_none() && masks.is_none() && forbidden.is_none() {
            return Ok(logits.shallow_clone());
        }
        let mut changed = logits.f_empty_like()?;
        changed.f_copy_(logits)?;
        if let Some((places, bias)) = bias {
            let places = sent.get(*places)?;
            let biased = bounded(changed.f_take(&places)?.f_add(&sent.get(*bias)?)?)?;
            drop(changed.f_put_(&places, &biased, false)?);
        }
        if let Some(penalties) = penalties {
            let rows = sent.get(penalties.rows)?;
            let penalized = penalties.apply(&changed.f_index_select(0, &rows)?, sent, slots)?;
            drop(changed.f_index_copy_(0, &rows, &penalized)?);
        }
        if let Some((rows, words)) = masks {
            let rows = sent.get(*rows)?;
            let masked = masked(&changed.f_index_select(0, &rows)?, &sent.get(*words)?)?;
            drop(changed.f_index_copy_(0, &rows, &masked)?);
        }
        if let Some(places) = forbidden {
            drop(changed.f_view([-1])?.f_index_fill_(0, &sent.get(*places)?, f64::NEG_INFINITY)?);
        }
        Ok(changed)
    }
}

impl Penalties {
    fn new(draws: &[&Draw<'_>], upload: &mut Upload) -> Option<Self> {
        let penalized: Vec<(usize, History<'_>, &Draw<'_>)> =
            numbered(draws).filter_map(|(row, draw)| Some((row, draw.history?, draw))).collect();
        let mut of = |number: fn(&Draw<'_>) -> f32| upload.add(penalized.iter().map(|(_, _, draw)| number(draw)));
        let repetition = of(|draw| draw.sampling.repetition_penalty);
        let presence = of(|draw| draw.sampling.presence_penalty);
        let frequency = of(|draw| draw.sampling.frequency_penalty);
        let rows = upload.add(penalized.iter().map(|(row, ..)| *row as i64));
        let slots = upload.add(penalized.iter().map(|(_, history, _)| history.slot.index() as i64));
        (!penalized.is_empty()).then_some(Self { rows, slots, repetition, presence, frequency })
    }

    /// `[P, V] -> [P, V]`
    fn apply(&self, logits: &Tensor, sent: &Sent, slots: &Slots) -> Result<Tensor, Error> {
        let counts = slots.counts.f_index_select(0, &sent.get(self.slots)?)?;
        let penalty = sent.column(self.repetition)?;
        let is_negative = logits.f_lt(0.0)?;
        let repeated = logits.f_mul(&penalty)?.f_where_self(&is_negative, &logits.f_div(&penalty)?)?;
        let logits = bounded(repeated)?.f_where_self(&counts.f_gt(0_i64)?, logits)?;
        let occurrences = counts.f_bitwise_right_shift_tensor_scalar(1_i64)?.f_to_kind(Kind::Float)?;
        let frequency = occurrences.f_mul(&sent.column(self.frequency)?)?;
        let lowered = bounded(logits.f_sub(&sent.column(self.presence)?)?.f_sub(&frequency)?)?;
        Ok(lowered.f_where_self(&occurrences.f_gt(0.0)?, &logits)?)
    }
}

/// An extreme penalty must not make infinities.
fn bounded(logits: Tensor) -> Result<Tensor, Error> {
    Ok(logits.f_clamp(f64::from(f32::MIN), f64::from(f32::MAX))?)
}

/// Adds the rows with masks, and their words. Tokens beyond a mask's last word are excluded.
fn masks(draws: &[&Draw<'_>], vocabulary: usize, upload: &mut Upload) -> Option<(Part, Part)> {
    let masks: Vec<(usize, &[u32])> = numbered(draws).filter_map(|(row, draw)| Some((row, draw.allowed?))).collect();
    let count = vocabulary.div_ceil(WORD as usize);
    let words = |words: &[u32]| -> Vec<i32> {
        let words = words.iter().copied().chain(std::iter::repeat(0)).take(count);
        words.map(u32::cast_signed).collect()
    };
    let rows = upload.add(masks.iter().map(|(row, _)| *row as i64));
    let words = upload.add(masks.iter().flat_map(|(_, mask)| words(mask)));
    (!masks.is_empty()).then_some((rows, words))
}

/// Excludes the tokens whose bit is not set: `[M, V], [M * W] -> [M, V]`
fn masked(logits: &Tensor, words: &Tensor) -> Result<Tensor, Error> {
    let (rows, vocabulary) = logits.size2()?;
    let bits = Tensor::f_arange(WORD, (Kind::Int, logits.device()))?;
    let set = words.f_view([rows, -1, 1])?.f_bitwise_right_shift(&bits)?.f_bitwise_and(1_i64)?;
    let excluded = set.f_eq(0_i64)?.f_view([rows, -1])?.f_narrow(1, 0, vocabulary)?;
    Ok(logits.f_masked_fill(&excluded, f64::NEG_INFINITY)?)
}

fn numbered<'a>(draws: &[&'a Draw<'a>]) -> impl Iterator<Item = (usize, &'a Draw<'a>)> {
    draws.iter().copied().enumerate()
}
