//! The vectors of generation against bridges in front of an engine with the vectors' model.

use std::collections::BTreeMap;

use tandem_tests_full::gguf_pair;

use super::client::Client;
use super::servers::Servers;
use super::{Vector, replay_with, vectors};
use crate::bridge::engines::Llama;

/// The servers whose answers come from a replica that only loads the vectors' model.
const SERVERS: [&str; 2] = ["generate", "task"];
/// The positions of the vectors' model.
const CONTEXT: usize = 256;

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_to_llama_cpp_answers_as_the_contract_demands() {
    let model = super::servers::contract().join("model");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tiny.gguf");
    std::fs::write(&file, gguf_pair::llama(&model).bytes()).expect("a file");
    std::fs::copy(&file, "/tmp/exp/tiny.gguf").unwrap();
    let llama = Llama::start_at(&file, 0, 4, "", CONTEXT);
    let vectors: Vec<Vector> =
        vectors().into_iter().filter(|vector| SERVERS.contains(&vector.server.as_str())).collect();
    let servers = Servers::bridged("llama-cpp", &format!("http://{}", llama.address()));
    let (differences, _) = replay_with(servers, &Client::of_this_version(), &vectors).await;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in differences {
        let (name, rest) = line.split_once(": ").expect("a name");
        found.entry(name.to_owned()).or_default().push(rest.to_owned());
    }
    for (name, lines) in &found {
        eprintln!("{name}: {}", lines.join(" | ").chars().take(300).collect::<String>());
    }
    panic!("{} of {}", found.len(), vectors.len());
}
