//! Requests of every kind, with rows of logits that stay where libtorch keeps them: the answers are
//! those of an engine whose rows are on the host, also if steps are launched before the tokens of the
//! last one are known.

mod faults;
mod prompts;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use tandem_core::answer::{Event, FinishReason, Token};
use tandem_core::engine::{Config, Engine};
use tandem_core::grammar::GrammarKind;
use tandem_core::models::SequenceChunk;
use tandem_core::request::{GenerateRequest, Input, Resume, Returns, SamplingOptions, StopOptions};
use tandem_tests::default_model;
use tandem_tests::served_model::served_with_all_tokens;
use tandem_tests_full::faulty_model::{DEVICE_LOST, FaultyModel, OUT_OF_MEMORY};
use tokio::sync::mpsc::Receiver;

fn engine(rows_stay: bool) -> Engine {
    let config = Config { kv_memory: Some(64 << 10), event_buffer: 1000, ..Config::new(default_model()) };
    let load = move |_: &Config| {
        let served = served_with_all_tokens();
        let model = FaultyModel::sound(&served, rows_stay);
        Ok((served, model))
    };
    Engine::start_with(config, load).expect("starts").0
}

/// The blocks that no preemption needs.
const MANY_BLOCKS: u64 = 1024;
/// The bytes of a block of [`FaultyModel`].
const BLOCK_BYTES: u64 = 64;

/// Starts an engine whose steps overlap, with a model whose steps fail as `fault` decides. The number is
/// how often a chunk has a token that is only on the device.
fn overlapping(
    blocks: u64,
    mut fault: impl FnMut(&[SequenceChunk<'_>]) -> Option<&'static str> + Send + 'static,
) -> (Engine, Arc<AtomicUsize>) {
    let (kv_memory, overlap_steps) = (Some(blocks * BLOCK_BYTES), Some(true));
    let config = Config { kv_memory, overlap_steps, event_buffer: 1000, ..Config::new(default_model()) };
    let awaited = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&awaited);
    let load = move |_: &Config| {
        let served = served_with_all_tokens();
        let model = FaultyModel::watched(&served, move |chunks| {
            let own = chunks.iter().filter(|chunk| chunk.chosen.is_some()).count();
            count.fetch_add(own, Ordering::Relaxed);
            fault(chunks)
        });
        Ok((served, model))
    };
    (Engine::start_with(config, load).expect("starts").0, awaited)
}

fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: Some(0.3), seed: Some(3), ..SamplingOptions::default() }
}

fn returns() -> Returns {
    Returns { token_ids: true, ..Returns::default() }
}

fn request(first: u32, sampling: SamplingOptions) -> GenerateRequest {
    GenerateRequest {
        sampling,
        stop: StopOptions { max_new_tokens: Some(24), ..StopOptions::default() },
        returns: returns(),
        ..GenerateRequest::new(Input::TokenIds((first..first + 40).collect()))
    }
}

/// Returns one request of each kind.
fn requests() -> Vec<GenerateRequest> {
    let logprobs = Returns { token_ids: true, logprobs: Some(4), prompt_logprobs: Some(2), ..Returns::default() };
    let options = |change: fn(&mut SamplingOptions)| {
        let mut options = sampling();
        change(&mut options);
        options
    };
    let early = StopOptions {
        min_new_tokens: 6,
        max_new_tokens: Some(24),
        stop_token_ids: vec![500],
        ..StopOptions::default()
    };
    // Token 500 ends the output as soon as it may.
    let biased = options(|it| it.logit_bias = vec![(500, 90.0)]);
    vec![
        request(1, options(|it| it.temperature = Some(0.0))),
        request(2, sampling()),
        request(3, options(|it| (it.top_k, it.top_p) = (Some(30), Some(0.9)))),
        request(4, options(|it| (it.min_p, it.temperature) = (Some(0.02), Some(1.0)))),
        request(5, options(|it| it.typical_p = Some(0.8))),
        request(6, options(|it| (it.repetition_penalty, it.frequency_penalty) = (Some(1.2), Some(0.4)))),
        request(7, options(|it| (it.presence_penalty, it.n) = (Some(0.7), Some(3)))),
        request(8, options(|it| it.logit_bias = vec![(500, 3.0), (501, -50.0)])),
        GenerateRequest { returns: logprobs, ..request(9, sampling()) },
        GenerateRequest { returns: logprobs, ..request(10, options(|it| it.typical_p = Some(0.5))) },
        GenerateRequest {
            grammar: Some(GrammarKind::Regex("[a-z ]{8,16}".to_owned()).into()),
            ..request(11, sampling())
        },
        GenerateRequest { stop: early, ..request(12, biased) },
        GenerateRequest { returns: Returns { logprobs: Some(3), ..returns() }, ..request(13, sampling()) },
    ]
}

/// Returns requests that keep more tokens than are ranked at first. Thousands of tokens are equally likely,
/// so that the last one that is kept depends on the order of sums.
fn of_many_tokens() -> Vec<GenerateRequest> {
    vec![
        request(14, SamplingOptions { top_p: Some(0.9), n: Some(2), ..sampling() }),
        request(15, SamplingOptions { top_p: Some(0.8), presence_penalty: Some(0.6), ..sampling() }),
    ]
}

