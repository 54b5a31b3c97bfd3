//! Engines that are killed, stopped, or replaced.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::{self as generate, GenerateRequest, GenerateResponse, Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event as TaskEvent;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_process::Signal;
use tandem_tests::failure::failed;
use tandem_tests::{Process, default_model};
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

use super::engines::{Llama, asking, bridge, client, wait_for_health};

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

/// Runs a task, and calls `after_delta` once after its first deltas. Returns the text.
async fn run(render: &Process, tokens: u32, mut after_delta: impl FnMut()) -> String {
    let endpoint = Endpoint::from_shared(format!("http://{}", render.address)).expect("an address");
    let mut client = TaskServiceClient::new(endpoint.connect().await.expect("it answers"));
    let content = Some(chat::chat_message::Content::Text("Write a story.".to_owned()));
    let messages = vec![chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() }];
    let task = RunTaskRequest {
        conversation: Some(chat::Conversation { messages, ..chat::Conversation::default() }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(generate::Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..generate::Stop::default() }),
        ..RunTaskRequest::default()
    };
    let mut stream = client.run_task(task).await.expect("it starts").into_inner();
    let (mut text, mut deltas) = (String::new(), 0);
    while let Some(response) = stream.message().await.expect("no failure") {
        if let Some(TaskEvent::Delta(delta)) = response.event {
            text.push_str(&delta.text);
            deltas += 1;
            if deltas == 5 {
                after_delta();
            }
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_continues_on_the_other_bridge_with_the_same_text() {
    let mut engines = [Llama::start(1), Llama::start(1)];
    let bridges = [bridge(&engines[0], &[]), bridge(&engines[1], &[])];
    let addresses = bridges.iter().map(|bridge| format!("http://{}", bridge.address)).collect::<Vec<_>>().join(",");
    let model = default_model().display().to_string();
    let render = Process::start("127.0.0.1:0", &["render-svc", "--models", &model, "--generate", &addresses]);
    let whole = run(&render, 60, || {}).await;
    let mut killed = None;
    let text = run(&render, 60, || {
        let at = engines.iter().position(|engine| engine.requests().0 > 0).expect("one generates");
        engines[at].kill();
        killed = Some(at);
    })
    .await;
    assert!(killed.is_some());
    assert_eq!(text, whole);
}
