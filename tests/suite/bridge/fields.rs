//! The fields that the engine lacks: the bridge lists and refuses them.

use std::net::TcpListener;

use tandem_common::pb::generate::v1::control_service_client::ControlServiceClient;
use tandem_common::pb::generate::v1::{
    FlushPrefixCacheRequest, GenerateRequest, GetLoadedModelRequest, Promise, ReturnOptions, Sampling,
};
use tandem_tests::failure::is_failed;
use tandem_tests::{default_artifacts, default_model};
use tonic::Code;

use tandem_tests::llama::Llama;

use super::engines::{asking, bridge, client, generate};

fn lacking() -> Vec<(&'static str, GenerateRequest)> {
    let asking = || asking("Hi", 4);
    let sampling = |sampling| GenerateRequest { sampling: Some(sampling), ..asking() };
    vec![
        ("sampling.presence_penalty", sampling(Sampling { presence_penalty: Some(0.5), ..Sampling::default() })),
        ("sampling.frequency_penalty", sampling(Sampling { frequency_penalty: Some(0.5), ..Sampling::default() })),
        (
            "return_options.prompt_logprobs",
            GenerateRequest {
                return_options: Some(ReturnOptions { prompt_logprobs: Some(1), ..ReturnOptions::default() }),
                ..asking()
            },
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_or_method_that_the_engine_lacks_is_named_and_refused() {
    let llama = Llama::start(1);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let control = free.expect("a free port").to_string();
    let process = bridge(&llama, &["--control-listen", &control]);
    let mut client = client(&process).await;
    let loaded = client.get_loaded_model(GetLoadedModelRequest::default()).await.expect("a model").into_inner();
    let model = loaded.model.expect("a model");
    let engine = model.engine.clone().expect("an engine");
    assert_eq!((engine.name.as_str(), model.context_length, model.vocabulary_size), ("llama.cpp", 2048, 49_152));
    assert!(engine.missing_promises().any(|promise| promise == Promise::IndependentOfBatch));
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    assert_eq!(model.tokenizer_sha256, tokenizer.sha256());
    for (field, request) in lacking() {
        assert!(engine.unsupported_fields.iter().any(|named| named == field), "{field}");
        let result = generate(&mut client, request).await;
        is_failed(&format!("bridge/{field}"), result, Code::InvalidArgument, "UNSUPPORTED_BY_ENGINE", Some(field));
    }
    let mut control = ControlServiceClient::connect(format!("http://{control}")).await.expect("it answers");
    let flushed = control.flush_prefix_cache(FlushPrefixCacheRequest {}).await;
    is_failed("bridge/flush_prefix_cache", flushed, Code::Unimplemented, "UNKNOWN_METHOD", None);
}

#[test]
fn an_engine_with_another_model_is_refused_at_start() {
    let llama = Llama::start(1);
    let other = tandem_tests::ModelFolder::new("other").with_template("{{ messages }}").with_tokenizer();
    let model = other.path().display().to_string();
    let url = format!("http://{}", llama.address());
    let mut bridge = tandem_tests::program("gen-bridge");
    bridge.args(["serve", "--engine", "llama-cpp", "--engine-url", &url, "--model", &model, "--listen", "127.0.0.1:0"]);
    let ended = bridge.output().expect("it runs");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && stderr.contains("ENGINE_UNUSABLE"), "{stderr}");
    assert!(stderr.contains("its tokenizer differs from that of --model"), "{stderr}");
}

#[test]
fn an_engine_that_denies_access_is_refused_at_start() {
    let llama = Llama::start_with_key("secret");
    let start = |arguments: &[&str]| {
        let (url, model) = (format!("http://{}", llama.address()), default_model().display().to_string());
        let mut bridge = tandem_tests::program("gen-bridge");
        let engine = ["--engine", "llama-cpp", "--engine-url", &url, "--model", &model];
        bridge.arg("serve").args(engine).args(["--listen", "127.0.0.1:0", "--check"]).args(arguments);
        let ended = bridge.output().expect("it runs");
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (is_usable, stderr) = start(&[]);
    assert!(!is_usable && stderr.contains("ENGINE_UNUSABLE") && stderr.contains("it answers 401"), "{stderr}");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "secret\n").expect("it is written");
    let (is_usable, stderr) = start(&["--engine-token-file", &file.path().display().to_string()]);
    assert!(is_usable && !stderr.contains("secret"), "{stderr}");
}
