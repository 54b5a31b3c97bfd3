//! Failures of the device while it samples, and the rows that are counted by the place of their sampling.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use tandem_core::engine::SampledRows;
use tandem_core::lifecycle::ServerState;
use tandem_torch::SamplerCall;

use super::*;

/// Every call of the sampler.
const CALLS: [SamplerCall; 5] =
    [SamplerCall::Step, SamplerCall::Apart, SamplerCall::Again, SamplerCall::Keep, SamplerCall::Fetch];

/// The calls that failed.
type Failed = Arc<Mutex<Vec<SamplerCall>>>;

/// An engine whose sampler's calls fail.
struct Faulty {
    engine: Engine,
    /// Dropping it lets the first call of the sampler begin.
    go: mpsc::Sender<()>,
    failed: Failed,
    /// How often libtorch's unused memory was freed.
    freed: Arc<AtomicUsize>,
}

impl Faulty {
    fn start(
        overlaps: bool,
        mut fault: impl FnMut(SamplerCall, usize) -> Option<&'static str> + Send + 'static,
    ) -> Self {
        let failed = Failed::default();
        let log = Arc::clone(&failed);
        let (go, first) = mpsc::channel();
        let (model, freed) = FaultyModel::sampling(&served_with_all_tokens(), move |call, rows| {
            // An error means that the test has dropped the sender: later calls do not wait.
            let _ = first.recv();
            fault(call, rows).inspect(|_| log.lock().expect("no panic").push(call))
        });
        let (kv_memory, overlap_steps) = (Some(MANY_BLOCKS * BLOCK_BYTES), Some(overlaps));
        let slow_masks = Config { mask_patience: Duration::ZERO, ..Config::new(default_model()) };
        let config = Config { kv_memory, overlap_steps, event_buffer: 1000, ..slow_masks };
        let (engine, _) = Engine::start_with(config, move |_| Ok((served_with_all_tokens(), model))).expect("starts");
        Self { engine, go, failed, freed }
    }

    /// Runs requests at once. Returns each output's tokens with its end: None if the request was refused.
    fn run(self, requests: Vec<GenerateRequest>) -> (Vec<Vec<Output>>, Ran) {
        let Self { engine, go, failed, freed } = self;
        let running: Vec<_> = requests.into_iter().map(|request| submit(&engine, request)).collect();
        drop(go);
        let answers = running.into_iter().map(outputs).collect();
        let failed = failed.lock().expect("no panic").clone();
        (answers, Ran { engine, failed, freed: freed.load(Ordering::Relaxed) })
    }
}

/// The tokens of an output, and its end.
type Output = (Vec<u32>, Option<FinishReason>);

/// An engine after its requests.
struct Ran {
    engine: Engine,
    /// The calls that failed, in order.
    failed: Vec<SamplerCall>,
    /// How often libtorch's unused memory was freed.
    freed: usize,
}

/// Returns the outputs of a request. One that was cut off has no end.
fn outputs(mut events: Receiver<Event>) -> Vec<Output> {
    let mut outputs = vec![(Vec::new(), None); 3];
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Delta(delta) => outputs[delta.output as usize].0.extend(delta.token_ids),
            Event::Finished(end) => {
                let (ids, reason) = &mut outputs[end.last.output as usize];
                ids.extend(end.last.token_ids);
                *reason = Some(end.reason);
            }
            Event::Summary(_) => return outputs,
            Event::Refused(error) => {
                assert_eq!(error.reason().name(), "ENGINE_FAILED", "another replica can resume");
                return outputs;
            }
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
        }
    }
}

