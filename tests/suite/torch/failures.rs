//! Failures of the device in a step. The model reports them with libtorch's own texts, so that no GPU
//! is needed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tandem_common::status::Reason;
use tandem_core::answer::{Event, FinishReason};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::{DeviceFault, RequestError, StepError};
use tandem_core::lifecycle::ServerState;
use tandem_core::models::SequenceChunk;
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tandem_tests::default_model;
use tandem_tests::served_model::served_model;
use tandem_tests_full::faulty_model::{DEVICE_LOST, FaultyModel, OUT_OF_MEMORY};
use tch::{Device, Kind, TchError, Tensor};
use tokio::sync::mpsc::Receiver;

/// How long fewer sequences run after a step that was too large.
const CROWDED: Duration = Duration::from_secs(30);

/// Starts an engine with a model whose steps fail as `fault` decides. The sender lets the first step
/// begin. The number is how often the backend's cache was freed.
fn start(
    fault: impl FnMut(&[SequenceChunk<'_>]) -> Option<&'static str> + Send + 'static,
) -> (Engine, mpsc::Sender<()>, Arc<std::sync::atomic::AtomicUsize>) {
    let (go, first) = mpsc::channel();
    let mut fault = fault;
    let (model, freed) = FaultyModel::boxed(&served_model(), move |chunks| {
        // An error means that the test has dropped the sender: later steps do not wait.
        let _ = first.recv();
        fault(chunks)
    });
    let config = Config { kv_memory: Some(64 * 256), event_buffer: 1000, ..Config::new(default_model()) };
    let (engine, _thread) = Engine::start_with(config, move |_| Ok((served_model(), model))).expect("starts");
    (engine, go, freed)
}

fn request(first: u32) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.0), seed: Some(5), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(40), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(vec![first, 2, 3]))
    }
}

fn submit(engine: &Engine, first: u32) -> Receiver<Event> {
    engine.submit(request(first).prepare(engine.model()).expect("a valid request"), None).expect("room")
}

/// Returns the tokens of a request's only output, and how it ended.
fn finish(mut events: Receiver<Event>) -> (Vec<u32>, Result<FinishReason, RequestError>) {
    let (mut ids, mut reason) = (Vec::new(), None);
    loop {
        match events.blocking_recv().expect("a last event") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => ids.extend(delta.token_ids),
            Event::Finished(end) => {
                ids.extend(end.last.token_ids);
                reason = Some(end.reason);
            }
            Event::Summary(_) => return (ids, Ok(reason.expect("an output ends before the summary"))),
            Event::Refused(error) => return (ids, Err(error)),
        }
    }
}

/// Runs requests at once.
fn run(requests: u32, engine: &Engine, go: mpsc::Sender<()>) -> Vec<(Vec<u32>, Result<FinishReason, RequestError>)> {
    let running: Vec<_> = (0..requests).map(|first| submit(engine, first)).collect();
    drop(go);
    running.into_iter().map(finish).collect()
}

fn undisturbed(requests: u32) -> Vec<Vec<u32>> {
    let (engine, go, _) = start(|_| None);
    run(requests, &engine, go).into_iter().map(|(ids, _)| ids).collect()
}

#[test]
fn a_step_without_memory_is_tried_again_with_half_of_its_sequences() {
    let sizes = Arc::<Mutex<Vec<usize>>>::default();
    let log = Arc::clone(&sizes);
    let (engine, go, freed) = start(move |chunks| {
        log.lock().expect("no panic").push(chunks.len());
        // Four sequences never fit.
        (chunks.len() >= 4).then_some(OUT_OF_MEMORY)
    });
    let start = Instant::now();
    let answers = run(5, &engine, go);
    let took = start.elapsed();
    for ((ids, reason), expected) in answers.iter().zip(undisturbed(5)) {
        assert!(matches!(reason, Ok(FinishReason::Length)), "{reason:?}");
        assert_eq!(*ids, expected, "a preempted output has the same tokens");
    }
    let sizes = sizes.lock().expect("no panic");
    let failed: Vec<usize> = (0..sizes.len()).filter(|&step| sizes[step] >= 4).collect();
    assert!(!failed.is_empty(), "no step was too large: {sizes:?}");
    if took < CROWDED {
        assert_eq!(failed.len(), 1, "more sequences started than were left: {sizes:?}");
    }
    for &step in &failed {
        assert_eq!(sizes[step + 1], sizes[step].div_ceil(2), "the next try has half: {sizes:?}");
    }
    assert_eq!(freed.load(Ordering::Relaxed), failed.len(), "libtorch's memory is freed before each further try");
    let preempted: usize = failed.iter().map(|&step| sizes[step] / 2).sum();
    assert_eq!(engine.gauges().preemptions, preempted as u64);
    assert_eq!(engine.lifecycle().state(), ServerState::Serving);
}

