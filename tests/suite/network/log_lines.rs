//! The limit of the log lines that one caller can cause.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use tandem_common::pb::render::v1::TokenizeRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::{ModelFolder, Process};
use tempfile::TempDir;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

const CALLS: u64 = 4_000;
/// Calls at a time, so that they come faster than lines are allowed.
const AT_A_TIME: usize = 50;
/// The lines that a caller may cause at once.
const BURST: usize = 1_000;

async fn call(channel: &Channel, caller: &str) {
    let mut request = Request::new(TokenizeRequest { text: "a".to_owned(), ..Default::default() });
    request.metadata_mut().insert("authorization", format!("Bearer {caller}-secret").parse().expect("a value"));
    RenderServiceClient::new(channel.clone()).tokenize(request).await.expect("ids");
}

/// Returns the lines of a caller's calls.
fn lines(log: &Path, caller: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(log).expect("a log");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter(|line| line["message"] == "call" && line["caller"] == caller).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_cannot_fill_the_log() {
    let folder = TempDir::new().expect("a folder");
    let [tokens, log] = ["tokens", "log"].map(|name| folder.path().join(name));
    std::fs::write(&tokens, "greedy-secret name=greedy\npolite-secret name=polite\n").expect("a file");
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let [model, tokens] = [model.path(), tokens].map(|path| path.display().to_string());
    let command = ["render-svc", "--models", &model, "--token-file", &tokens, "--log-format", "json"];
    let process = Process::start_in("127.0.0.1:0", &command, &[], Stdio::from(File::create(&log).expect("a file")));
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    let channel = endpoint.connect().await.expect("it answers");

    let calls = futures_util::stream::iter(0..CALLS).map(|_| call(&channel, "greedy"));
    calls.buffer_unordered(AT_A_TIME).collect::<()>().await;
    call(&channel, "polite").await;
    let written = lines(&log, "greedy").len();
    assert!((BURST..CALLS as usize).contains(&written), "{written} lines");
    assert_eq!(lines(&log, "polite").len(), 1);

    tokio::time::sleep(Duration::from_secs(2)).await;
    call(&channel, "greedy").await;
    let lines = lines(&log, "greedy");
    let unwritten: u64 = lines.iter().filter_map(|line| line["unwritten_lines"].as_u64()).sum();
    assert_eq!(lines.len() as u64 + unwritten, CALLS + 1, "every call has a line or is counted");
}
