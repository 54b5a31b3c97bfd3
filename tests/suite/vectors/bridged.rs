//! The vectors of generation against bridges in front of an engine with the vectors' model.

use std::collections::BTreeMap;

use tandem_tests::gguf_pair;
use tandem_tests::llama::Llama;
use tandem_tests::vllm::{self, Api, Vllm};

use super::client::Client;
use super::servers::Servers;
use super::{Vector, replay_with, vectors};

/// The servers whose answers come from a replica that only loads the vectors' model.
const SERVERS: [&str; 2] = ["generate", "task"];
/// The positions of the vectors' model.
const CONTEXT: usize = 256;

/// The reasons with which a bridge refuses what its engine lacks.
const SAID: [&str; 2] = ["UNSUPPORTED_BY_ENGINE", "RESUME_UNSUPPORTED"];
/// Vectors whose answers differ with each engine, and why.
const OF_ALL: [(&str, &str); 5] = [
    ("grammars/grows_too_costly", "none reports that a grammar costs too much"),
    ("grammars/whitespace/json_schema/bounded", "its llguidance ignores the pattern, so that white space is narrower"),
    ("grammars/whitespace/json_schema/unspecified", "the same"),
    ("grammars/whitespace/lark/", "the same"),
    ("loaded_model/facts", "none reports the dtype, and the device is the engine"),
];
/// Vectors whose answers differ in what llama.cpp leaves to itself, and why.
const OF_LLAMA_CPP: &[(&str, &str)] = &[
    ("greedy/more_than_the_context", "its cache has 16 bits, so that near ties differ in 253 tokens"),
    ("greedy/to_the_end_of_the_context", "the same"),
    ("returned/logprobs/", "its cache has 16 bits"),
];

/// The same of vLLM.
const OF_VLLM: &[(&str, &str)] =
    &[("returned/reasoning", "its grammar library lets <think> come as one token, and then refuses this token")];

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_to_llama_cpp_answers_as_the_contract_demands() {
    let model = super::servers::contract().join("model");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tiny.gguf");
    std::fs::write(&file, gguf_pair::llama(&model).bytes()).expect("a file");
    let llama = Llama::start_at(&file, 0, 4, "", CONTEXT);
    replay_bridged("llama-cpp", &format!("http://{}", llama.address()), OF_LLAMA_CPP).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs vLLM: cargo xtask test --engines"]
async fn vectors_hold_in_front_of_vllm() {
    let vllm = Vllm::start(Api::Http, &vllm::vectors_model(), &["--max-model-len", &CONTEXT.to_string()]);
    replay_bridged(vllm.api().flag(), &vllm.url(), OF_VLLM).await;
}

/// Replays the vectors in front of an engine. Answers may differ where the bridge refuses a field that the engine lacks,
/// and in the given vectors.
async fn replay_bridged(kind: &str, url: &str, different: &[(&str, &str)]) {
    let vectors: Vec<Vector> =
        vectors().into_iter().filter(|vector| SERVERS.contains(&vector.server.as_str())).collect();
    let servers = Servers::bridged(kind, url);
    let (differences, _) = replay_with(servers, &Client::of_this_version(), &vectors).await;
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &differences {
        let (name, rest) = line.split_once(": ").expect("a name");
        found.entry(name).or_default().push(rest);
    }
    let is_said = |name: &str, lines: &[&str]| {
        let is_refused = SAID.iter().any(|reason| lines.iter().any(|line| line.contains(reason)));
        is_refused || different.iter().chain(&OF_ALL).any(|(known, _)| name.starts_with(known))
    };
    let unexpected: Vec<_> = found.iter().filter(|(name, lines)| !is_said(name, lines)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let (different, all) = (found.len(), vectors.len());
    eprintln!("{} of {all} answers are equal; the others are refused by name, or known", all - different);
    assert!(different * 6 < all, "{different} of {all} answers differ: {:#?}", found.keys());
}
