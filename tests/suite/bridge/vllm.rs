//! gen-bridge in front of vLLM on this processor. `cargo xtask test --engines` installs vLLM and runs these tests.

use std::time::{Duration, Instant};

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{
    FinishReason, GenerateRequest, GetLoadedModelRequest, ReturnOptions, Sampling, Stop,
};
use tandem_common::process::Signal;
use tandem_tests::failure::failed;
use tandem_tests::vllm::{self, Api, Vllm};
use tandem_tests::{Generation, Process, goldens};
use tonic::transport::Channel;

use super::engines::{asking, client, generate, greedy, wait_for_health};
use super::grammars::grammars_of_every_kind_bind;

/// The tokens of an output that are compared with transformers'.
const COUNT: u32 = 48;
/// The largest difference of log-probabilities of one token between vLLM's f32 and gen-svc's arithmetic on the file.
const ROUNDING: f32 = 0.3;

fn bridge_with(vllm: &Vllm, model: &str) -> Process {
    let (kind, url) = (vllm.api().flag(), vllm.url());
    Process::start("127.0.0.1:0", &["gen-bridge", "--engine", kind, "--engine-url", &url, "--model", model])
}

/// Runs futures at once, and returns their results in order.
async fn join_all<F>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = futures.map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("no panic"));
    }
    results
}

/// Compares greedy outputs with transformers' in f32: one after the other, and all at once.
async fn greedy_ids_are_those_of_transformers(client: &GenerateServiceClient<Channel>) {
    let goldens = goldens();
    let ask = |prompt: Vec<u32>| {
        let mut client = client.clone();
        async move { generate(&mut client, greedy(&prompt, COUNT)).await.expect("an answer").0.remove(0).ids }
    };
    let expected: Vec<&[u32]> =
        goldens.iter().map(|golden| &golden.greedy_ids[..golden.greedy_ids.len().min(COUNT as usize)]).collect();
    let together = join_all(goldens.iter().map(|golden| ask(golden.prompt_ids.clone()))).await;
    assert_eq!(together, expected, "together");
    for (golden, expected) in goldens.iter().zip(expected) {
        assert_eq!(ask(golden.prompt_ids.clone()).await, expected, "{}", golden.id);
    }
    eprintln!("{} of {} greedy outputs of {COUNT} tokens equal transformers' in f32", goldens.len(), goldens.len());
}

/// Checks stops, limits, and the fields of a stop.
async fn stops_are_those_of_the_contract(client: &mut GenerateServiceClient<Channel>) {
    let whole = asking("What is the capital of France?", 30);
    let (outputs, usage) = generate(client, whole.clone()).await.expect("an answer");
    assert_eq!(outputs[0].text, "The capital of France is Paris.");
    assert_eq!(outputs[0].matched, Some(Matched::StopTokenId(2)));
    assert_eq!(usage.completion_tokens as usize, outputs[0].ids.len());
    let with_stop = |stop: Stop| GenerateRequest { stop: Some(stop), ..whole.clone() };
    let stop = Stop { max_new_tokens: Some(30), stop_strings: vec!["Par".to_owned()], ..Stop::default() };
    let (stopped, _) = generate(client, with_stop(stop)).await.expect("an answer");
    assert_eq!(stopped[0].text, "The capital of France is ");
    assert_eq!(stopped[0].matched, Some(Matched::StopString("Par".to_owned())));
    let stop = Stop { max_new_tokens: Some(30), stop_token_ids: vec![outputs[0].ids[2]], ..Stop::default() };
    let (stopped, _) = generate(client, with_stop(stop)).await.expect("an answer");
    assert_eq!(stopped[0].ids, outputs[0].ids[..3]);
    let longer = Stop { max_new_tokens: Some(20), min_new_tokens: 15, ..Stop::default() };
    let (longer, _) = generate(client, with_stop(longer)).await.expect("an answer");
    assert!(longer[0].ids.len() >= 15 && !longer[0].ids[..15].contains(&2), "{longer:?}");
    let ignoring = Stop { max_new_tokens: Some(20), ignore_eos: true, ..Stop::default() };
    let (ignoring, _) = generate(client, with_stop(ignoring)).await.expect("an answer");
    assert_eq!((ignoring[0].ids.len(), ignoring[0].reason), (20, FinishReason::Length));
    assert_eq!(ignoring[0].ids[..8], outputs[0].ids[..8], "the end is an ordinary token");
}