/// Returns a request with several outputs whose masks take longer than a step: each tens of
/// milliseconds, and two are computed at once.
fn with_slow_masks() -> GenerateRequest {
    let names = |of: fn(usize) -> String, between: &str| (0..300).map(of).collect::<Vec<_>>().join(between);
    let lexemes = names(|i| format!("L{i}: /[a-z]*{}?[a-z ]{{0,{i}}}/", i % 10), "\n");
    let grammar = format!("start: x~200\nx: {}\n{lexemes}", names(|i| format!("L{i}"), " | "));
    let stop = StopOptions { max_new_tokens: Some(4), ..StopOptions::default() };
    let sampling = SamplingOptions { n: Some(2), ..sampling() };
    GenerateRequest { grammar: Some(GrammarKind::Lark(grammar).into()), stop, ..request(30, sampling) }
}

/// Returns requests of each kind, which together need every call of the sampler.
fn every_request() -> Vec<GenerateRequest> {
    all_requests().into_iter().chain([with_slow_masks()]).collect()
}

/// The undisturbed answers to these.
static UNDISTURBED: LazyLock<Vec<Vec<Output>>> = LazyLock::new(|| {
    let engine = engine(true);
    every_request().into_iter().map(|request| outputs(submit(&engine, request))).collect()
});

/// Of rows that are decided at once, all tries fail, so that they are decided one by one.
#[test]
fn a_call_of_the_sampler_without_memory_is_made_once_more() {
    for overlaps in [false, true] {
        let mut last = None;
        let faulty = Faulty::start(overlaps, move |call, rows| {
            let is_again = last == Some((call, true)) && !(call == SamplerCall::Again && rows > 1);
            let continues = call == SamplerCall::Again && rows == 1 && last.is_some_and(|(last, _)| last == call);
            let fails = !is_again && !continues;
            last = Some((call, fails));
            fails.then_some(OUT_OF_MEMORY)
        });
        let (answers, ran) = faulty.run(every_request());
        assert_eq!(answers, *UNDISTURBED, "overlap: {overlaps}");
        CALLS.into_iter().for_each(|call| assert!(ran.failed.contains(&call), "{call:?}, overlap: {overlaps}"));
        assert_eq!(ran.freed, ran.failed.len(), "memory is freed before each further try");
        let tokens = UNDISTURBED.iter().flatten().map(|(ids, _)| ids.len()).sum();
        assert_at_rest(&ran.engine, tokens);
        assert_eq!(ran.engine.gauges().preemptions, 0);
    }
}

/// The step is computed again with fewer sequences.
#[test]
fn a_step_whose_tokens_lack_memory_twice_is_tried_with_half_of_its_sequences() {
    for overlaps in [false, true] {
        let faulty =
            Faulty::start(overlaps, |call, rows| (call == SamplerCall::Step && rows >= 4).then_some(OUT_OF_MEMORY));
        let requests: Vec<_> = (1..9).map(|first| request(first, sampling())).collect();
        let alone = engine(true);
        let expected: Vec<_> = requests.iter().map(|request| outputs(submit(&alone, request.clone()))).collect();
        let (answers, ran) = faulty.run(requests);
        assert_eq!(answers, expected, "overlap: {overlaps}");
        assert!(ran.engine.gauges().preemptions > 0, "overlap: {overlaps}");
    }
}

#[test]
fn a_row_that_lacks_memory_twice_ends_its_output_alone() {
    // The requests that may need the call: those with a grammar, with typical-p, and of many tokens.
    let rows = [
        (SamplerCall::Apart, [10, 15]),
        (SamplerCall::Keep, [10, 15]),
        (SamplerCall::Fetch, [4, 9]),
        (SamplerCall::Again, [13, 14]),
    ];
    for (wanted, requests) in rows {
        let faulty = Faulty::start(false, move |call, _| (call == wanted).then_some(OUT_OF_MEMORY));
        let (answers, ran) = faulty.run(every_request());
        let has_ended = |output: &Output| output.1 == Some(FinishReason::Error);
        for (number, (outputs, expected)) in answers.iter().zip(&*UNDISTURBED).enumerate() {
            for (own, expected) in outputs.iter().zip(expected) {
                let what = format!("{wanted:?}, request {number}");
                if has_ended(own) && requests.contains(&number) {
                    assert!(expected.0.starts_with(&own.0), "{what}");
                } else {
                    assert_eq!(own, expected, "{what}");
                }
            }
        }
        assert!(answers.iter().flatten().any(has_ended), "{wanted:?}: no output needs this call");
        assert_eq!(ran.engine.lifecycle().state(), ServerState::Serving);
    }
}

