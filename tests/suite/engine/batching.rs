//! Requests that share one engine: batches, chunked prompts, the prefix cache, preemption,
//! priorities. The model is a function of the tokens that it reads back from its blocks, so that a
//! wrong block changes the output.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tandem_common::status::Reason;
use tandem_core::answer::{Event, FinishReason, Summary};
use tandem_core::cache::BLOCK;
use tandem_core::engine::{Config, Engine};
use tandem_core::error::{LoadError, MemoryError, RequestError};
use tandem_core::models::Model;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::request::{
    GenerateRequest, Input, OutputSpec, Returns, SamplingOptions, ServedModel, SpecialTokenClass, StopOptions,
};
use tandem_tests::fakes::model::{Echo, Gate, Steps};
use tandem_tests::served_model::{VOCABULARY, served_model};
use tandem_tests::{default_model, error_texts, scramble, wait_until};
use tokio::sync::mpsc::Receiver;

/// Starts an engine with memory for `blocks` blocks.
fn engine(blocks: u64, change: impl FnOnce(&mut Config)) -> (Engine, Steps) {
    paced(blocks, Duration::ZERO, change)
}

/// The positions of a block of a GPU.
const LONG_BLOCK: usize = 256;

/// The memory of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// The positions of a block.
    block: usize,
    /// The size of a recurrent state, in blocks. 0: the model has none.
    state: u64,
}

/// Blocks of the CPU.
const CPU: Memory = Memory { block: BLOCK, state: 0 };
/// Blocks of a GPU.
const GPU: Memory = Memory { block: LONG_BLOCK, state: 0 };
/// As many states as blocks.
pub(super) const MANY_STATES: Memory = Memory { block: BLOCK, state: 1 };
/// Few states.
pub(super) const FEW_STATES: Memory = Memory { block: BLOCK, state: 8 };

const MEMORIES: [Memory; 4] = [CPU, GPU, MANY_STATES, FEW_STATES];

impl Memory {
    /// Returns the model, without a log of its steps.
    fn model(self) -> Echo {
        Echo::of_block(self.block).with_states(self.state * BLOCK_BYTES)
    }

    /// Returns the bytes of this many blocks, and of as many for states, if the model has them.
    fn bytes(self, blocks: u64) -> u64 {
        blocks * BLOCK_BYTES * if self.state > 0 { 2 } else { 1 }
    }
}

/// The bytes of [`BLOCK`] positions.
const BLOCK_BYTES: u64 = 4 * BLOCK as u64;

/// Starts an engine with this memory for blocks, as much as [`engine`] has.
pub(super) fn engine_of(memory: Memory, blocks: u64, change: impl FnOnce(&mut Config)) -> (Engine, Steps) {
    logged(memory.bytes(blocks), memory.model(), change)
}

/// Starts an engine whose steps each take `pause`.
fn paced(blocks: u64, pause: Duration, change: impl FnOnce(&mut Config)) -> (Engine, Steps) {
    logged(CPU.bytes(blocks), Echo::paced(pause), change)
}

/// Starts an engine that computes a step when its gate allows it.
fn gated(blocks: u64, change: impl FnOnce(&mut Config)) -> (Engine, Steps, Gate) {
    gated_of(CPU, blocks, change)
}

/// The same, with other memory.
pub(super) fn gated_of(memory: Memory, blocks: u64, change: impl FnOnce(&mut Config)) -> (Engine, Steps, Gate) {
    let (gate, wait) = Gate::new();
    let (engine, steps) = logged(memory.bytes(blocks), memory.model().before_step(wait), change);
    (engine, steps, gate)
}

fn logged(bytes: u64, model: Echo, change: impl FnOnce(&mut Config)) -> (Engine, Steps) {
    let steps = model.steps();
    (start(bytes, model, change), steps)
}

fn start(bytes: u64, model: Echo, change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config::new(default_model());
    config.kv_memory = Some(bytes);
    change(&mut config);
    let started = Engine::start_with(config, |_| Ok((served_model(), Box::new(model) as Box<dyn Model>)));
    started.expect("starts").0
}

/// Returns a different prompt for each `which`.
pub(super) fn prompt(which: u64, length: usize) -> Vec<u32> {
    (0..length as u64).map(|i| (scramble(which << 32 | i) % VOCABULARY as u64) as u32).collect()
}

/// Returns a request with temperature 1 and a seed.
pub(super) fn request(prompt: &[u32], tokens: u32) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.0), seed: Some(11), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(tokens), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    }
}

