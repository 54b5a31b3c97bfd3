//! Requests of every kind, with rows of logits that stay where libtorch keeps them: the answers are
//! those of an engine whose rows are on the host.

use gen_svc::engine::{Config, Engine, Event, FinishReason, Token};
use gen_svc::grammar::Grammar;
use gen_svc::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tandem_tests::default_model;
use tandem_tests_full::faulty_model::{FaultyModel, served_with_all_tokens};
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

fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: Some(0.3), seed: Some(3), ..SamplingOptions::default() }
}

fn request(first: u32, sampling: SamplingOptions) -> GenerateRequest {
    GenerateRequest {
        sampling,
        stop: StopOptions { max_new_tokens: Some(24), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
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
        GenerateRequest { grammar: Some(Grammar::Regex("[a-z ]{8,16}".to_owned())), ..request(11, sampling()) },
        GenerateRequest { stop: early, ..request(12, biased) },
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

fn check(engine: &Engine) {
    let expected: Vec<Answer> = {
        let host = self::engine(false);
        requests().into_iter().map(|request| finish(submit(&host, request))).collect()
    };
    let running: Vec<_> = requests().into_iter().map(|request| submit(engine, request)).collect();
    for (number, (events, expected)) in running.into_iter().zip(&expected).enumerate() {
        let own = finish(events);
        assert_eq!(own.outputs, expected.outputs, "request {number}");
        assert_eq!(own.reasons, expected.reasons, "request {number}");
        assert_near(&own.prompt, &expected.prompt);
        assert_near(&own.tokens, &expected.tokens);
        assert!(expected.outputs[0].len() >= 2, "request {number} tests nothing");
    }
}

#[test]
fn answers_are_those_of_rows_on_the_host() {
    check(&engine(true));
}
