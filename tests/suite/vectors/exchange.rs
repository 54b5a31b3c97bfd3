//! The requests that the clients of all languages send, as files of their bytes in the folder
//! TANDEM_EXCHANGE. `cargo xtask test --clients` runs these tests, and the same in the other languages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost::Message as _;

use super::client::Client;
use super::{Vector, vectors};

fn folder() -> PathBuf {
    std::env::var_os("TANDEM_EXCHANGE").expect("TANDEM_EXCHANGE names a folder").into()
}

#[test]
#[ignore = "writes into a folder that cargo xtask test --clients makes"]
fn this_language_writes_the_bytes_of_every_request() {
    let client = Client::of_this_version();
    let bytes = |vector: &Vector| BASE64_STANDARD.encode(client.request(vector).encode_to_vec());
    let lines: String = vectors().iter().map(|vector| format!("{}\t{}\n", vector.name, bytes(vector))).collect();
    std::fs::write(folder().join("rust.txt"), lines).expect("written");
}

#[test]
#[ignore = "reads a folder that the suites of other languages fill"]
fn every_language_sends_the_request_of_the_vector() {
    let (client, vectors, mut differences) = (Client::of_this_version(), vectors(), Vec::new());
    let mut files: Vec<_> = folder().read_dir().expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no requests");
    for file in files {
        let (text, before) = (std::fs::read_to_string(&file).expect("requests"), differences.len());
        let sent: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once('\t')).collect();
        let language = file.file_stem().expect("a language").to_string_lossy();
        let differs = |vector: &&Vector| !sent.get(&*vector.name).is_some_and(|sent| is_request(&client, vector, sent));
        differences.extend(vectors.iter().filter(differs).map(|vector| format!("{}: {language}", vector.name)));
        let equal = vectors.len() - (differences.len() - before);
        eprintln!("requests of {language}: {equal} of {}", vectors.len());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns true if the bytes are the vector's request. NaN differs from itself, so that equal bytes count too.
fn is_request(client: &Client, vector: &Vector, sent: &str) -> bool {
    let (sent, own) = (client.request_of(vector, sent), client.own_request(vector));
    sent == own || sent.encode_to_vec() == own.encode_to_vec()
}
