//! The chat client with both services and the default model.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tandem_tests::{binary, default_model};
use tempfile::TempDir;

fn chat(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary("tandem-chat"));
    command.arg("--state").arg(state).args(arguments).stdin(Stdio::null());
    command.output().expect("it runs")
}

/// A folder of chats. Dropping it stops the kept services, also after a failed assertion.
struct State(TempDir);

impl Drop for State {
    fn drop(&mut self) {
        chat(self.0.path(), &["--stop"]);
    }
}

/// Asks for a short answer, from services that this starts.
fn ask(state: &Path, arguments: &[&str]) -> Output {
    let [gen_svc, render_svc, model] = [binary("gen-svc"), binary("render-svc"), default_model()];
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (gen_svc, render_svc, model) = (path(&gen_svc), path(&render_svc), path(&model));
    let programs = ["--gen-svc", &gen_svc, "--render-svc", &render_svc, "--default-model", &model];
    chat(
        state,
        &[&programs[..], &["--seed", "1", "--max-new-tokens", "12", "Why is the sky blue?"], arguments].concat(),
    )
}

#[test]
fn the_same_question_has_the_same_answer_wherever_it_is_asked() {
    let folder = State(TempDir::new().expect("a folder"));
    let state = folder.0.path();
    let first = ask(state, &[]);
    assert!(first.status.success() && !first.stdout.is_empty(), "{first:?}");
    assert!(!state.join("chat-services.json").exists(), "nothing is kept");
    let kept = ask(state, &["--keep"]);
    assert_eq!(kept.stdout, first.stdout, "{kept:?}");
    let record = fs::read_to_string(state.join("chat-services.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    let address = record["services"][0]["address"].as_str().expect("an address");
    let question = ["--seed", "1", "--max-new-tokens", "12", "Why is the sky blue?"];
    let connected = chat(state, &[&["--connect", address], &question[..]].concat());
    assert_eq!(connected.stdout, first.stdout, "{connected:?}");
    assert!(chat(state, &["--stop"]).status.success());
    assert!(!chat(state, &["--connect", address, "Hello"]).status.success(), "both have ended");
}