fn submit(engine: &Engine, request: GenerateRequest) -> Receiver<Event> {
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// A request's answer.
#[derive(Debug, Default)]
struct Answer {
    outputs: Vec<Vec<u32>>,
    reasons: Vec<(u32, FinishReason)>,
    prompt: Vec<Token>,
    tokens: Vec<Token>,
}

fn finish(mut events: Receiver<Event>) -> Answer {
    let mut answer = Answer { outputs: vec![Vec::new(); 3], ..Answer::default() };
    loop {
        let delta = match events.blocking_recv().expect("a summary") {
            Event::Accepted(_) => continue,
            Event::PromptLogprobs(tokens) => {
                answer.prompt.extend(tokens);
                continue;
            }
            Event::Delta(delta) => delta,
            Event::Finished(end) => {
                answer.reasons.push((end.last.output, end.reason));
                end.last
            }
            Event::Summary(_) => {
                answer.reasons.sort_by_key(|(output, _)| *output);
                return answer;
            }
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        };
        answer.outputs[delta.output as usize].extend(delta.token_ids);
        answer.tokens.extend(delta.tokens);
    }
}

/// Compares log-probabilities, which differ in the last bits.
#[track_caller]
fn assert_near(own: &[Token], expected: &[Token]) {
    assert_eq!(own.len(), expected.len());
    for (own, expected) in own.iter().zip(expected) {
        assert!(own.id == expected.id && (own.logprob - expected.logprob).abs() < 1e-4, "{own:?} {expected:?}");
        let tops = own.top.iter().zip(&expected.top);
        assert_eq!(own.top.len(), expected.top.len());
        tops.for_each(|(own, top)| assert!(own.id == top.id && (own.logprob - top.logprob).abs() < 1e-4));
    }
}

fn answers(engine: &Engine, requests: Vec<GenerateRequest>) -> Vec<Answer> {
    requests.into_iter().map(|request| finish(submit(engine, request))).collect()
}

/// The answers of an engine whose rows are on the host.
static ON_HOST: LazyLock<Vec<Answer>> = LazyLock::new(|| answers(&engine(false), requests()));

/// The answers to all requests of an engine whose steps do not overlap.
static ONE_BY_ONE: LazyLock<Vec<Answer>> = LazyLock::new(|| answers(&engine(true), all_requests()));

fn all_requests() -> Vec<GenerateRequest> {
    requests().into_iter().chain(of_many_tokens()).collect()
}

/// Runs requests at once.
fn check(engine: &Engine, requests: Vec<GenerateRequest>, expected: &[Answer]) {
    let running: Vec<_> = requests.into_iter().map(|request| submit(engine, request)).collect();
    assert_eq!(running.len(), expected.len());
    for (number, (events, expected)) in running.into_iter().zip(expected).enumerate() {
        let own = finish(events);
        assert_eq!(own.outputs, expected.outputs, "request {number}");
        assert_eq!(own.reasons, expected.reasons, "request {number}");
        assert_near(&own.prompt, &expected.prompt);
        assert_near(&own.tokens, &expected.tokens);
        assert!(expected.outputs[0].len() >= 2, "request {number} tests nothing");
    }
}

/// Returns the request that resumes an output after some of its tokens.
fn resumed(request: &GenerateRequest, output: u32, before: &[u32]) -> GenerateRequest {
    let Input::TokenIds(prompt) = &request.input else { panic!("{:?}", request.input) };
    let resume = Resume { generated_tokens: before.len() as u32, output_index: output, token_ids: Vec::new() };
    GenerateRequest {
        input: Input::TokenIds([prompt, before].concat()),
        sampling: SamplingOptions { n: None, ..request.sampling.clone() },
        returns: returns(),
        resume: Some(resume),
        ..request.clone()
    }
}

/// The first tokens are those of rows on the host, the others are chosen where libtorch keeps the rows.
#[test]
fn outputs_resume_where_the_rows_are_elsewhere() {
    let engines = [engine(true), overlapping(MANY_BLOCKS, |_| None).0];
    for (number, (request, expected)) in requests().iter().zip(&*ON_HOST).enumerate() {
        for (output, whole) in (0..).zip(&expected.outputs).filter(|(_, ids)| ids.len() > 1) {
            for (engine, cut) in engines.iter().flat_map(|engine| [1, whole.len() / 2].map(|cut| (engine, cut))) {
                let rest = finish(submit(engine, resumed(request, output, &whole[..cut])));
                let what = format!("request {number}, output {output}, after {cut} tokens");
                assert_eq!(rest.outputs[output as usize], whole[cut..], "{what}");
            }
        }
    }
}

#[test]
fn answers_are_those_of_rows_on_the_host() {
    check(&engine(true), requests(), &ON_HOST);
}

/// Waits until the engine has handled all that precedes, and fails if it holds blocks or has counted other
/// tokens than the answers have.
fn assert_at_rest(engine: &Engine, tokens: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(engine.flush_prefix_cache()).expect("runs");
    let gauges = engine.gauges();
    assert_eq!((gauges.running, gauges.kv_blocks.held), (0, 0), "a block is held");
    assert_eq!(gauges.tokens, tokens as u64, "tokens that no answer has");
}

fn tokens(answers: &[Answer]) -> usize {
    answers.iter().flat_map(|answer| &answer.outputs).map(Vec::len).sum()
}

#[test]
fn answers_are_the_same_if_steps_overlap() {
    let (engine, awaited) = overlapping(MANY_BLOCKS, |_| None);
    check(&engine, all_requests(), &ONE_BY_ONE);
    assert_at_rest(&engine, tokens(&ONE_BY_ONE));
    let before = awaited.load(Ordering::Relaxed);
    for (number, (own, expected)) in answers(&engine, all_requests()).iter().zip(&*ONE_BY_ONE).enumerate() {
        assert_eq!(own.outputs, expected.outputs, "request {number}, alone");
    }
    assert!(awaited.load(Ordering::Relaxed) > before, "no step was launched before the tokens of the last one");
}

/// An output ends with a token that the next step was launched with.
#[test]
fn what_is_computed_after_the_end_of_an_output_is_discarded() {
    let (engine, awaited) = overlapping(MANY_BLOCKS, |_| None);
    let expected = finish(submit(&engine, request(20, sampling())));
    let stop = *expected.outputs[0].get(9).expect("24 tokens");
    let first = expected.outputs[0].iter().position(|id| *id == stop).expect("the token");
    let until_stop = StopOptions { max_new_tokens: Some(24), stop_token_ids: vec![stop], ..StopOptions::default() };
    let before = awaited.load(Ordering::Relaxed);
    let answer = finish(submit(&engine, GenerateRequest { stop: until_stop, ..request(20, sampling()) }));
    assert_eq!(answer.reasons, [(0, FinishReason::Stop)]);
    assert_eq!(answer.outputs[0], expected.outputs[0][..=first]);
    let computed = awaited.load(Ordering::Relaxed) - before;
    assert_eq!(computed, first + 1, "one step beyond the end was launched");
    assert_at_rest(&engine, 24 + first + 1);
}

#[test]
fn a_grammar_and_the_host_sampler_need_each_token_before_the_next_step() {
    let (engine, awaited) = overlapping(MANY_BLOCKS, |_| None);
    let grammar = GenerateRequest {
        grammar: Some(GrammarKind::Regex("[a-z ]{8,16}".to_owned()).into()),
        ..request(1, sampling())
    };
    let typical = request(2, SamplingOptions { typical_p: Some(0.8), ..sampling() });
    for request in [grammar, typical] {
        finish(submit(&engine, request));
    }
    assert_eq!(awaited.load(Ordering::Relaxed), 0);
    finish(submit(&engine, request(3, sampling())));
    assert_eq!(awaited.load(Ordering::Relaxed), 23, "every token of the output but the last");
}

/// Returns requests whose outputs outgrow the blocks that are free when they start.
fn long_requests() -> Vec<GenerateRequest> {
    let penalties = SamplingOptions { repetition_penalty: Some(1.2), frequency_penalty: Some(0.4), ..sampling() };
    let plain = [request(20, sampling()), request(21, penalties)];
    let mut requests: Vec<_> = plain.into_iter().chain(of_many_tokens()).collect();
    requests.iter_mut().for_each(|request| request.stop.max_new_tokens = Some(60));
    requests
}

/// Too few blocks for all outputs: some are preempted while the device chooses their tokens.
#[test]
fn preempted_outputs_are_the_same_if_steps_overlap() {
    let expected = answers(&engine(true), long_requests());
    let (engine, _) = overlapping(20, |_| None);
    check(&engine, long_requests(), &expected);
    assert!(engine.gauges().preemptions > 0, "nothing was preempted");
    assert_at_rest(&engine, tokens(&expected));
}

#[test]
fn a_step_without_memory_beside_another_one_is_computed_again() {
    let mut step = 0;
    let (engine, _) = overlapping(MANY_BLOCKS, move |chunks| {
        step += 1;
        (step % 5 == 0 && chunks.len() > 1).then_some(OUT_OF_MEMORY)
    });
    check(&engine, all_requests(), &ONE_BY_ONE);
    assert_at_rest(&engine, tokens(&ONE_BY_ONE));
}

#[test]
fn a_lost_device_ends_outputs_whose_steps_overlap_with_tokens_that_are_right() {
    let mut step = 0;
    let (engine, _) = overlapping(MANY_BLOCKS, move |_| {
        step += 1;
        (step > 12).then_some(DEVICE_LOST)
    });
    let expected = &ONE_BY_ONE[0];
    let mut events = submit(&engine, requests().swap_remove(0));
    let mut ids = Vec::new();
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Delta(delta) => ids.extend(delta.token_ids),
            Event::Refused(error) => break assert_eq!(error.reason().name(), "ENGINE_FAILED"),
            Event::Finished(end) => panic!("finished: {end:?}"),
            _ => {}
        }
    }
    assert!(!ids.is_empty() && expected.outputs[0].starts_with(&ids), "{ids:?}");
}