/// Compares log-probabilities of the output and of the prompt with gen-svc's.
async fn log_probabilities_are_near_gen_svcs(client: &mut GenerateServiceClient<Channel>) {
    let generation = Generation::start().await;
    let mut own = GenerateServiceClient::new(generation.running.channel().await);
    let options =
        ReturnOptions { token_ids: true, logprobs: Some(3), prompt_logprobs: Some(2), ..ReturnOptions::default() };
    let request =
        GenerateRequest { return_options: Some(options), ..asking("Repeat exactly: 🌍 👩‍👩‍👧", 10) };
    let (theirs, _) = generate(client, request.clone()).await.expect("an answer");
    let (ours, _) = generate(&mut own, request).await.expect("an answer");
    assert_eq!((&theirs[0].ids, &theirs[0].text), (&ours[0].ids, &ours[0].text));
    for (one, other) in theirs[0].tokens.iter().zip(&ours[0].tokens) {
        assert_eq!((one.id, &one.bytes, one.top_logprobs.len()), (other.id, &other.bytes, 3));
        assert!((one.logprob - other.logprob).abs() < ROUNDING, "{one:?} {other:?}");
    }
}

/// Checks that a seed reproduces outputs, which differ from one another.
async fn seeds_reproduce(client: &mut GenerateServiceClient<Channel>) {
    let sampling = Sampling { temperature: Some(1.0), n: Some(3), seed: Some(7), ..Sampling::default() };
    let request = GenerateRequest { sampling: Some(sampling), ..asking("Write a story.", 16) };
    let (first, _) = generate(client, request.clone()).await.expect("an answer");
    let (second, _) = generate(client, request).await.expect("an answer");
    assert_eq!(first, second);
    assert!(first[0].ids != first[1].ids && first[1].ids != first[2].ids, "{first:?}");
}

/// Checks that fields which vLLM lacks are named and refused.
async fn lacks_are_refused(client: &mut GenerateServiceClient<Channel>) {
    let loaded = client.get_loaded_model(GetLoadedModelRequest::default()).await.expect("a model").into_inner();
    let model = loaded.model.expect("a model");
    let engine = model.engine.expect("an engine");
    assert_eq!((model.context_length, model.vocabulary_size), (2048, 49_152));
    assert!(engine.version.starts_with("0.32"), "{engine:?}");
    let hot = Sampling { temperature: Some(3.0), ..Sampling::default() };
    let typical = Sampling { temperature: Some(1.0), typical_p: Some(0.5), ..Sampling::default() };
    for (field, sampling) in [("sampling.temperature", hot), ("sampling.typical_p", typical)] {
        assert!(engine.unsupported_fields.iter().any(|named| named == field), "{field}");
        let result = generate(client, GenerateRequest { sampling: Some(sampling), ..asking("Hi", 2) }).await;
        let failure = failed(&result.expect_err("refused"));
        assert_eq!((failure.reason.as_str(), failure.field.as_deref()), ("UNSUPPORTED_BY_ENGINE", Some(field)));
    }
}

fn long() -> GenerateRequest {
    let stop = Stop { max_new_tokens: Some(1900), ignore_eos: true, ..Stop::default() };
    GenerateRequest { stop: Some(stop), ..asking("Write a very long story.", 1900) }
}

/// Checks that 32 streams come to their ends, and that a cancelled one frees its place in the engine.
async fn many_streams_and_a_cancelled_one(vllm: &Vllm, client: &mut GenerateServiceClient<Channel>) {
    let streams = (0..32).map(|at| {
        let mut client = client.clone();
        async move { generate(&mut client, asking(&format!("Count from {at}."), 24)).await.expect("an answer").1 }
    });
    let tokens: u32 = join_all(streams).await.iter().map(|usage| usage.completion_tokens).sum();
    assert!(tokens > 32, "{tokens}");
    let mut stream = client.generate(long()).await.expect("it starts").into_inner();
    for _ in 0..4 {
        stream.message().await.expect("an event").expect("an event");
    }
    let Some(running) = vllm.running() else { return };
    assert_eq!(running, 1);
    drop(stream);
    let start = Instant::now();
    while vllm.running() != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(10), "the place is not free");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eprintln!("a cancelled call has left vLLM after {:?}", start.elapsed());
}

