//! The engine, and the bridge in front of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{
    FinishReason, GenerateRequest, ReturnOptions, Sampling, Stop, TokenIds, TokenInfo, Usage,
};
use tandem_process::{Service, Signal};
use tandem_tests::{Process, default_model, repository};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// The tokens of a slot's context.
const CONTEXT: usize = 2048;

/// llama.cpp's server. Dropping it kills it.
pub(crate) struct Llama {
    service: Service,
    model: PathBuf,
    slots: usize,
}

impl Llama {
    /// Starts the server with the default model.
    pub(super) fn start(slots: usize) -> Self {
        Self::start_at(&default_model(), 0, slots, "", CONTEXT)
    }

    /// Starts a server that asks for this bearer token.
    pub(super) fn start_with_key(key: &str) -> Self {
        Self::start_at(&default_model(), 0, 1, key, CONTEXT)
    }

    /// Starts a server with these slots, each with a context of this many tokens. Port 0 is a free one.
    pub(crate) fn start_at(model: &Path, port: u16, slots: usize, key: &str, context: usize) -> Self {
        let python = repository().join(".tandem/engines/bin/python");
        let mut command = Command::new(&python);
        let script = repository().join("tests/suite/bridge/llama_server.py");
        command
            .arg(script)
            .arg(model)
            .args([&port.to_string(), &slots.to_string(), key, &context.to_string()])
            .stderr(Stdio::null());
        let started = Service::start("llama-server", &mut command);
        let service =
            started.unwrap_or_else(|error| panic!("{error}; `cargo xtask test` installs {}", python.display()));
        Self { service, model: model.to_owned(), slots }
    }

    /// Kills the server, and starts it again at the same address with another model, or with the same one.
    pub(super) fn restart(mut self, model: Option<&Path>) -> Self {
        self.kill();
        let port = self.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
        Self::start_at(model.unwrap_or(&self.model), port, self.slots, "", CONTEXT)
    }

    pub(crate) fn address(&self) -> &str {
        self.service.address()
    }

    pub(super) fn kill(&mut self) {
        self.service.kill().expect("it is killed");
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.service.signal(signal).expect("it is signalled");
    }

    /// Returns the greedy ids of a prompt that the server itself answers.
    pub(super) fn greedy(&self, prompt: &[u32], count: u32) -> Vec<u32> {
        let body = serde_json::json!({"prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": true,
            "cache_prompt": false});
        let answer: serde_json::Value =
            serde_json::from_str(&self.http("POST", "/completion", &body.to_string())).expect("an answer in JSON");
        serde_json::from_value(answer["tokens"].clone()).expect("ids")
    }

    fn http(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        let (address, length) = (self.address(), body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
    }

    /// Returns the requests that it computes and that wait in it.
    pub(super) fn requests(&self) -> (u64, u64) {
        let page = self.http("GET", "/metrics", "");
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("a metric");
            line.trim().parse::<f64>().expect("a number") as u64
        };
        (value("llamacpp:requests_processing "), value("llamacpp:requests_deferred "))
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.service.kill();
    }
}

/// Starts a bridge in front of the server.
pub(super) fn bridge(llama: &Llama, arguments: &[&str]) -> Process {
    let (url, model) = (format!("http://{}", llama.address()), default_model().display().to_string());
    let command = ["gen-bridge", "--engine", "llama-cpp", "--engine-url", &url, "--model", &model];
    Process::start("127.0.0.1:0", &[&command, arguments].concat())
}

/// Connects to a service.
pub(super) async fn client(process: &Process) -> GenerateServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    GenerateServiceClient::new(endpoint.connect().await.expect("it answers"))
}

/// Returns a greedy request for token ids.
pub(super) fn greedy(ids: &[u32], max_new_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        input: Some(Input::TokenIds(TokenIds { ids: ids.to_vec() })),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(max_new_tokens), ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..GenerateRequest::default()
    }
}

/// Returns a greedy request for one user message.
pub(super) fn asking(text: &str, max_new_tokens: u32) -> GenerateRequest {
    let prompt = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
    GenerateRequest { input: Some(Input::Prompt(prompt)), ..greedy(&[], max_new_tokens) }
}

/// One output.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Output {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
    pub(super) tokens: Vec<TokenInfo>,
    pub(super) reason: FinishReason,
    pub(super) matched: Option<Matched>,
}

/// Returns the outputs of a request and its usage.
pub(super) async fn generate(
    client: &mut GenerateServiceClient<Channel>,
    request: GenerateRequest,
) -> Result<(Vec<Output>, Usage), Status> {
    let count = request.sampling.as_ref().and_then(|sampling| sampling.n).unwrap_or(1);
    let mut outputs = vec![Output::default(); count as usize];
    let mut stream = client.generate(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        match response.event.expect("an event") {
            Event::Delta(delta) => {
                let output = &mut outputs[delta.output_index as usize];
                output.text.push_str(&delta.text);
                output.ids.extend(delta.token_ids);
                output.tokens.extend(delta.tokens);
            }
            Event::Finished(finished) => {
                let output = &mut outputs[finished.output_index as usize];
                (output.reason, output.matched) = (finished.reason(), finished.matched);
            }
            Event::Summary(summary) => return Ok((outputs, summary.usage.expect("usage"))),
            _ => {}
        }
    }
    panic!("no summary");
}

/// Waits until the health of a service is this.
pub(super) async fn wait_for_health(process: &Process, serving: bool) {
    let program = tandem_tests::binary("gen-bridge");
    let start = std::time::Instant::now();
    loop {
        let checked = Command::new(&program).args(["check", &process.address]).output().expect("it runs");
        if checked.status.success() == serving {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "health is not {serving}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