pub(super) fn submit(engine: &Engine, request: GenerateRequest) -> Receiver<Event> {
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// A request's outputs, and their cost.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outputs: Vec<Vec<u32>>,
    pub(super) cached: usize,
    pub(super) summary: Summary,
}

pub(super) fn finish(mut events: Receiver<Event>) -> Answer {
    let (mut outputs, mut cached) = (Vec::<Vec<u32>>::new(), None);
    let mut add = |output: u32, ids: &[u32]| {
        let output = output as usize;
        outputs.resize(outputs.len().max(output + 1), Vec::new());
        outputs[output].extend(ids);
    };
    let summary = loop {
        match events.blocking_recv().expect("a summary comes last") {
            Event::Accepted(accepted) => cached = Some(accepted.cached_tokens),
            Event::Delta(delta) => add(delta.output, &delta.token_ids),
            Event::Finished(end) => {
                assert_eq!(end.reason, FinishReason::Length);
                add(end.last.output, &end.last.token_ids);
            }
            Event::Summary(summary) => break summary,
            Event::PromptLogprobs(_) => panic!("the request has no prompt logprobs"),
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    };
    Answer { outputs, cached: cached.expect("it was accepted"), summary }
}

/// Returns the outputs of a request that runs alone in an engine.
pub(super) fn alone(request: GenerateRequest) -> Vec<Vec<u32>> {
    let (engine, _) = engine(64, |_| {});
    finish(submit(&engine, request)).outputs
}

#[test]
fn batched_outputs_equal_single_request_outputs() {
    let requests: Vec<_> =
        (0..40).map(|i| request(&prompt(i % 13, 1 + (i as usize * 37) % 300), 1 + (i as u32 * 29) % 120)).collect();
    let expected: Vec<_> = requests.iter().cloned().map(alone).collect();
    let settings = [(4096, 64, 512), (64, 64, 16), (64, 7, 33), (66, 3, 1000), (64, 40, 1)];
    let with = |memory| settings.map(|(blocks, most, chunk)| (memory, blocks, most, chunk));
    for (memory, blocks, max_running, chunk) in MEMORIES.into_iter().flat_map(with) {
        let change = |config: &mut Config| (config.max_running, config.prefill_chunk) = (max_running, chunk);
        let (engine, _) = engine_of(memory, blocks, change);
        let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
        for (events, expected) in running.into_iter().zip(&expected) {
            let what = format!("{blocks} blocks of {memory:?}, {max_running} at once, chunks of {chunk}");
            assert_eq!(&finish(events).outputs, expected, "{what}");
        }
        assert_is_free(&engine);
    }
}

/// Asserts that no running output holds memory.
#[track_caller]
pub(super) fn assert_is_free(engine: &Engine) {
    wait_until("all memory is free again", || engine.gauges().kv_blocks.held + engine.gauges().states.held == 0);
}

#[test]
fn fifty_requests_finish_with_kv_memory_for_two() {
    let requests: Vec<_> = (0..50).map(|i| request(&prompt(i, 400), 100)).collect();
    for memory in MEMORIES {
        let positions = 2 * 500_usize.next_multiple_of(memory.block);
        let (engine, _) = engine_of(memory, (positions / BLOCK) as u64, |_| {});
        let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
        for (events, request) in running.into_iter().zip(&requests) {
            assert_eq!(finish(events).outputs, alone(request.clone()), "{memory:?}");
        }
    }
}

#[test]
fn preempted_request_resumes_with_the_same_tokens() {
    // All the short prompts fit at first. The long answers do not.
    // The later ones are longer: they take the last blocks before the first ones need them.
    let requests: Vec<_> = (0..12).map(|i| request(&prompt(i, 20 + 4 * i as usize), 400)).collect();
    for (memory, blocks) in [(CPU, 64), (GPU, 80), (MANY_STATES, 64), (FEW_STATES, 64)] {
        let (engine, _, gate) = gated_of(memory, blocks, |config| config.event_buffer = 1000);
        let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
        drop(gate);
        for (events, request) in running.into_iter().zip(&requests) {
            assert_eq!(finish(events).outputs, alone(request.clone()), "{memory:?}");
        }
        assert!(engine.gauges().preemptions > 0, "{memory:?}: memory never ran out");
        assert_is_free(&engine);
    }
}

#[test]
fn cached_prompt_prefix_is_not_computed_again() {
    [CPU, GPU].into_iter().for_each(assert_prefix_is_cached);
}

#[track_caller]
fn assert_prefix_is_cached(memory: Memory) {
    let (engine, steps) = engine_of(memory, 256, |_| {});
    let ask = |request| finish(submit(&engine, request));
    let first = ask(request(&prompt(1, 200), 40));
    assert_eq!((first.cached, first.summary.cached_tokens), (0, 0));
    let again = ask(request(&prompt(1, 200), 40));
    assert_eq!((again.cached, again.summary.cached_tokens), (192, 192), "whole parts, but never the last token");
    assert_eq!(again.outputs, first.outputs);
    let turn = [prompt(1, 200), first.outputs[0].clone(), prompt(2, 30)].concat();
    steps.lock().expect("no panic").clear();
    let next = ask(request(&turn, 5));
    assert_eq!(next.cached, 224, "the answer's tokens count, all but the last, which was never computed");
    assert_eq!(steps.lock().expect("no panic")[0], [(224, turn.len() - 224)]);
    assert_eq!(next.outputs, alone(request(&turn, 5)));
}

#[test]
fn prefix_cache_is_separate_for_each_cache_salt() {
    let salted = |salt: &str| GenerateRequest { cache_salt: salt.to_owned(), ..request(&prompt(1, 100), 5) };
    for memory in MEMORIES {
        let (engine, _) = engine_of(memory, 256, |_| {});
        let cached = |request| finish(submit(&engine, request)).cached;
        assert_eq!(["a", "b", "", "a", "b", ""].map(|salt| cached(salted(salt))), [0, 0, 0, 96, 96, 96]);
    }
}

/// The prompts share 80, 272 and 512 tokens, and differ in their last ones.
#[test]
fn prompts_that_share_parts_of_a_block_keep_their_outputs() {
    let (engine, steps) = engine_of(GPU, 256, |_| {});
    for (shared, parts) in [(90, 80), (287, 272), (512, 512)] {
        let with = |which| request(&[prompt(7, shared), prompt(which, 50)].concat(), 30);
        let salted = |which| GenerateRequest { cache_salt: shared.to_string(), ..with(which) };
        assert_eq!(finish(submit(&engine, salted(1))).cached, 0);
        // They start while others that share the same parts are running.
        let running: Vec<_> = (2..8).map(|which| (which, submit(&engine, salted(which)))).collect();
        for (which, events) in running {
            let answer = finish(events);
            assert_eq!((answer.cached, &answer.outputs), (parts, &alone(with(which))), "{shared} shared, {which}");
        }
        wait_until("all memory is free again", || engine.gauges().kv_blocks.held == 0);
    }
    assert!(steps.lock().expect("no panic").len() > 3 * 30);
}

/// One block: its positions cannot be copied to another. They are computed again.
#[test]
fn a_shared_part_of_the_only_block_is_computed_again() {
    let (engine, _) = engine_of(GPU, (LONG_BLOCK / BLOCK) as u64, |_| {});
    let with = |which| request(&[prompt(7, 64), prompt(which, 50)].concat(), 20);
    for which in [1, 2, 1, 2, 2] {
        assert_eq!(finish(submit(&engine, with(which))).outputs, alone(with(which)), "{which}");
    }
    assert_eq!(engine.gauges().kv_blocks.total, 1);
}

#[test]
fn prefix_cache_evicts_in_lru_order() {
    let (engine, _) = engine(64, |_| {});
    let cached = |which| finish(submit(&engine, request(&prompt(which, 320), 1))).cached;
    assert_eq!([1, 2, 3].map(cached), [0, 0, 0]);
    assert_eq!(cached(1), 304);
    assert_eq!(cached(4), 0, "there is room for three: the second is forgotten");
    assert_eq!([1, 3].map(cached), [304, 304]);
    assert!(cached(2) < 304);
}

#[test]
fn outputs_share_one_prompt_prefill_and_differ_by_index() {
    MEMORIES.into_iter().for_each(assert_prefill_is_shared);
}

#[track_caller]
fn assert_prefill_is_shared(memory: Memory) {
    let (engine, steps) = engine_of(memory, 256, |_| {});
    let mut several = request(&prompt(5, 300), 50);
    several.sampling.n = Some(4);
    let answer = finish(submit(&engine, several));
    assert_eq!(answer.outputs.len(), 4);
    assert_eq!(answer.outputs[0], alone(request(&prompt(5, 300), 50))[0]);
    assert!(answer.outputs[1..].iter().all(|output| *output != answer.outputs[0]));
    assert_eq!((answer.summary.prompt_tokens, answer.summary.completion_tokens), (300, 200));
    let prompts: Vec<_> = steps.lock().expect("no panic").iter().flatten().copied().filter(|run| run.1 > 1).collect();
    assert_eq!(prompts, [(0, 300), (288, 12), (288, 12), (288, 12)]);
}

#[test]
fn seeded_output_resumes_in_another_engine_from_its_tokens() {
    let whole = alone(request(&prompt(9, 50), 60)).remove(0);
    let resumed = [prompt(9, 50), whole[..23].to_vec()].concat();
    assert_eq!(alone(request(&resumed, 37))[0], whole[23..]);
}

#[test]
fn chunked_prefill_delays_neither_decoding_nor_short_prompts() {
    let (engine, steps, mut gate) = gated(4096, |config| (config.prefill_chunk, config.event_buffer) = (32, 1000));
    let talking = submit(&engine, request(&prompt(1, 10), 200));
    gate.run(5);
    let long = submit(&engine, request(&prompt(2, 900), 1));
    let short: Vec<_> = (3..8).map(|which| submit(&engine, request(&prompt(which, 20), 3))).collect();
    drop(gate);
    short.into_iter().for_each(|events| drop(finish(events)));
    assert_eq!(engine.gauges().queued, 0);
    [talking, long].into_iter().for_each(|events| drop(finish(events)));
    let steps = steps.lock().expect("no panic");
    let prompts = |step: &Vec<(usize, usize)>| step.iter().filter(|run| run.1 > 1).map(|run| run.1).sum::<usize>();
    assert!(steps.iter().all(|step| prompts(step) <= 32), "a step computes at most a chunk of prompts");
    let first = steps.iter().position(|step| step.iter().any(|run| run.0 == 10)).expect("it talks");
    let talks = |step: &Vec<(usize, usize)>, at: usize| step.contains(&(10 + at, 1));
    assert!((0..199).all(|at| talks(&steps[first + at], at)), "a decoding request is in every step");
    let ends_at = |length| steps.iter().position(|step| step.iter().any(|run| run.0 + run.1 == length));
    assert!(ends_at(20) < ends_at(900), "the short ones do not wait for the long one");
}

#[test]
fn higher_priority_runs_first_and_preempted_output_is_unchanged() {
    let (engine, _, mut gate) = gated(64, |config| config.max_running = 1);
    let low = submit(&engine, request(&prompt(1, 100), 300));
    gate.run(10);
    let with = |priority, which| GenerateRequest { priority, ..request(&prompt(which, 30), 5) };
    let (middle, high) = (submit(&engine, with(3, 2)), submit(&engine, with(7, 3)));
    drop(gate);
    let start = Instant::now();
    let order = [high, middle, low].map(|events| (finish(events), start.elapsed()));
    assert_eq!(engine.gauges().preemptions, 1);
    let waited = order.each_ref().map(|(answer, _)| answer.summary.timings.queue);
    assert!(waited[0] < waited[1], "the highest leaves the queue first");
    assert_eq!(order[2].0.outputs, alone(request(&prompt(1, 100), 300)));
    let equal = GenerateRequest { priority: 0, ..request(&prompt(1, 10), 5) };
    let running = submit(&engine, request(&prompt(1, 100), 30));
    finish(submit(&engine, equal));
    assert_eq!(engine.gauges().preemptions, 1, "an equal priority preempts nothing");
    finish(running);
}

/// The priority of a running request, the priority of a waiting request, and the expected number of
/// preemptions.
const PREEMPTIONS: &[(i32, i32, u64)] = &[(5, 3, 0), (3, 3, 0), (-1, -2, 0), (0, 1, 1), (-2, -1, 1), (3, 4, 1)];

#[test]
fn only_a_higher_priority_preempts_a_running_request() {
    for &(running, waiting, preemptions) in PREEMPTIONS {
        let (engine, _, mut gate) = gated(64, |config| (config.max_running, config.event_buffer) = (1, 1000));
        let with = |priority, which, tokens| GenerateRequest { priority, ..request(&prompt(which, 30), tokens) };
        let first = submit(&engine, with(running, 1, 300));
        gate.run(5);
        let second = submit(&engine, with(waiting, 2, 5));
        drop(gate);
        [second, first].into_iter().for_each(|events| drop(finish(events)));
        assert_eq!(engine.gauges().preemptions, preemptions, "{waiting} waits while {running} runs");
    }
}

#[test]
fn disconnected_caller_frees_its_kv_blocks_within_two_steps() {
    let (engine, steps) = paced(64, Duration::from_millis(20), |_| {});
    let mut events = submit(&engine, request(&prompt(1, 300), 500));
    while !matches!(events.blocking_recv(), Some(Event::Delta(_))) {}
    wait_until("its memory shows", || engine.gauges().kv_blocks.held >= 19);
    let before = steps.lock().expect("no panic").len();
    drop(events);
    wait_until("its memory is free", || engine.gauges().kv_blocks.held == 0);
    let after = steps.lock().expect("no panic").len();
    assert!(after - before <= 2, "{} steps after the cancellation", after - before);
}

#[test]
fn kv_memory_below_the_context_limits_the_context_length() {
    let (engine, _) = engine(10, |_| {});
    assert_eq!(engine.model().context_length, 160);
    let long = request(&prompt(1, 160), 1).prepare(engine.model()).expect_err("the prompt fills the context");
    assert!(matches!(long, RequestError::PromptTooLong { tokens: 160, context: 160, .. }), "{long:?}");
    error_texts::check("generate/prompt-too-long", long);
    assert_eq!(finish(submit(&engine, request(&prompt(1, 150), 100))).outputs[0].len(), 10);
    let mut config = Config::new(default_model());
    config.kv_memory = Some(10);
    let model = Box::new(Echo::default());
    let none = Engine::start_with(config, |_| Ok((served_model(), model as Box<dyn Model>)));
    let error = none.expect_err("the memory has no room for one block");
    assert!(matches!(error, LoadError::Memory(MemoryError::Kv { bytes: 10, least: 1024 })), "{error:?}");
    error_texts::check("load/kv-memory", error);
}

#[test]
fn output_spec_ids_must_be_below_the_output_layer_size() {
    let asked = |vocabulary_size: usize, id: usize| {
        let id = id as u32;
        let set = || MarkerSet { token_ids: vec![id], ..MarkerSet::default() };
        let class = SpecialTokenClass { token_ids: vec![id], passes: true };
        let model = ServedModel { vocabulary_size, ..served_model() };
        let spec = |spec| GenerateRequest { output_spec: spec, ..request(&[1], 1) }.prepare(&model).map(|_| ());
        let markers = |start, end| OutputSpec { reasoning: Markers { start, end }, ..OutputSpec::default() };
        [
            spec(OutputSpec { eos_token_ids: vec![id], ..OutputSpec::default() }),
            spec(OutputSpec { special_token_classes: vec![class], ..OutputSpec::default() }),
            spec(markers(set(), MarkerSet::default())),
            spec(markers(MarkerSet::default(), set())),
        ]
    };
    let tokens = served_model().tokenizer.vocab_size();
    // A padded output layer has ids that are not in the tokenizer.
    for (layer, id) in [(VOCABULARY, VOCABULARY - 1), (tokens + 8, tokens + 7)] {
        assert!(asked(layer, id).iter().all(Result::is_ok), "{:?}", asked(layer, id));
        assert!(asked(layer, id + 1).iter().all(Result::is_err), "{layer}");
    }
}

#[test]
fn out_of_range_request_field_is_named_in_the_error() {
    let (engine, _) = engine(64, |_| {});
    let ask = |request: GenerateRequest| request.prepare(engine.model()).expect_err("a value is out of range");
    let good = request(&[1], 1);
    let sampling = |change: fn(&mut SamplingOptions)| {
        let mut request = good.clone();
        change(&mut request.sampling);
        ask(request)
    };
    let mut stop = good.clone();
    stop.stop.min_new_tokens = 2;
    let logprobs = GenerateRequest { returns: Returns { logprobs: Some(21), ..Returns::default() }, ..good.clone() };
    let salt = GenerateRequest { cache_salt: "s".repeat(1025), ..good.clone() };
    let errors = [
        sampling(|s| s.n = Some(0)),
        sampling(|s| s.n = Some(17)),
        sampling(|s| s.typical_p = Some(0.0)),
        sampling(|s| s.presence_penalty = Some(2.5)),
        sampling(|s| s.frequency_penalty = Some(-3.0)),
        sampling(|s| s.logit_bias = vec![(64, 1.0)]),
        sampling(|s| s.logit_bias = vec![(3, f32::INFINITY)]),
        ask(stop),
        ask(logprobs),
        ask(salt),
    ];
    let field = |error: &RequestError| match error {
        RequestError::Invalid { field, .. } => field.to_string(),
        other => panic!("{other:?}"),
    };
    let fields = [
        "sampling.n",
        "sampling.n",
        "sampling.typical_p",
        "sampling.presence_penalty",
        "sampling.frequency_penalty",
        "sampling.logit_bias[64]",
        "sampling.logit_bias[3]",
        "stop.min_new_tokens",
        "return_options.logprobs",
        "cache_salt",
    ];
    assert_eq!(errors.each_ref().map(field), fields);
    error_texts::check_rows("generate/out-of-range", errors);
}

#[test]
fn requests_with_unread_events_are_preempted_and_resumed() {
    for (blocks, max_running) in [(4096, 2), (40, 64)] {
        let (engine, _) = engine(blocks, |config| (config.max_running, config.event_buffer) = (max_running, 3));
        let requests: Vec<_> = (0..4).map(|i| request(&prompt(i, 200), 60)).collect();
        let unread: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
        wait_until("two are full", || engine.gauges().tokens > 4);
        std::thread::sleep(Duration::from_millis(2_500));
        let other = request(&prompt(9, 200), 60);
        assert_eq!(finish(submit(&engine, other.clone())).outputs, alone(other), "{max_running} at once");
        for (events, request) in unread.into_iter().zip(requests) {
            assert_eq!(finish(events).outputs, alone(request), "{max_running} at once");
        }
        wait_until("all memory is free again", || engine.gauges().kv_blocks.held == 0);
    }
}

#[test]
fn callers_get_equal_shares_whatever_they_queue() {
    let (engine, _, mut gate) = gated(256, |config| (config.max_running, config.event_buffer) = (4, 1000));
    let of =
        |caller: &str, which, tokens| GenerateRequest { caller: caller.into(), ..request(&prompt(which, 20), tokens) };
    let greedy: Vec<_> = (0..12).map(|which| submit(&engine, of("greedy", which, 60))).collect();
    gate.run(5);
    let polite = submit(&engine, of("polite", 99, 5));
    gate.run(30);
    let polite = finish(polite);
    assert!(engine.gauges().queued > 0, "the greedy caller still waits");
    assert_eq!(engine.gauges().preemptions, 1, "the polite caller takes a place of the greedy one");
    drop(gate);
    assert_eq!(polite.outputs, alone(of("polite", 99, 5)));
    for (which, events) in greedy.into_iter().enumerate() {
        assert_eq!(finish(events).outputs, alone(of("greedy", which as u64, 60)), "request {which}");
    }
}

/// The length of the polite caller's prompts. The greedy caller's sequences stay shorter.
const POLITE_LENGTH: usize = 100;
/// The greedy caller's outputs in a short step on a CPU, and the tokens of its prompts.
const BESIDE: usize = 8;

fn is_polite(run: &(usize, usize)) -> bool {
    run.0.max(run.1) >= POLITE_LENGTH
}

/// Submits forty short requests of a caller.
fn forty_of_the_greedy(engine: &Engine, priority: i32) -> Vec<(GenerateRequest, Receiver<Event>)> {
    let of = |which| GenerateRequest { caller: "greedy".into(), priority, ..request(&prompt(which, 10), 60) };
    (0..40).map(|which| (of(which), submit(engine, of(which)))).collect()
}

#[test]
fn steps_beside_many_streams_of_another_caller_are_short_and_contain_the_one_stream() {
    let (engine, steps, mut gate) = gated(512, |config| (config.max_running, config.event_buffer) = (64, 1000));
    let mut greedy = forty_of_the_greedy(&engine, 0);
    gate.run(6);
    let long = GenerateRequest { caller: "greedy".into(), ..request(&prompt(98, 90), 1) };
    let polite = GenerateRequest { caller: "polite".into(), ..request(&prompt(99, POLITE_LENGTH), 20) };
    let answer = submit(&engine, polite.clone());
    gate.run(2);
    greedy.push((long.clone(), submit(&engine, long)));
    gate.run(30);
    assert_eq!(finish(answer).outputs, alone(polite));
    drop(gate);
    for (request, events) in greedy {
        assert_eq!(finish(events).outputs, alone(request));
    }
    let steps = steps.lock().expect("no panic");
    let first = steps.iter().position(|step| step.contains(&(POLITE_LENGTH, 1))).expect("its second token");
    let shared = &steps[first..first + 19];
    for (at, step) in shared.iter().enumerate() {
        assert!(step.contains(&(POLITE_LENGTH + at, 1)), "step {at}: {step:?}");
        assert!(step.iter().filter(|run| run.1 == 1).count() <= 1 + BESIDE, "step {at}: {step:?}");
        assert!(step.iter().map(|run| run.1).sum::<usize>() <= 1 + 2 * BESIDE, "step {at}: {step:?}");
    }
    let rows = shared.iter().flatten().filter(|run| !is_polite(run)).count();
    assert!(rows >= 19 * BESIDE, "the other caller has the rest of each step");
}

#[test]
fn prompts_of_a_caller_with_few_outputs_are_computed_whole_in_the_next_step_which_is_short() {
    let (engine, steps, mut gate) = gated(512, |config| (config.max_running, config.event_buffer) = (64, 1000));
    let greedy = forty_of_the_greedy(&engine, 0);
    gate.run(6);
    let of = |which| GenerateRequest { caller: "polite".into(), ..request(&prompt(which, POLITE_LENGTH), 2) };
    let first = submit(&engine, of(98));
    gate.run(1);
    let second = submit(&engine, of(99));
    gate.run(2);
    {
        let steps = steps.lock().expect("no panic");
        let [.., one, two] = &steps[..] else { panic!("there are steps") };
        for step in [one, two] {
            assert!(step.contains(&(0, POLITE_LENGTH)), "{step:?}");
            assert!(step.iter().filter(|run| !is_polite(run)).count() <= BESIDE, "{step:?}");
        }
    }
    drop(gate);
    assert_eq!(finish(first).outputs, alone(of(98)));
    assert_eq!(finish(second).outputs, alone(of(99)));
    greedy.into_iter().for_each(|(_, events)| drop(finish(events)));
}

#[test]
fn stream_of_low_priority_is_in_every_step_beside_many_of_a_higher_one() {
    let (engine, steps, mut gate) = gated(512, |config| (config.max_running, config.event_buffer) = (64, 1000));
    let low = GenerateRequest { caller: "polite".into(), ..request(&prompt(99, POLITE_LENGTH), 60) };
    let answer = submit(&engine, low);
    gate.run(2);
    let greedy = forty_of_the_greedy(&engine, 5);
    gate.run(30);
    let count = steps.lock().expect("no panic").iter().filter(|step| step.iter().any(is_polite)).count();
    assert_eq!(count, 32);
    drop(gate);
    drop(finish(answer));
    greedy.into_iter().for_each(|(_, events)| drop(finish(events)));
}

#[test]
fn full_kv_cache_preempts_the_caller_with_the_most() {
    let (engine, steps, mut gate) = gated(48, |config| config.event_buffer = 1000);
    let of = |caller: &str, which, length, tokens| GenerateRequest {
        caller: caller.into(),
        ..request(&prompt(which, length), tokens)
    };
    let greedy: Vec<_> = (0..6).map(|which| of("greedy", which, 10, 150)).collect();
    let answers: Vec<_> = greedy.iter().cloned().map(|request| submit(&engine, request)).collect();
    gate.run(2);
    let polite = of("polite", 99, 200, 200);
    let answer = submit(&engine, polite.clone());
    drop(gate);
    assert_eq!(finish(answer).outputs, alone(polite));
    for (request, events) in greedy.into_iter().zip(answers) {
        assert_eq!(finish(events).outputs, alone(request));
    }
    assert!(engine.gauges().preemptions > 0, "the memory was full");
    let steps = steps.lock().expect("no panic");
    let prefills = steps.iter().flatten().filter(|run| run.1 > 1 && run.0 + run.1 >= 200).count();
    assert_eq!(prefills, 1, "the caller with one stream was not preempted");
}

/// Asserts that another caller's request starts with the next step, while requests of a greedy one have
/// waited long. `length`: the tokens of a greedy prompt.
fn assert_long_waits_leave_a_share(blocks: u64, max_running: usize, requests: u64, length: usize) {
    let (engine, _, mut gate) = gated(blocks, |config| (config.max_running, config.event_buffer) = (max_running, 1000));
    let of =
        |caller: &str, which, length| GenerateRequest { caller: caller.into(), ..request(&prompt(which, length), 60) };
    let greedy: Vec<_> = (0..requests).map(|which| submit(&engine, of("greedy", which, length))).collect();
    gate.run(2);
    std::thread::sleep(Duration::from_millis(2_100));
    let mut polite = submit(&engine, of("polite", 99, 10));
    gate.run(1);
    assert!(matches!(polite.try_recv(), Ok(Event::Accepted(_))), "it starts with the next step");
    drop(gate);
    polite.close();
    greedy.into_iter().for_each(|events| drop(finish(events)));
}

#[test]
fn long_wait_for_a_place_does_not_keep_another_caller_from_its_share() {
    assert_long_waits_leave_a_share(64, 2, 6, 20);
}

#[test]
fn long_wait_for_memory_does_not_keep_another_caller_from_its_share() {
    assert_long_waits_leave_a_share(48, 8, 4, 250);
}

#[test]
fn long_waits_are_served_by_callers() {
    let (engine, _, mut gate) = gated(64, |config| (config.max_running, config.event_buffer) = (2, 1000));
    let of = |caller: &str, priority, which| GenerateRequest {
        caller: caller.into(),
        priority,
        ..request(&prompt(which, 20), 3)
    };
    let greedy: Vec<_> = (0..40).map(|which| submit(&engine, of("greedy", i32::MAX, which))).collect();
    let mut polite = submit(&engine, of("polite", 0, 99));
    gate.run(1);
    std::thread::sleep(Duration::from_millis(2_100));
    // Two places, each free after three steps. One start of four goes to a long wait, in turns of callers.
    gate.run(12);
    let seen: Vec<_> = std::iter::from_fn(|| polite.try_recv().ok()).collect();
    let is_accepted = seen.iter().any(|event| matches!(event, Event::Accepted(_)));
    assert!(is_accepted, "it starts before most of the other caller's");
    drop(gate);
    polite.close();
    greedy.into_iter().for_each(|events| drop(finish(events)));
}

#[test]
fn long_wait_ends_beside_a_flood_of_the_highest_priority() {
    let (engine, _) = paced(256, Duration::from_millis(1), |config| {
        (config.max_running, config.event_buffer) = (2, 1000);
    });
    let with = |priority, which| GenerateRequest { priority, ..request(&prompt(which, 20), 100) };
    let mut flood: VecDeque<_> = (0..12).map(|which| submit(&engine, with(i32::MAX, which))).collect();
    let mut low = submit(&engine, with(0, 99));
    let (start, mut which) = (Instant::now(), 100);
    while low.try_recv().is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never starts");
        finish(flood.pop_front().expect("the flood has requests"));
        flood.push_back(submit(&engine, with(i32::MAX, which)));
        which += 1;
    }
    flood.into_iter().for_each(|events| drop(finish(events)));
}

