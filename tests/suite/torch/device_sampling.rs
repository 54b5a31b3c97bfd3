//! Sampling where libtorch keeps the rows, compared with sampling on the host. libtorch computes on the
//! CPU here, with the same calls as on a GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tandem_core::error::StepError;
use tandem_core::sampling::{Chosen, Draw, History, Logprobs, RowPlan, Sampling, TokenPlan, distribution, uniform};
use tandem_tests::Random;
use tandem_torch::{DeviceSampler, SamplerCall};
use tch::{Device, Tensor};

use tandem_tests::host_sampler::Sampler;

/// The largest difference of a draw or of a parameter for which both tokens are right.
const TOLERANCE: f64 = 1e-6;

/// A row of logits and how its token is drawn.
#[derive(Debug, Clone)]
struct Row {
    logits: Vec<f32>,
    sampling: Sampling,
    prompt: Vec<u32>,
    output: Vec<u32>,
    forbidden: Vec<u32>,
    allowed: Option<Vec<u32>>,
}

impl Row {
    /// Creates a row with random parameters. Rounded logits have many ties.
    fn random(random: &mut Random, vocabulary: usize) -> Self {
        let ids = |random: &mut Random, most: u64| -> Vec<u32> {
            (0..random.below(most + 1)).map(|_| random.below(vocabulary as u64) as u32).collect()
        };
        let scale = 1.0 + random.below(8) as f32;
        let is_rounded = random.below(3) == 0;
        let logit = |x: f32| if is_rounded { (4.0 * scale * x).round() / 4.0 } else { scale * x };
        let has_mask = random.below(4) == 0;
        Self {
            logits: random.floats(vocabulary).into_iter().map(logit).collect(),
            sampling: parameters(random, vocabulary),
            prompt: ids(random, 40),
            output: ids(random, 40),
            forbidden: if random.below(4) == 0 { ids(random, 5) } else { Vec::new() },
            allowed: has_mask.then(|| (0..vocabulary.div_ceil(32)).map(|_| random.bits() as u32 | 1).collect()),
        }
    }

    fn position(&self) -> u64 {
        (self.prompt.len() + self.output.len()) as u64
    }

    fn draw(&self) -> f64 {
        uniform(self.sampling.seed, 0, self.position())
    }

    /// Returns the logits without the tokens that the mask excludes.
    fn masked(&self) -> Vec<f32> {
        let is_allowed = |id: usize| self.allowed.as_ref().is_none_or(|words| words[id / 32] >> (id % 32) & 1 == 1);
        let masked = |(id, logit): (usize, &f32)| if is_allowed(id) { *logit } else { f32::NEG_INFINITY };
        self.logits.iter().enumerate().map(masked).collect()
    }

    /// Returns the token that the host chooses.
    fn on_host(&self) -> Result<u32, StepError> {
        let sampler = Sampler::new(self.sampling.clone(), &self.prompt);
        sampler.after(&self.output).next(&mut self.masked(), self.position(), &self.forbidden)
    }

    /// Returns true if the token is right for a draw and parameters within the tolerance.
    fn is_near(&self, id: u32) -> bool {
        let changes = [-TOLERANCE, 0.0, TOLERANCE];
        let mut logits = self.masked();
        self.forbidden.iter().for_each(|&id| logits[id as usize] = f32::NEG_INFINITY);
        changes.into_iter().flat_map(|top_p| changes.map(|min_p| (top_p, min_p))).any(|(top_p, min_p)| {
            let changed = |value: f32, change: f64| (f64::from(value) * (1.0 + change)) as f32;
            let sampling = Sampling {
                top_p: if self.sampling.top_p < 1.0 { changed(self.sampling.top_p, top_p) } else { 1.0 },
                min_p: changed(self.sampling.min_p, min_p).min(1.0),
                ..self.sampling.clone()
            };
            let kept = distribution(&sampling, &self.prompt, &self.output, &logits).expect("finite logits");
            let before: f64 = kept.iter().take_while(|(kept, _)| *kept != id).map(|(_, share)| share).sum();
            let own = kept.iter().find(|(kept, _)| *kept == id).map_or(-1.0, |(_, share)| *share);
            own >= 0.0 && before <= self.draw() + TOLERANCE && self.draw() <= before + own + TOLERANCE
        })
    }

    fn plan<'a>(&'a self, row: usize, history: Option<History<'a>>, logprobs: Option<usize>) -> RowPlan<'a> {
        let draw = Draw {
            sampling: &self.sampling,
            random: self.draw(),
            forbidden: &self.forbidden,
            allowed: self.allowed.as_deref(),
            history,
        };
        RowPlan { row, token: TokenPlan::Drawn(draw), logprobs }
    }
}