#[test]
fn a_single_sequence_without_memory_is_tried_once_more_and_then_ends_alone() {
    let (engine, go, freed) = start(|chunks| chunks.iter().any(|chunk| chunk.tokens[0] == 1).then_some(OUT_OF_MEMORY));
    let answers = run(2, &engine, go);
    assert!(matches!(answers[1].1, Ok(FinishReason::Error)), "{:?}", answers[1]);
    assert!(matches!(answers[0].1, Ok(FinishReason::Length)), "{:?}", answers[0]);
    assert_eq!(answers[0].0, undisturbed(1)[0]);
    assert!(freed.load(Ordering::Relaxed) >= 1);
    assert_eq!(engine.lifecycle().state(), ServerState::Serving);
    assert!(matches!(finish(submit(&engine, 3)).1, Ok(FinishReason::Length)), "the next request is served");
}

#[test]
fn a_lost_device_ends_every_request_and_the_engine() {
    let mut steps = 0;
    let (engine, go, freed) = start(move |_| {
        steps += 1;
        (steps > 10).then_some(DEVICE_LOST)
    });
    let expected = undisturbed(3);
    for ((ids, reason), expected) in run(3, &engine, go).into_iter().zip(expected) {
        assert!(!ids.is_empty() && expected.starts_with(&ids), "the tokens before the failure are right: {ids:?}");
        let reason = reason.expect_err("the output is incomplete").reason();
        assert_eq!(reason, Reason::EngineFailed, "another replica can resume");
    }
    assert_eq!(freed.load(Ordering::Relaxed), 0, "no further try");
    assert_eq!(engine.lifecycle().state(), ServerState::Failed);
    let refused = engine.reserve(&"caller".into()).expect_err("no new requests");
    assert_eq!(refused.reason(), Reason::EngineFailed);
}

#[test]
fn an_error_that_is_not_of_the_device_ends_the_sequences_of_its_step_only() {
    let text = "The size of tensor a (3) must match the size of tensor b (4)\nframe #4: libtorch_cuda.so CUDA error:";
    let (engine, go, _) = start(move |chunks| chunks.iter().any(|chunk| chunk.tokens[0] == 0).then_some(text));
    let answers = run(1, &engine, go);
    assert!(matches!(answers[0].1, Ok(FinishReason::Error)), "{:?}", answers[0]);
    assert!(matches!(finish(submit(&engine, 7)).1, Ok(FinishReason::Length)));
    assert_eq!(engine.lifecycle().state(), ServerState::Serving);
}

#[test]
fn faults_of_the_device_are_recognized_in_the_first_line() {
    use DeviceFault::{Lost, OutOfMemory};
    let rows = [
        (OUT_OF_MEMORY, Some(OutOfMemory)),
        ("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`", Some(OutOfMemory)),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Some(OutOfMemory)),
        ("CUDA driver error: out of memory", Some(OutOfMemory)),
        (DEVICE_LOST, Some(Lost)),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", Some(OutOfMemory)),
        ("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", None),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(..)`", Some(Lost)),
        ("CUDA error: device-side assert triggered", Some(Lost)),
        ("Expected all tensors to be on the same device, but found cuda:0 and cpu!", None),
        ("shape '[2]' is invalid for input of size 3\nframe #0: CUDA error: out of memory", None),
        ("", None),
    ];
    for (text, fault) in rows {
        assert_eq!(tandem_torch::Error::from(TchError::Torch(text.to_owned())).device_fault(), fault, "{text}");
    }
    assert_eq!(StepError::NotFinite.device_fault(), None);
}

#[test]
fn libtorchs_own_error_for_too_little_memory_is_recognized() {
    let impossible = Tensor::f_empty([1 << 50], (Kind::Float, Device::Cpu)).expect_err("no machine has 4 PiB");
    assert_eq!(tandem_torch::Error::from(impossible).device_fault(), Some(DeviceFault::OutOfMemory));
    let misshapen = Tensor::from_slice(&[1.0_f32]).f_view([2]).expect_err("one number");
    assert_eq!(tandem_torch::Error::from(misshapen).device_fault(), None);
}

#[test]
fn the_memory_of_a_gpu_is_unknown_where_there_is_none() {
    assert_eq!(tandem_torch::device::memory(Device::Cpu), None);
    if !tch::Cuda::is_available() {
        assert_eq!(tandem_torch::device::memory(Device::Cuda(0)), None);
    }
}
