//! The Rust examples of `proto/docs` print the lines of `tests/clients/examples.json`.

use serde::Deserialize;
use tandem_tests::repository;

use super::examples;
use super::servers::Servers;

/// An entry of `examples.json`.
#[derive(Debug, Deserialize)]
struct Example {
    method: String,
    server: String,
    prints: Vec<String>,
}

#[tokio::test]
async fn every_example_prints_the_expected_lines() {
    let text = std::fs::read_to_string(repository().join("tests/clients/examples.json")).expect("examples.json");
    let expected: Vec<Example> = serde_json::from_str(&text).expect("examples");
    let mut servers = Servers::new();
    for Example { method, server, prints } in expected {
        let server = servers.start(&server).await;
        let found = examples::output(&method, server.address_of(&method)).await;
        assert_eq!(found.expect("the calls succeed"), prints, "{method}");
    }
}
