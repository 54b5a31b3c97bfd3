//! Engines that are killed, stopped, or replaced.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::grammar::Kind;
use tandem_common::pb::generate::v1::{GenerateRequest, GenerateResponse, Grammar, ReturnOptions, Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event as TaskEvent;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::process::Signal;
use tandem_tests::failure::{failed, is_failed};
use tandem_tests::{Generation, Process, default_model};
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

use tandem_tests::llama::Llama;

use super::engines::{asking, bridge, client, wait_for_health};

/// The messages of a task. Its greedy answer has no near ties, so that two engines give the same.
const SYSTEM: &str = "You write numbers.";
const USER: &str = "Write the numbers from 1 to 50, separated by commas.";

fn long() -> GenerateRequest {
    let stop = Stop { max_new_tokens: Some(1900), ignore_eos: true, ..Stop::default() };
    GenerateRequest { stop: Some(stop), ..asking("Write a very long story.", 1900) }
}

/// Reads a stream until it fails.
async fn failure(stream: &mut Streaming<GenerateResponse>) -> Status {
    loop {
        match stream.message().await {
            Ok(response) => assert!(response.is_some(), "a success"),
            Err(status) => return status,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_fails_its_streams_and_serves_again_after_its_restart() {
    let mut llama = Llama::start(1);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let mut stream = client.generate(long()).await.expect("it starts").into_inner();
    for _ in 0..3 {
        stream.message().await.expect("an event").expect("an event");
    }
    llama.kill();
    assert_eq!(failed(&failure(&mut stream).await).reason, "ENGINE_FAILED");
    wait_for_health(&process, false).await;
    let status = client.generate(long()).await.expect_err("no engine");
    assert_eq!(failed(&status).reason, "ENGINE_UNAVAILABLE");

    let llama = llama.restart(None);
    wait_for_health(&process, true).await;
    let answer = super::engines::generate(&mut client, asking("What is the capital of France?", 20)).await;
    assert_eq!(answer.expect("an answer").0[0].text, "The capital of France is Paris.");

    // Another model: one control token has another text.
    let mut bytes = std::fs::read(default_model()).expect("the model");
    let (old, new) = (b"<repo_name>", b"<tool_call>");
    let at = bytes.windows(old.len()).position(|window| window == old).expect("a token");
    bytes[at..at + old.len()].copy_from_slice(new);
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.gguf");
    std::fs::write(&other, bytes).expect("a file");
    let _llama = llama.restart(Some(&other));
    wait_for_health(&process, false).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    wait_for_health(&process, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_is_left_and_continues() {
    let mut llama = Llama::start(1);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let mut stream = client.generate(long()).await.expect("it starts").into_inner();
    stream.message().await.expect("an event").expect("an event");
    llama.signal(Signal::STOP);
    assert_eq!(failed(&failure(&mut stream).await).reason, "ENGINE_FAILED");
    wait_for_health(&process, false).await;
    llama.signal(Signal::CONT);
    wait_for_health(&process, true).await;
    let answer = super::engines::generate(&mut client, asking("What is the capital of France?", 20)).await;
    assert_eq!(answer.expect("an answer").0[0].text, "The capital of France is Paris.");
}

/// A greedy task with at most this many tokens.
fn task(max_new_tokens: u32) -> RunTaskRequest {
    let message = |role: &str, text: &str| chat::ChatMessage {
        role: role.to_owned(),
        content: Some(chat::chat_message::Content::Text(text.to_owned())),
        ..chat::ChatMessage::default()
    };
    let messages = vec![message("system", SYSTEM), message("user", USER)];
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages, ..chat::Conversation::default() }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(max_new_tokens), ignore_eos: true, ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    }
}

/// Starts render-svc in front of replicas with the default model.
fn render(replicas: &[&str]) -> Process {
    let addresses = replicas.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(",");
    let model = default_model().display().to_string();
    Process::start("127.0.0.1:0", &["render-svc", "--models", &model, "--generate", &addresses])
}

/// Runs a task, and calls `after_delta` once after its first deltas. Returns the ids and the text.
async fn run(
    render: &Process,
    task: RunTaskRequest,
    mut after_delta: impl FnMut(),
) -> Result<(Vec<u32>, String), Status> {
    let endpoint = Endpoint::from_shared(format!("http://{}", render.address)).expect("an address");
    let mut client = TaskServiceClient::new(endpoint.connect().await.expect("it answers"));
    let mut stream = client.run_task(task).await?.into_inner();
    let (mut ids, mut text, mut deltas) = (Vec::new(), String::new(), 0);
    while let Some(response) = stream.message().await? {
        if let Some(TaskEvent::Delta(delta)) = response.event {
            text.push_str(&delta.text);
            ids.extend(delta.token_ids);
            deltas += 1;
            if deltas == 5 {
                after_delta();
            }
        }
    }
    Ok((ids, text))
}

/// Kills the engine that generates.
fn kill_one(engines: &mut [Llama]) {
    let engine = engines.iter_mut().find(|engine| engine.requests().0 > 0);
    engine.expect("one generates").kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_continues_on_the_other_bridge_with_the_same_text() {
    let mut engines = [Llama::start(1), Llama::start(1)];
    let bridges = [bridge(&engines[0], &[]), bridge(&engines[1], &[])];
    let render = render(&[&bridges[0].address, &bridges[1].address]);
    let whole = run(&render, task(60), || {}).await.expect("an answer");
    let continued = run(&render, task(60), || kill_one(&mut engines)).await.expect("an answer");
    assert_eq!(continued, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_a_grammar_is_not_resumed_behind_a_bridge() {
    let mut engines = [Llama::start(1), Llama::start(1)];
    let bridges = [bridge(&engines[0], &[]), bridge(&engines[1], &[])];
    let render = render(&[&bridges[0].address, &bridges[1].address]);
    let schema = r#"{"type": "array", "items": {"type": "integer"}, "minItems": 100}"#.to_owned();
    let grammar = Grammar { kind: Some(Kind::JsonSchema(schema)), ..Grammar::default() };
    let stop = Some(Stop { max_new_tokens: Some(200), ..Stop::default() });
    let task = RunTaskRequest { grammar: Some(grammar), stop, ..task(200) };
    let result = run(&render, task, || kill_one(&mut engines)).await;
    is_failed("bridge/resume", result, Code::Unavailable, "RESUME_UNSUPPORTED", None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_a_bridge_continues_on_gen_svc() {
    let (mut llama, generation) = (Llama::start(1), Generation::start().await);
    let bridge = bridge(&llama, &[]);
    let render = render(&[&bridge.address, &generation.running.address.to_string()]);
    // The salt decides which replica gets a task.
    let with_salt = |salt: u32| RunTaskRequest { cache_salt: salt.to_string(), ..task(60) };
    let mut salt = 0;
    let whole = loop {
        let mut is_bridged = false;
        let whole = run(&render, with_salt(salt), || is_bridged = llama.requests().0 > 0).await.expect("an answer");
        if is_bridged {
            break whole;
        }
        salt += 1;
        assert!(salt < 30, "the bridge gets no task");
    };
    let before = generation.engine.gauges().tokens;
    let continued = run(&render, with_salt(salt), || llama.kill()).await.expect("an answer");
    assert_eq!(continued, whole);
    assert!(generation.engine.gauges().tokens > before, "gen-svc continues");
}
