//! The contract's vectors of `tests/contract`, replayed against the services by clients of this
//! version, of the published one and of a newer one.

mod bridged;
mod client;
mod compare;
mod examples;
mod examples_run;
mod exchange;
mod expand;
mod noticed;
mod page;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tandem_tests::repository;

use self::client::{Answer, Client};
use self::noticed::Answers;
use self::servers::{Server, Servers};

/// The servers whose answers do not depend on earlier calls.
const STATELESS: [&str; 6] = ["render", "many", "generate", "task", "prompt_task", "tokens"];

/// A request, and the answer that the contract demands. `tests/contract/README.md` describes the keys.
#[derive(Debug, Clone, Deserialize)]
struct Vector {
    name: String,
    server: String,
    method: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    deadline_ms: Option<u64>,
    /// The call is repeated until the answer is the expected one.
    #[serde(default)]
    eventually: bool,
    request: Value,
    /// None if the JSON has a part in short.
    request_binary: Option<String>,
    #[serde(default)]
    binary_only: bool,
    /// The compression of the message: `gzip`.
    compression: Option<String>,
    cancel_after: Option<usize>,
    /// The server drains after this number of events. 0: after the headers of the request, before its message.
    signal_after: Option<usize>,
    expect: Expectation,
}

/// The answer that the contract demands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    response: Option<Value>,
    events: Option<Vec<Value>>,
    error: Option<Value>,
    #[serde(default)]
    absent: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

fn vectors() -> Vec<Vector> {
    let folder = repository().join("tests/contract/vectors");
    let mut files: Vec<_> = folder.read_dir().expect("vectors").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.into_iter().flat_map(|file| expand::read::<Vec<Vector>>(&file)).collect()
}

impl Expectation {
    /// Returns the expected messages, which may lack fields of the actual ones.
    fn messages(&self) -> impl Iterator<Item = &Value> {
        self.response.iter().chain(self.events.iter().flatten())
    }

    /// Returns true if the events contain `progress`. Otherwise such events are skipped.
    fn keeps_progress(&self) -> bool {
        self.events.iter().flatten().any(|event| event.get("progress").is_some())
    }
}

/// Replays vectors, grouped by server. Returns the differences.
async fn replay(client: &Client, vectors: &[Vector]) -> Vec<String> {
    replay_with(Servers::new(), client, vectors).await.0
}

/// As [`replay`], with these servers. Returns the answers too.
async fn replay_with(mut servers: Servers, client: &Client, vectors: &[Vector]) -> (Vec<String>, Answers) {
    let mut keys: Vec<&str> = Vec::new();
    for vector in vectors {
        if !keys.contains(&vector.server.as_str()) {
            keys.push(&vector.server);
        }
    }
    let (mut differences, mut answers) = (Vec::new(), Answers::new());
    for key in keys {
        let server = servers.start(key).await;
        let held = server.prepare(client).await;
        for vector in vectors.iter().filter(|vector| vector.server == key) {
            let (found, messages) = replay_one(client, &server, vector).await;
            answers.extend(messages.map(|messages| (vector.name.clone(), messages)));
            differences.extend(found.into_iter().map(|line| format!("{}: {line}", vector.name)));
        }
        drop(held);
        servers.release(key);
    }
    (differences, answers)
}

async fn replay_one(client: &Client, server: &Server, vector: &Vector) -> (Vec<String>, Option<Vec<Value>>) {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        let Answer { messages, error, headers } = client.call(server, vector).await;
        let (is_cancelled, kept) = (vector.cancel_after.is_some(), noticed::kept(&messages));
        let found = compare::differences(&vector.expect, is_cancelled, messages, error.as_ref(), &headers);
        if found.is_empty() || !vector.eventually || Instant::now() > limit {
            return (found, kept);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_services_answer_every_vector_as_the_contract_demands() {
    let vectors = vectors();
    let client = Client::of_this_version();
    let wrong = vectors.iter().filter(|vector| !vector.binary_only && !client.reads_json_and_bytes_alike(vector));
    assert_eq!(wrong.map(|vector| &vector.name).collect::<Vec<_>>(), Vec::<&String>::new(), "request_binary differs");
    let (differences, answers) = replay_with(Servers::new(), &client, &vectors).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    noticed::assert_each_field_is_noticed(&client, &vectors, &answers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_published_contract_gets_the_same_answers() {
    let client = Client::of_the_published_contract();
    let known: Vec<_> = vectors().into_iter().filter(|vector| client.defines(vector)).collect();
    assert!(known.len() >= 600, "{}", known.len());
    let differences = replay(&client, &known).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_client_gets_the_same_answers() {
    // The new fields make the largest message too large.
    let vectors: Vec<_> = vectors().into_iter().filter(|vector| vector.name != "limits/largest_message").collect();
    let differences = replay(&Client::of_a_newer_version(), &vectors).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_this_version_and_of_the_published_one_get_the_same_answers_from_newer_servers() {
    let vectors: Vec<_> = vectors().into_iter().filter(|vector| STATELESS.contains(&&*vector.server)).collect();
    for client in [Client::of_this_version(), Client::of_the_published_contract()] {
        let (known, _): (Vec<_>, Vec<_>) = vectors.iter().cloned().partition(|vector| client.defines(vector));
        assert!(known.len() >= 500, "{}", known.len());
        let (differences, _) = replay_with(Servers::of_a_newer_version(), &client, &known).await;
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

#[test]
fn names_are_unique_and_at_least_250_vectors_are_stateless() {
    let vectors = vectors();
    let mut names: Vec<_> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), vectors.len());
    let is_stateless = |vector: &&Vector| {
        STATELESS.contains(&&*vector.server) && vector.expect.events.is_none() && vector.cancel_after.is_none()
    };
    assert!(vectors.iter().filter(is_stateless).count() >= 250);
}

#[test]
fn every_method_has_a_vector() {
    let vectors = vectors();
    // A vector has one request. The examples of each language call the method with a stream.
    let methods = client::methods().filter(|method| !method.ends_with("/StreamParseOutput"));
    let missing: Vec<_> = methods.filter(|method| vectors.iter().all(|v| v.method != *method)).collect();
    assert_eq!(missing, Vec::<String>::new());
}