/// Returns random parameters. Each is neutral in some of the rows.
fn parameters(random: &mut Random, vocabulary: usize) -> Sampling {
    let unit = |random: &mut Random| (random.float() + 1.0) / 2.0;
    let mut some = |share: u64, neutral: f32, value: fn(f32) -> f32| {
        let value = value(unit(random));
        if random.below(share) == 0 { value } else { neutral }
    };
    let mut sampling = Sampling {
        temperature: some(5, 1.0, |x| if x < 0.3 { 0.0 } else { 2.0 * x }),
        top_p: some(2, 1.0, |x| 0.02 + 0.97 * x),
        min_p: some(4, 0.0, |x| 0.4 * x),
        repetition_penalty: some(4, 1.0, |x| 0.7 + x),
        presence_penalty: some(4, 0.0, |x| 4.0 * x - 2.0),
        frequency_penalty: some(4, 0.0, |x| 2.0 * x - 1.0),
        ..Sampling::NEUTRAL
    };
    if random.below(2) == 0 {
        sampling.top_k = random.below(vocabulary as u64 + 8) as u32;
    }
    if random.below(4) == 0 {
        sampling.logit_bias = (0..5).map(|i| (i * 7 % vocabulary as u32, 10.0 * random.float())).collect();
    }
    sampling.seed = random.bits();
    sampling
}

/// Returns the rows as a tensor, `[rows, V]`.
fn tensor(rows: &[Row]) -> Tensor {
    let numbers: Vec<f32> = rows.iter().flat_map(|row| row.logits.iter().copied()).collect();
    Tensor::from_slice(&numbers).view([rows.len() as i64, -1])
}

fn sampler(vocabulary: usize) -> DeviceSampler {
    DeviceSampler::new(vocabulary, Device::Cpu)
}

/// Returns the tokens that the device chooses.
fn on_device(
    sampler: &mut DeviceSampler,
    rows: &[Row],
    logprobs: Option<usize>,
) -> Vec<Result<Chosen, tandem_torch::Error>> {
    let slots: Vec<_> = rows.iter().map(|row| sampler.slot(&row.sampling)).collect();
    let plans = rows.iter().zip(&slots).enumerate().map(|(i, (row, slot))| {
        let history = slot.as_ref().map(|slot| History { slot, prompt: &row.prompt, output: &row.output, awaited: 0 });
        row.plan(i, history, logprobs)
    });
    sampler.run(&tensor(rows), &plans.collect::<Vec<_>>()).expect("libtorch computes")
}

#[test]
fn the_device_draws_the_tokens_of_the_host() {
    let (mut random, mut equal, mut draws) = (Random(22), 0, 0);
    for batch in 0..200 {
        // Of one part of the cumulative sums, and of several; few are ranked, so that some rows need more.
        let vocabulary = [40, 150, 300, 520][batch % 4];
        let rows: Vec<Row> = (0..500).map(|_| Row::random(&mut random, vocabulary)).collect();
        let mut sampler = sampler(vocabulary).ranking(64);
        for (row, chosen) in rows.iter().zip(on_device(&mut sampler, &rows, None)) {
            let (own, host) = (chosen.expect("finite logits").id, row.on_host().expect("finite logits"));
            draws += 1;
            equal += usize::from(own == host);
            assert!(own == host || row.is_near(own), "{own} is not {host}: {row:?}");
        }
    }
    eprintln!("{equal} of {draws} tokens are equal, the others are within {TOLERANCE} of a boundary");
    assert!(draws == 100_000 && equal * 10_000 >= draws * 9_999, "{equal} of {draws}");
}

/// The defaults and the vocabulary of usual models. Some rows need more tokens than are ranked at first.
#[test]
fn the_device_draws_the_tokens_of_the_host_from_a_large_vocabulary() {
    const VOCABULARY: usize = 49_152;
    let (mut random, mut equal, mut draws) = (Random(49), 0, 0);
    let again = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&again);
    let mut sampler = sampler(VOCABULARY).failing(move |call, rows| {
        counted.fetch_add(if call == SamplerCall::Again { rows } else { 0 }, Ordering::Relaxed);
        Ok(())
    });
    for _ in 0..20 {
        let rows: Vec<Row> = (0..50).map(|_| Row::random(&mut random, VOCABULARY)).collect();
        for (row, chosen) in rows.iter().zip(on_device(&mut sampler, &rows, None)) {
            let (own, host) = (chosen.expect("finite logits").id, row.on_host().expect("finite logits"));
            draws += 1;
            equal += usize::from(own == host);
            assert!(own == host || row.is_near(own), "{own} is not {host}: {:?}", row.sampling);
        }
    }
    let again = again.load(Ordering::Relaxed);
    eprintln!("{equal} of {draws} tokens are equal, {again} rows had all tokens ranked");
    assert!(again > 0 && again < draws / 2, "{again} of {draws}");
    assert!(equal * 1_000 >= draws * 999, "{equal} of {draws}");
}

