//! Outputs of libtorch that are resumed or preempted, of every architecture: they have transformers' tokens.
//! Steps overlap or do not.

use std::path::Path;

use tandem_core::answer::Event;
use tandem_core::engine::{Config, DeviceChoice, DtypeChoice, Engine};
use tandem_core::request::{GenerateRequest, Input, Resume, Returns, SamplingOptions, StopOptions};
use tokio::sync::mpsc::Receiver;

use super::{TORCH, finish, load, of_torch, start, submit};

fn engine(path: &Path, overlaps: bool, change: impl Fn(&mut Config)) -> Engine {
    start(path.to_owned(), |config| {
        (config.devices, config.dtype) = (DeviceChoice::CpuTorch.into(), DtypeChoice::F32);
        config.overlap_steps = Some(overlaps);
        config.event_buffer = 1000;
        change(config);
    })
}

/// Resumes a greedy output of 64 tokens after those in `before`.
pub(super) fn resume(engine: &Engine, prompt: &[u32], before: &[u32]) -> Receiver<Event> {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(64), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        resume: Some(Resume { generated_tokens: before.len() as u32, output_index: 0, token_ids: Vec::new() }),
        ..GenerateRequest::new(Input::TokenIds([prompt, before].concat()))
    };
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// As after the failure of a replica that computed with another program: the first tokens are transformers'.
#[test]
fn outputs_of_transformers_resume_with_its_tokens() {
    for case in of_torch() {
        let folder = case.whole(&case.config, "F32");
        for overlaps in [false, true] {
            let engine = engine(folder.path(), overlaps, |_| {});
            let outputs = || case.prompts.iter().zip(&case.greedy).zip([1, 9, 31, 50, 63]);
            let running: Vec<_> = outputs().map(|((prompt, ids), cut)| resume(&engine, prompt, &ids[..cut])).collect();
            for (events, ((_, ids), cut)) in running.into_iter().zip(outputs()) {
                let what = format!("{}, overlap: {overlaps}, after {cut} tokens", case.name);
                assert_eq!(finish(events).0, ids[cut..], "{what}");
            }
        }
    }
}

/// Every prompt is sent twice. There is memory for 16 blocks of 16 positions, and each output needs 5 to 8.
#[test]
fn preempted_outputs_have_transformers_tokens() {
    for case in of_torch() {
        let folder = case.whole(&case.config, "F32");
        let memory = 16 * load(folder.path(), TORCH).shape().block_bytes;
        for overlaps in [false, true] {
            let engine = engine(folder.path(), overlaps, |config| config.kv_memory = Some(memory));
            let outputs = || case.prompts.iter().zip(&case.greedy).cycle().take(2 * case.prompts.len());
            let running: Vec<_> = outputs().map(|(prompt, _)| submit(&engine, prompt)).collect();
            let what = format!("{}, overlap: {overlaps}", case.name);
            for (events, (prompt, ids)) in running.into_iter().zip(outputs()) {
                assert_eq!(&finish(events).0, ids, "{what}, {} tokens", prompt.len());
            }
            assert!(engine.gauges().preemptions > 0, "{what}");
        }
    }
}
