//! The bridge in front of an engine, and its clients.

use std::process::Command;
use std::time::Duration;

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{
    FinishReason, GenerateRequest, ReturnOptions, Sampling, Stop, TokenIds, TokenInfo, Usage,
};
use tandem_tests::llama::Llama;
use tandem_tests::{Process, default_model};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

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
