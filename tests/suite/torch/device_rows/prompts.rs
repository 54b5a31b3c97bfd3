//! Prompts whose log-probabilities are asked for at once. They share the rows of a step.

use std::sync::{Mutex, mpsc};

use super::*;
use tandem_core::models::LogitsFor;

/// The rows of a step that prompts have together, besides one for each.
const SHARED: usize = 31;

/// The rows of the prompts of each step.
type Steps = Arc<Mutex<Vec<Vec<usize>>>>;

/// Starts an engine that holds its first step until the sender is dropped, and the rows of its steps.
fn held(rows_stay: bool) -> (Engine, mpsc::Sender<()>, Steps) {
    let (go, first) = mpsc::channel::<()>();
    let steps = Steps::default();
    let log = Arc::clone(&steps);
    let watch = move |chunks: &[SequenceChunk<'_>]| {
        // An error means that the test has dropped the sender: later steps do not wait.
        let _ = first.recv();
        let of_prompts = chunks.iter().filter(|chunk| chunk.logits == LogitsFor::All);
        log.lock().expect("no panic").push(of_prompts.map(|chunk| chunk.logit_rows().len()).collect());
        None
    };
    let served = served_with_all_tokens();
    let model = if rows_stay { FaultyModel::watched(&served, watch) } else { FaultyModel::boxed(&served, watch).0 };
    let kv_memory = Some(MANY_BLOCKS * BLOCK_BYTES);
    let config = Config { kv_memory, event_buffer: 1000, ..Config::new(default_model()) };
    (Engine::start_with(config, |_| Ok((served, model))).expect("starts").0, go, steps)
}

/// Returns a request for the log-probabilities of a prompt of `length` tokens.
fn scored(first: u32, length: u32) -> GenerateRequest {
    let returns = Returns { token_ids: true, prompt_logprobs: Some(2), ..Returns::default() };
    let input = Input::TokenIds((first..first + length).collect());
    GenerateRequest { returns, input, ..request(first, sampling()) }
}

/// Returns the requests of all prompts, with as many without log-probabilities of prompts.
fn requests_of(prompts: u32) -> Vec<GenerateRequest> {
    (0..prompts).flat_map(|i| [scored(i, 60 + i % 7), request(100 + i, sampling())]).collect()
}

/// Runs requests at once. Returns their answers, and the rows of the steps after the first.
fn together(rows_stay: bool, requests: Vec<GenerateRequest>) -> (Vec<Answer>, Vec<Vec<usize>>) {
    let (engine, go, steps) = held(rows_stay);
    let running: Vec<_> = requests.into_iter().map(|request| submit(&engine, request)).collect();
    drop(go);
    let answers = running.into_iter().map(finish).collect();
    let steps = steps.lock().expect("no panic").split_off(1);
    (answers, steps)
}

#[test]
fn prompts_at_once_have_the_log_probabilities_of_each_alone() {
    for rows_stay in [false, true] {
        let expected = answers(&engine(rows_stay), requests_of(9));
        for (own, expected) in together(rows_stay, requests_of(9)).0.iter().zip(&expected) {
            assert_eq!(own.outputs, expected.outputs, "rows stay: {rows_stay}");
            assert_near(&own.prompt, &expected.prompt);
        }
    }
}

/// Up to half of the prompts run at once. The first request begins before the others arrive.
#[test]
fn prompts_share_the_rows_of_a_step_and_each_advances_in_it() {
    for (prompts, least) in [(3, 1 + SHARED / 3), (9, 1 + SHARED / 9), (32, 1)] {
        let (_, steps) = together(true, requests_of(prompts));
        let most = steps.iter().map(Vec::len).max();
        assert!(most >= Some(prompts as usize - 1), "{prompts} prompts: {most:?} at once");
        assert!(steps.iter().all(|rows| rows.iter().sum::<usize>() <= rows.len() + SHARED), "{prompts}: {steps:?}");
        let first = steps.iter().find(|rows| Some(rows.len()) == most).expect("a step");
        assert!(first.iter().all(|rows| *rows >= least), "{prompts} prompts: {first:?}");
        let are_present = steps.windows(2).all(|pair| pair[1].len() <= pair[0].len());
        assert!(are_present, "{prompts} prompts: each is in every step until its end");
    }
}

/// A prompt alone has as many rows as before.
#[test]
fn a_prompt_alone_has_all_rows_of_a_step() {
    let (_, steps) = together(false, vec![scored(1, 100)]);
    assert_eq!(steps[..3], [vec![32], vec![32], vec![4]]);
}