#[test]
fn counts_for_penalties_follow_the_tokens_that_the_device_drew() {
    const VOCABULARY: usize = 90;
    let mut random = Random(5);
    let mut sampler = sampler(VOCABULARY).ranking(8);
    let mut rows: Vec<Row> = (0..12).map(|_| Row::random(&mut random, VOCABULARY)).collect();
    for row in &mut rows {
        (row.sampling.presence_penalty, row.sampling.frequency_penalty) = (0.4, 0.3);
        (row.sampling.repetition_penalty, row.output) = (1.3, Vec::new());
    }
    let mut slots: Vec<_> = rows.iter().map(|row| sampler.slot(&row.sampling)).collect();
    for step in 0..60 {
        for row in &mut rows {
            row.logits = random.floats(VOCABULARY).into_iter().map(|x| 4.0 * x).collect();
        }
        if step % 20 == 19 {
            // Two outputs are preempted, and get each other's slots.
            slots[..2].fill_with(|| None);
            slots[..2].iter_mut().for_each(|slot| *slot = sampler.slot(&rows[0].sampling));
        }
        // Some outputs wait.
        let taking_part: Vec<usize> = (0..rows.len()).filter(|_| random.below(4) > 0).collect();
        let present: Vec<Row> = taking_part.iter().map(|&i| rows[i].clone()).collect();
        let plans = present.iter().zip(&taking_part).enumerate().map(|(at, (row, &i))| {
            let slot = slots[i].as_ref().expect("it has penalties");
            row.plan(at, Some(History { slot, prompt: &row.prompt, output: &row.output, awaited: 0 }), None)
        });
        let chosen = sampler.run(&tensor(&present), &plans.collect::<Vec<_>>()).expect("libtorch computes");
        for (chosen, i) in chosen.into_iter().zip(taking_part) {
            let id = chosen.expect("finite logits").id;
            assert_eq!(id, rows[i].on_host().expect("finite logits"), "step {step}, output {i}");
            rows[i].output.push(id);
        }
    }
}

#[test]
fn log_probabilities_are_of_the_unchanged_logits_and_ties_are_in_the_order_of_ids() {
    let (mut random, vocabulary) = (Random(8), 300);
    let rows: Vec<Row> = (0..40).map(|_| Row::random(&mut random, vocabulary)).collect();
    for (row, chosen) in rows.iter().zip(on_device(&mut sampler(vocabulary), &rows, Some(20))) {
        let chosen = chosen.expect("finite logits");
        let (own, expected) = (chosen.logprobs.expect("they are planned"), Logprobs::new(&row.logits, chosen.id, 20));
        assert!((own.logprob - expected.logprob).abs() < 1e-5, "{own:?} {expected:?}");
        for (own, expected) in own.top.iter().zip(&expected.top) {
            assert!(own.0 == expected.0 && (own.1 - expected.1).abs() < 1e-5, "{own:?} {expected:?}");
        }
        assert_eq!(own.top.len(), 20);
    }
    // Tokens of a prompt, beside a row whose token is drawn.
    let given = |row: usize| RowPlan { row, token: TokenPlan::Given(row as u32 * 3), logprobs: Some(row % 3) };
    let plans = [given(7), rows[2].plan(2, None, None), given(1)];
    let chosen = sampler(vocabulary).run(&tensor(&rows), &plans).expect("libtorch computes");
    for (row, chosen) in [(7_usize, &chosen[0]), (1, &chosen[2])] {
        let chosen = chosen.as_ref().expect("a row");
        let expected = Logprobs::new(&rows[row].logits, row as u32 * 3, row % 3);
        let own = chosen.logprobs.as_ref().expect("they are planned");
        assert!(chosen.id == row as u32 * 3 && (own.logprob - expected.logprob).abs() < 1e-5);
        assert_eq!(own.top.len(), row % 3);
    }
    assert_eq!(chosen[1].as_ref().expect("a row").logprobs, None);
}

#[test]
fn a_row_without_finite_logits_fails_alone() {
    let (mut random, vocabulary) = (Random(3), 100);
    let mut rows: Vec<Row> = (0..6).map(|_| Row::random(&mut random, vocabulary)).collect();
    rows[1].logits.fill(f32::NEG_INFINITY);
    rows[1].sampling.logit_bias.clear();
    rows[2].logits[5] = f32::NAN;
    rows[3].logits.fill(f32::INFINITY);
    for (i, chosen) in on_device(&mut sampler(vocabulary), &rows, Some(3)).into_iter().enumerate() {
        match i {
            1..=3 => {
                assert!(matches!(chosen, Err(tandem_torch::Error::Step(StepError::NotFinite))), "row {i}: {chosen:?}")
            }
            _ => assert_eq!(chosen.expect("finite logits").id, rows[i].on_host().expect("finite logits")),
        }
    }
}
