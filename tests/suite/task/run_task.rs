//! RunTask with the real model, and from a Python client.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::grammar::Kind;
use tandem_common::pb::render::v1::{RenderOptions, parsed_delta};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::pb::task::v1::{RunTaskRequest, TaskFinished};
use tandem_core::engine::Config;
use tandem_tests::Generation;
use tandem_tests::failure::{failed, is_failed};
use tandem_tests::{Golden, ModelFolder, binary, default_model, goldens, python, render_service, repository};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

fn message(role: &str, text: &str) -> chat::ChatMessage {
    let content = Some(chat::chat_message::Content::Text(text.to_owned()));
    chat::ChatMessage { role: role.to_owned(), content, ..Default::default() }
}

fn task(golden: &Golden) -> RunTaskRequest {
    let field = |m: &serde_json::Value, key: &str| m[key].as_str().expect("a string").to_owned();
    let messages = golden.messages.iter().map(|m| message(&field(m, "role"), &field(m, "content"))).collect();
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages, ..Default::default() }),
        sampling: Some(generate::Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(generate::Stop { max_new_tokens: Some(64), ..Default::default() }),
        ..Default::default()
    }
}

async fn run(client: &mut TaskServiceClient<Channel>, task: RunTaskRequest) -> Result<(String, TaskFinished), Status> {
    let mut stream = client.run_task(task).await?.into_inner();
    let (mut text, mut order, mut end) = (String::new(), String::new(), None);
    while let Some(response) = stream.message().await? {
        match response.event.expect("an event") {
            Event::Rendered(_) => order.push('r'),
            Event::Accepted(_) => order.push('a'),
            Event::PromptLogprobs(_) => order.push('p'),
            Event::Progress(_) | Event::Parsed(_) => {}
            Event::Delta(delta) => text.push_str(&delta.text),
            Event::Finished(finished) => (end, _) = (Some(finished), order.push('f')),
        }
    }
    assert_eq!(order, "raf");
    Ok((text, end.expect("finished")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_streams_the_answer_and_ends_with_the_whole_message() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    for golden in goldens().into_iter().filter(|golden| ["plain", "emoji", "cjk"].contains(&golden.id.as_str())) {
        let (text, finished) = run(&mut client, task(&golden)).await.expect("answers");
        assert_eq!(text, generation.tokenizer.decode(&golden.greedy_ids, true).expect("text"), "{}", golden.id);
        assert_eq!(finished.message, Some(message("assistant", &text)));
        let usage = finished.usage.expect("usage");
        assert_eq!(usage.prompt_tokens as usize, golden.prompt_ids.len());
        assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
        assert_ne!(finished.finish.expect("a reason").reason(), generate::FinishReason::Unspecified);
    }
}

/// The parts of the answer travel beside it, and join to the message of the last event.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_reads_its_answer_on_request() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let golden = &goldens()[0];
    let (text, finished) = run(&mut client, task(golden)).await.expect("answers");
    assert_eq!(finished.parsed, None);
    let mut stream =
        client.run_task(RunTaskRequest { parse_output: true, ..task(golden) }).await.expect("answers").into_inner();
    let (mut content, mut order) = (String::new(), Vec::new());
    while let Some(response) = stream.message().await.expect("an answer") {
        match response.event.expect("an event") {
            Event::Parsed(parsed) => {
                order.push("parsed");
                for delta in parsed.deltas {
                    let Some(parsed_delta::Part::Content(part)) = delta.part else { panic!("{delta:?}") };
                    content.push_str(&part);
                }
            }
            Event::Delta(_) => order.push("delta"),
            Event::Finished(finished) => {
                order.push("finished");
                assert_eq!(finished.message, Some(message("assistant", &text)));
                let parsed = finished.parsed.expect("the parts");
                assert_eq!((parsed.message, parsed.warnings), (Some(message("assistant", text.trim())), Vec::new()));
            }
            _ => {}
        }
    }
    let options = Some(RenderOptions { adapter: Some("none".to_owned()), ..Default::default() });
    let pinned = client.run_task(RunTaskRequest { parse_output: true, options, ..task(golden) }).await;
    let failure = failed(&pinned.expect_err("there is no such adapter"));
    assert_eq!((failure.reason.as_str(), failure.field.as_deref()), ("ADAPTER_NOT_FOUND", Some("options.adapter")));
    assert_eq!(content, text.trim());
    assert!(order.starts_with(&["delta", "parsed"]) && order.ends_with(&["finished"]), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_error_reaches_the_caller_unchanged() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let sampling = Some(generate::Sampling { temperature: Some(-1.0), ..Default::default() });
    let task = RunTaskRequest { sampling, ..task(&goldens()[0]) };
    let result = run(&mut client, task).await;
    is_failed("task/rejected", result, Code::InvalidArgument, "INVALID_REQUEST", Some("sampling.temperature"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_task_names_its_reason() {
    let check = async |generation, task, code, reason: &str| {
        let service = render_service(&[default_model()], generation).await;
        let mut client = TaskServiceClient::new(service.channel().await);
        is_failed(&format!("task/{reason}"), run(&mut client, task).await, code, reason, None);
    };
    let golden = &goldens()[0];
    check(None, task(golden), Code::FailedPrecondition, "NO_GENERATION_SERVICE").await;
    let nobody = "127.0.0.1:1".parse().ok();
    // The text depends on whether the health check or the call fails first.
    let service = render_service(&[default_model()], nobody).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let failure = failed(&run(&mut client, task(golden)).await.expect_err("no service listens"));
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "GENERATION_UNAVAILABLE"));
    // By now the replica is unhealthy, and the task waits for another one.
    let mut late = Request::new(task(golden));
    late.set_timeout(Duration::from_secs(1));
    let status = client.run_task(late).await.expect_err("no service listens");
    assert_eq!(failed(&status).reason, "DEADLINE_EXCEEDED");
    assert!(status.message().contains("replica"), "{status}");
    let image =
        chat::MediaBlock { source: Some(chat::media_block::Source::Base64("QQ==".to_owned())), ..Default::default() };
    let block = chat::Block { kind: Some(chat::block::Kind::Image(image)) };
    let content = Some(chat::chat_message::Content::Blocks(chat::BlockList { blocks: vec![block] }));
    let seen = chat::ChatMessage { role: "user".to_owned(), content, ..Default::default() };
    let conversation = Some(chat::Conversation { messages: vec![seen], ..Default::default() });
    let images = RunTaskRequest { conversation, ..task(golden) };
    let generation = Generation::start().await;
    check(Some(generation.running.address), images, Code::FailedPrecondition, "IMAGES_NOT_SUPPORTED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_replica_is_unavailable() {
    let generation = Generation::start().await;
    let other = ModelFolder::new("other").with_template("{{ messages[0].content }}").with_tokenizer();
    let service = render_service(&[other.path()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let result = run(&mut client, task(&goldens()[0])).await;
    is_failed("task/no-replica", result, Code::Unavailable, "GENERATION_UNAVAILABLE", None);
}

/// Writes the default model with another text for its special token 3, `<repo_name>`.
fn patched_model(folder: &TempDir) -> PathBuf {
    let mut bytes = std::fs::read(default_model()).expect("the model");
    let (old, new) = (b"<repo_name>", b"<tool_call>");
    let at = bytes.windows(old.len()).position(|window| window == old).expect("a token");
    bytes[at..at + old.len()].copy_from_slice(new);
    let path = folder.path().join("patched.gguf");
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Returns a short task whose output must be this text.
fn saying(text: &str) -> RunTaskRequest {
    let choice = generate::Choice { values: vec![text.to_owned()] };
    RunTaskRequest {
        grammar: Some(generate::Grammar { kind: Some(Kind::Choice(choice)), ..generate::Grammar::default() }),
        ..task(&goldens()[0])
    }
}

fn adapter(name: &str) -> Option<RenderOptions> {
    Some(RenderOptions { adapter: Some(name.to_owned()), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn special_tokens_of_tool_calls_are_part_of_the_answer() {
    let folder = TempDir::new().expect("a folder");
    let model = patched_model(&folder);
    let generation = Generation::start_with(Config { threads: 1, ..Config::new(model.clone()) }).await;
    let service = render_service(&[model], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let forced = generate::Sampling { logit_bias: [(3, 100.0)].into(), ..Default::default() };
    let stop = Some(generate::Stop { max_new_tokens: Some(1), ..Default::default() });
    let task =
        |options| RunTaskRequest { options, sampling: Some(forced.clone()), stop: stop.clone(), ..task(&goldens()[0]) };
    // The format writes <tool_call>; the model's own template does not. The model may.
    for adapter in [adapter("chatml"), None] {
        assert_eq!(run(&mut client, task(adapter)).await.expect("answers").0, "<tool_call>");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_uses_the_output_spec_of_the_request_or_of_render() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    // The end of a pinned format's turn ends the output, even if it is plain text.
    let (text, finished) = run(&mut client, RunTaskRequest { options: adapter("tagged"), ..saying("Hi\n<|end|>\n") })
        .await
        .expect("answers");
    let finish = finished.finish.expect("a finish");
    assert_eq!((text.as_str(), finish.matched), ("Hi", Some(Matched::StopString("\n<|end|>".to_owned()))));
    // An end-of-text token other than the tokenizer's eos.
    let forced = Some(generate::Sampling { logit_bias: [(0, 100.0)].into(), ..Default::default() });
    let (text, finished) =
        run(&mut client, RunTaskRequest { sampling: forced, ..task(&goldens()[0]) }).await.expect("answers");
    let finish = finished.finish.expect("a finish");
    assert_eq!((text.as_str(), finish.matched), ("", Some(Matched::StopTokenId(0))));
    // The caller's output spec replaces Render's output spec.
    let markers = generate::ReasoningMarkers {
        start_strings: vec!["<think>".to_owned()],
        end_strings: vec!["</think>".to_owned()],
        ..Default::default()
    };
    let extraction = generate::ExtractionRules { strip_reasoning: true, ..Default::default() };
    let spec = generate::OutputSpec { reasoning: Some(markers), extraction: Some(extraction), ..Default::default() };
    let returns = generate::ReturnOptions { extracted_text: true, ..Default::default() };
    let request = RunTaskRequest {
        output_spec: Some(spec.clone()),
        return_options: Some(returns),
        ..saying("<think>secret</think>answer")
    };
    let mut stream = client.run_task(request.clone()).await.expect("answers").into_inner();
    let first = stream.message().await.expect("an event").expect("an event").event;
    let Some(Event::Rendered(rendered)) = first else { panic!("{first:?}") };
    // The caller's spec has no eos ids, so Render's ids are used.
    assert_eq!(rendered.output_spec, Some(generate::OutputSpec { eos_token_ids: vec![0, 2], ..spec }));
    drop(stream);
    let (text, finished) = run(&mut client, request).await.expect("answers");
    let extracted = finished.finish.expect("a finish").extracted_text;
    assert_eq!((text.as_str(), extracted.as_deref()), ("<think>secret</think>answer", Some("answer")));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_conversation_is_named_in_the_error() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let messages = vec![message("user", &"word ".repeat(10_000))];
    let conversation = Some(chat::Conversation { messages, ..Default::default() });
    let result = run(&mut client, RunTaskRequest { conversation, ..task(&goldens()[0]) }).await;
    is_failed("task/prompt-too-long", result, Code::InvalidArgument, "PROMPT_TOO_LONG", Some("conversation"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_client_renders_generates_and_runs_a_task() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let golden = &goldens()[0];
    let mut case = tempfile::NamedTempFile::new().expect("a file");
    case.write_all(serde_json::to_string(golden).expect("JSON").as_bytes()).expect("written");
    let mut command = python();
    command.arg(repository().join("tests/clients/python/client.py")).arg(repository().join("proto"));
    command.arg(service.address.to_string()).arg(generation.running.address.to_string()).arg(case.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the standard output of a program.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = std::process::Command::new(binary(program))
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    child.wait_with_output().expect("it ends").stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_the_two_programs_in_a_pipe_have_the_same_tokens() {
    let generation = Generation::start().await;
    let service = render_service(&[default_model()], Some(generation.running.address)).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    let goldens: Vec<_> = goldens().into_iter().take(4).collect();
    let model = default_model();
    let lines: String = goldens
        .iter()
        .map(|golden| format!("{}\n", serde_json::json!({"model": model, "messages": golden.messages})))
        .collect();
    let rendered = piped("render-svc", &["render", "--jsonl"], lines.as_bytes());
    let model = model.to_str().expect("UTF-8");
    let set = ["--set", "max_new_tokens=64", "--set", "temperature=0"];
    let arguments = [&["generate", "--jsonl", "--dtype", "f32", "--model", model][..], &set].concat();
    let answers = piped("gen-svc", &arguments, &rendered);
    let mut answers = std::str::from_utf8(&answers).expect("UTF-8").lines();
    for golden in &goldens {
        let answer = answers.next().expect("an answer for each line");
        let answer: serde_json::Value = serde_json::from_str(answer).expect("a JSON line");
        let return_options = Some(generate::ReturnOptions { token_ids: true, ..Default::default() });
        let task = RunTaskRequest { return_options, ..task(golden) };
        let (mut ids, mut end) = (Vec::new(), None);
        let mut stream = client.run_task(task).await.expect("it is accepted").into_inner();
        while let Some(response) = stream.message().await.expect("it streams") {
            match response.event.expect("an event") {
                Event::Delta(delta) => ids.extend(delta.token_ids),
                Event::Finished(finished) => end = Some(finished),
                _ => {}
            }
        }
        let end = end.expect("the answer ends");
        assert_eq!(answer["token_ids"], serde_json::json!(ids), "{}", golden.id);
        let text = answer["text"].as_str().expect("a text");
        assert_eq!(end.message, Some(message("assistant", text)), "{}", golden.id);
        assert_eq!(answer["usage"]["prompt_tokens"], end.usage.expect("usage").prompt_tokens);
    }
}