#[test]
fn a_device_that_is_lost_while_it_samples_ends_the_engine() {
    for wanted in CALLS {
        let faulty = Faulty::start(false, move |call, _| (call == wanted).then_some(DEVICE_LOST));
        let (answers, ran) = faulty.run(every_request());
        for (own, expected) in answers.iter().flatten().zip(UNDISTURBED.iter().flatten()) {
            assert!(own.1.is_none_or(|reason| reason != FinishReason::Error), "{wanted:?}: {own:?}");
            assert!(expected.0.starts_with(&own.0), "{wanted:?}: the tokens before the failure are right");
        }
        assert!(answers.iter().any(|outputs| outputs[0].1.is_none()), "{wanted:?}: an output is cut off");
        assert_eq!((ran.failed, ran.freed), (vec![wanted], 0), "no call follows");
        assert_eq!(ran.engine.lifecycle().state(), ServerState::Failed, "{wanted:?}");
    }
}

/// The first step may have one sequence only. Later steps fetch a row of each.
#[test]
fn a_lost_device_is_not_called_for_the_other_sequences_of_its_step() {
    let mut calls = 0;
    let faulty = Faulty::start(false, move |call, _| {
        calls += usize::from(call == SamplerCall::Fetch);
        (calls > 1).then_some(DEVICE_LOST)
    });
    let typical = |first| request(first, SamplingOptions { typical_p: Some(0.8), ..sampling() });
    let (_, ran) = faulty.run((1..5).map(typical).collect());
    assert_eq!(ran.failed, [SamplerCall::Fetch]);
    assert_eq!(ran.engine.lifecycle().state(), ServerState::Failed);
}

/// Returns the rows that an engine samples for a request alone.
fn rows_of(engine: &Engine, request: GenerateRequest) -> SampledRows {
    let rows = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(engine.flush_prefix_cache()).expect("runs");
        engine.gauges().rows
    };
    let before = rows();
    finish(submit(engine, request));
    let SampledRows { device, host } = rows();
    SampledRows { device: device - before.device, host: host - before.host }
}

#[test]
fn rows_are_counted_where_their_tokens_are_chosen() {
    let kept = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&kept);
    let Faulty { engine: on_device, .. } = Faulty::start(false, move |call, _| {
        count.fetch_add(usize::from(call == SamplerCall::Keep), Ordering::Relaxed);
        None
    });
    let typical = || request(1, SamplingOptions { typical_p: Some(0.8), ..sampling() });
    let of_prompt = Returns { prompt_logprobs: Some(1), ..returns() };
    // Of 40 tokens, the first has no log-probability. The last row is drawn.
    let with_prompt = || GenerateRequest { returns: of_prompt, ..request(2, sampling()) };
    let rows = [(request(3, sampling()), 24, 0), (typical(), 0, 24), (with_prompt(), 39 + 24, 0)];
    for (request, device, host) in rows {
        assert_eq!(rows_of(&on_device, request), SampledRows { device, host });
    }
    let (slow, tokens) = (with_slow_masks(), 2 * 4);
    assert_eq!(rows_of(&on_device, slow), SampledRows { device: tokens, host: 0 });
    assert!(kept.load(Ordering::Relaxed) > 0, "every mask was known in time");
    let on_host = engine(false);
    assert_eq!(rows_of(&on_host, typical()), SampledRows { device: 0, host: 24 });
    assert_eq!(rows_of(&on_host, with_slow_masks()), SampledRows { device: 0, host: tokens });
}