/// Asserts that a request of the lowest priority starts after a long wait, while another caller's outputs of
/// the highest priority fill all places or the memory. `length`: the tokens of their prompts.
fn assert_long_wait_takes_from_a_flood(blocks: u64, max_running: usize, length: usize) {
    let (engine, _, mut gate) = gated(blocks, |config| (config.max_running, config.event_buffer) = (max_running, 1000));
    let of = |caller: &str, priority, which, length, tokens| GenerateRequest {
        caller: caller.into(),
        priority,
        ..request(&prompt(which, length), tokens)
    };
    let flood = |which| of("greedy", i32::MAX, which, length, 100);
    let greedy: Vec<_> = (0..6).map(|which| submit(&engine, flood(which))).collect();
    gate.run(2);
    let low = of("polite", i32::MIN, 99, length, 20);
    let polite = submit(&engine, low.clone());
    gate.run(1);
    std::thread::sleep(Duration::from_millis(2_100));
    gate.run(30);
    assert!(polite.is_closed(), "its output has ended");
    assert!(greedy.iter().all(|events| !events.is_closed()), "no output of the flood has ended");
    assert_eq!(engine.gauges().preemptions, 1, "one of them made room, and did not take it back");
    drop(gate);
    assert_eq!(finish(polite).outputs, alone(low));
    for (which, events) in greedy.into_iter().enumerate() {
        assert_eq!(finish(events).outputs, alone(flood(which as u64)), "request {which}");
    }
}

#[test]
fn long_wait_for_a_place_takes_it_from_a_flood_of_the_highest_priority() {
    assert_long_wait_takes_from_a_flood(64, 2, 20);
}

#[test]
fn long_wait_for_memory_takes_it_from_a_flood_of_the_highest_priority() {
    assert_long_wait_takes_from_a_flood(48, 8, 250);
}

#[test]
fn one_caller_leaves_a_quarter_of_the_queue_to_others() {
    let (engine, _) = paced(64, Duration::from_millis(1), |config| (config.max_running, config.max_queue) = (1, 8));
    let slots = |caller: &str| (0..8).map_while(|_| engine.reserve(&caller.into()).ok()).collect::<Vec<_>>();
    let greedy = slots("greedy");
    assert_eq!(greedy.len(), 6);
    let refused = engine.reserve(&"greedy".into()).expect_err("its share is full");
    assert_eq!(refused.reason(), Reason::QueueFull);
    error_texts::check("engine/queue-share-full", refused);
    let polite = slots("polite");
    assert_eq!(polite.len(), 2);
}
