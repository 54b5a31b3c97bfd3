//! Log-probabilities of prompts: those of prompts at once are those of each alone.

use tandem_core::answer::{Event, Token};
use tandem_core::engine::{DeviceChoice, DtypeChoice, Engine};
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tokio::sync::mpsc::Receiver;

use super::start;

fn submit(engine: &Engine, prompt: &[u32]) -> Receiver<Event> {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(2), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { prompt_logprobs: Some(3), ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    };
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

fn finish(mut events: Receiver<Event>) -> Vec<Token> {
    let mut prompt = Vec::new();
    loop {
        match events.blocking_recv().expect("an end") {
            Event::PromptLogprobs(tokens) => prompt.extend(tokens),
            Event::Summary(_) => return prompt,
            Event::Refused(error) => panic!("refused: {}", error.chain()),
            Event::Accepted(_) | Event::Delta(_) | Event::Finished(_) => {}
        }
    }
}

/// Returns the greatest difference of the same tokens.
fn difference(one: &[Token], other: &[Token]) -> f32 {
    let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
    assert_eq!(ids(one), ids(other));
    one.iter().zip(other).map(|(one, other)| (one.logprob - other.logprob).abs()).fold(0.0, f32::max)
}

/// A row of the kernels does not depend on the other rows. libtorch's differs in its last bits.
#[test]
fn prompts_at_once_have_the_log_probabilities_of_each_alone() {
    for case in ["llama", "gemma3", "qwen3_moe", "qwen3_5"].map(super::operations::case) {
        let folder = case.whole(&case.config, "F32");
        let devices = [(DeviceChoice::Cpu, 0.0), (DeviceChoice::CpuTorch, 1e-4)];
        for (device, tolerance) in devices.into_iter().take(if case.has_states() { 1 } else { 2 }) {
            let engine = start(folder.path().to_owned(), |config| {
                (config.devices, config.dtype) = (device.into(), DtypeChoice::F32);
            });
            let prompts: Vec<Vec<u32>> =
                (0..8).map(|i| (0..90 + i).map(|at| (at * 7 + i * 3) % 64).collect()).collect();
            let alone: Vec<_> = prompts.iter().map(|prompt| finish(submit(&engine, prompt))).collect();
            let running: Vec<_> = prompts.iter().map(|prompt| submit(&engine, prompt)).collect();
            for (events, expected) in running.into_iter().zip(&alone) {
                let difference = difference(&finish(events), expected);
                assert!(difference <= tolerance, "{}, {device}: {difference}", case.name);
            }
        }
    }
}