/// Stops the process that computes during a stream. The server answers questions about its health meanwhile.
async fn is_left_while_it_generates_nothing(vllm: &Vllm, process: &Process) {
    let start = Instant::now();
    fails_in_a_stream(process, || vllm.signal_engine(Signal::STOP)).await;
    eprintln!("a stopped engine is left after {:?}", start.elapsed());
    wait_for_health(process, false).await;
    vllm.signal_engine(Signal::CONT);
    wait_for_health(process, true).await;
    generate(&mut client(process).await, asking("Hi", 4)).await.expect("an answer");
}

/// Does something to the engine during a stream, which then fails.
async fn fails_in_a_stream(process: &Process, act: impl FnOnce()) {
    let mut stream = client(process).await.generate(long()).await.expect("it starts").into_inner();
    for _ in 0..4 {
        stream.message().await.expect("an event").expect("an event");
    }
    act();
    let status = loop {
        match stream.message().await {
            Ok(response) => assert!(response.is_some(), "a success"),
            Err(status) => break status,
        }
    };
    assert_eq!(failed(&status).reason, "ENGINE_FAILED");
}

/// Kills an engine's process during a stream.
async fn fails_when_killed(process: &Process, kill: impl FnOnce()) {
    fails_in_a_stream(process, kill).await;
    wait_for_health(process, false).await;
    let mut client = client(process).await;
    let status = client.generate(long()).await.expect_err("no engine");
    assert_eq!(failed(&status).reason, "ENGINE_UNAVAILABLE");
}

async fn serves_the_contract(api: Api) {
    let model = vllm::model();
    let vllm = Vllm::start(api, &model, &[]);
    let process = bridge_with(&vllm, &model.display().to_string());
    let mut client = client(&process).await;
    greedy_ids_are_those_of_transformers(&client).await;
    stops_are_those_of_the_contract(&mut client).await;
    grammars_of_every_kind_bind(&mut client).await;
    log_probabilities_are_near_gen_svcs(&mut client).await;
    seeds_reproduce(&mut client).await;
    lacks_are_refused(&mut client).await;
    many_streams_and_a_cancelled_one(&vllm, &mut client).await;
    is_left_while_it_generates_nothing(&vllm, &process).await;
    fails_when_killed(&process, || vllm.signal_engine(Signal::KILL)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM: cargo xtask test --engines"]
async fn http_server_serves_the_contract() {
    serves_the_contract(Api::Http).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM: cargo xtask test --engines"]
async fn rust_frontend_serves_the_contract() {
    serves_the_contract(Api::Inference).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM: cargo xtask test --engines"]
async fn python_grpc_server_serves_the_contract() {
    serves_the_contract(Api::Engine).await;
}

/// Two processes hold half of each weight, as on two nodes. Without `--enable-scale-out`, the bridge uses
/// `/v1/completions`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM: cargo xtask test --engines"]
async fn two_nodes_serve_until_one_is_killed() {
    let (vllm, second) = Vllm::start_two_nodes();
    let model = vllm::random_model().display().to_string();
    let process = bridge_with(&vllm, &model);
    let own = Process::start("127.0.0.1:0", &["gen-svc", "--model", &model, "--dtype", "f32"]);
    let options =
        ReturnOptions { token_ids: true, logprobs: Some(3), prompt_logprobs: Some(2), ..ReturnOptions::default() };
    let request = GenerateRequest { return_options: Some(options), ..asking("Two nodes?", 16) };
    let (theirs, _) = generate(&mut client(&process).await, request.clone()).await.expect("an answer");
    let (ours, _) = generate(&mut client(&own).await, request).await.expect("an answer");
    assert_eq!((&theirs[0].ids, &theirs[0].text), (&ours[0].ids, &ours[0].text));
    for (one, other) in theirs[0].tokens.iter().zip(&ours[0].tokens) {
        assert!((one.logprob - other.logprob).abs() < 1e-3, "{one:?} {other:?}");
    }
    fails_when_killed(&process, || second.signal_engine(Signal::KILL)).await;
}
