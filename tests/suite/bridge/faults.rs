//! llama.cpp's server with a fault in its answers.

use std::process::{Command, Stdio};
use std::time::Duration;

use tandem_common::pb::generate::v1::{GenerateRequest, ReturnOptions};
use tandem_common::process::Service;
use tandem_tests::failure::failed;
use tandem_tests::llama::Llama;
use tandem_tests::{Process, default_model, repository};

use super::engines::{asking, client, generate, wait_for_health};

/// The text of the answer to [`question`].
const ANSWER: &str = "The capital of France is Paris.";

/// Starts a server that passes requests on to the engine, with a fault.
fn faulty(llama: &Llama, fault: &str) -> Service {
    let mut command = Command::new(repository().join(".tandem/engines/bin/python"));
    command.arg(repository().join("tests/suite/bridge/faulty_engine.py")).args([llama.address(), fault]);
    Service::start("faulty-engine", command.stderr(Stdio::null()))
        .expect("it starts; `cargo xtask test` installs Python")
}

fn bridge(engine: &Service, arguments: &[&str]) -> Process {
    let (url, model) = (format!("http://{}", engine.address()), default_model().display().to_string());
    let command = ["gen-bridge", "--engine", "llama-cpp", "--engine-url", &url, "--model", &model];
    Process::start("127.0.0.1:0", &[&command, arguments].concat())
}

fn question(logprobs: Option<u32>) -> GenerateRequest {
    let options = ReturnOptions { token_ids: true, logprobs, ..ReturnOptions::default() };
    GenerateRequest { return_options: Some(options), ..asking("What is the capital of France?", 40) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_answer_is_the_engines_fault_and_never_a_success() {
    let llama = Llama::start(1);
    // Before its first token, a request may be tried elsewhere.
    let faults = [
        ("redirect", "ENGINE_UNAVAILABLE", "ENGINE_UNAVAILABLE"),
        ("counts", "ENGINE_FAILED", "ENGINE_UNAVAILABLE"),
        ("cut", "ENGINE_FAILED", ""),
        ("error", "ENGINE_FAILED", ""),
    ];
    for (fault, of_stream, of_answer) in faults {
        let engine = faulty(&llama, fault);
        let process = bridge(&engine, &[]);
        let mut client = client(&process).await;
        for (logprobs, reason) in [(None, of_stream), (Some(1), of_answer)] {
            match generate(&mut client, question(logprobs)).await {
                Err(status) => assert_eq!(failed(&status).reason, reason, "{fault}, {logprobs:?}: {status}"),
                // The fault is one of streams.
                Ok((outputs, _)) => assert_eq!((reason, outputs[0].text.as_str()), ("", ANSWER), "{fault}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_engine_is_asked_again_between_two_parts_of_an_output() {
    let llama = Llama::start(1);
    let engine = faulty(&llama, "busy");
    let process = bridge(&engine, &[]);
    let (outputs, usage) = generate(&mut client(&process).await, question(Some(1))).await.expect("an answer");
    assert_eq!(outputs[0].text, ANSWER);
    assert_eq!(outputs[0].tokens.len(), usage.completion_tokens as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_metrics_are_no_death() {
    let llama = Llama::start(1);
    let engine = faulty(&llama, "late");
    let process = bridge(&engine, &[]);
    tokio::time::sleep(Duration::from_secs(8)).await;
    wait_for_health(&process, true).await;
    let (outputs, _) = generate(&mut client(&process).await, question(None)).await.expect("an answer");
    assert_eq!(outputs[0].text, ANSWER);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_an_engine_quotes_are_hidden() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "engine-secret\n").expect("it is written");
    let llama = Llama::start(1);
    let engine = faulty(&llama, "quoted");
    let process = bridge(&engine, &["--engine-token-file", &file.path().display().to_string()]);
    let status = generate(&mut client(&process).await, question(None)).await.expect_err("it refuses");
    assert_eq!(failed(&status).reason, "ENGINE_REJECTED");
    assert!(status.message().contains("[token]") && !status.message().contains("engine-secret"), "{status}");
}
