//! The servers of `tests/contract/servers.json`, as processes.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tandem_process::Signal;
use tandem_tests::{Process, repository};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::client::{Call, Client};
use super::{Expectation, Vector};

const CONTROL_SERVICE: &str = "tandem.generate.v1.ControlService/";

/// A server's arguments, files and state.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    service: String,
    args: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, Content>,
    #[serde(default)]
    replicas: Vec<String>,
    /// The authority's certificate, if the server needs TLS.
    tls: Option<String>,
    hold: Option<Hold>,
    queued: Option<Hold>,
    signal: Option<String>,
}

/// The content of a file.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Copy { copy: String },
}

/// A call that stays open while the server gets its vectors.
#[derive(Debug, Deserialize)]
struct Hold {
    method: String,
    request: Value,
}

/// The running servers.
#[derive(Debug)]
pub(super) struct Servers {
    specs: BTreeMap<String, Spec>,
    running: HashMap<String, Arc<Server>>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    process: std::sync::Mutex<Process>,
    address: String,
    control_address: String,
    channel: Channel,
    control: Channel,
    hold: Option<Vector>,
    queued: Option<Vector>,
    signal: Option<String>,
    _folder: TempDir,
}

fn contract() -> PathBuf {
    repository().join("tests/contract")
}

impl Servers {
    pub(super) fn new() -> Self {
        let text = std::fs::read_to_string(contract().join("servers.json")).expect("servers.json");
        Self { specs: serde_json::from_str(&text).expect("servers"), running: HashMap::new() }
    }

    /// Returns the server of a key. Starts it, after its replicas, unless it runs.
    pub(super) async fn start(&mut self, key: &str) -> Arc<Server> {
        let replicas = self.specs[key].replicas.clone();
        let mut generate = String::new();
        for replica in replicas.iter().rev() {
            generate = format!("http://{}", Box::pin(self.start(replica)).await.address);
        }
        if !self.running.contains_key(key) {
            let server = Server::start(&self.specs[key], &generate).await;
            self.running.insert(key.to_owned(), Arc::new(server));
        }
        Arc::clone(&self.running[key])
    }

    /// Ends a server, unless others use it.
    pub(super) fn release(&mut self, key: &str) {
        if !self.specs.values().any(|spec| spec.replicas.iter().any(|replica| replica == key)) {
            self.running.remove(key);
        }
    }
}

impl Spec {
    fn connect(&self, address: &str) -> Channel {
        let Some(authority) = &self.tls else {
            return Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy();
        };
        let authority = Certificate::from_pem(std::fs::read(contract().join(authority)).expect("a certificate"));
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("an address");
        endpoint.tls_config(ClientTlsConfig::new().ca_certificate(authority)).expect("valid TLS").connect_lazy()
    }
}

impl Server {
    async fn start(spec: &Spec, generate: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for (name, content) in &spec.files {
            write(&folder.path().join(name), content);
        }
        let control = free_address().await;
        let model = contract().join("model");
        let places = [("{model}", model.as_path()), ("{folder}", folder.path())];
        let fill = |argument: &String| {
            let argument = argument.replace("{control}", &control).replace("{generate}", generate);
            places.iter().fold(argument, |text, (name, path)| text.replace(name, &path.to_string_lossy()))
        };
        let command: Vec<String> = std::iter::once(spec.service.clone()).chain(spec.args.iter().map(fill)).collect();
        let process =
            tokio::task::spawn_blocking(move || Process::start_in("127.0.0.1:0", &command, &[], Stdio::null()));
        let process = process.await.expect("it starts");
        Self {
            address: process.address.clone(),
            channel: spec.connect(&process.address),
            control: spec.connect(&control),
            control_address: control,
            process: std::sync::Mutex::new(process),
            hold: spec.hold.as_ref().map(Hold::vector),
            queued: spec.queued.as_ref().map(Hold::vector),
            signal: spec.signal.clone(),
            _folder: folder,
        }
    }

    /// Returns the channel to the server of a method.
    pub(super) fn channel(&self, method: &str) -> Channel {
        if method.starts_with(CONTROL_SERVICE) { self.control.clone() } else { self.channel.clone() }
    }

    /// Returns the address for the example of a method.
    pub(super) fn address_of(&self, method: &str) -> &str {
        if method.starts_with("ControlService.") { &self.control_address } else { &self.address }
    }

    /// Brings the server into the state that its vectors need. Returns the calls that must stay open.
    pub(super) async fn prepare(&self, client: &Client) -> Vec<Call> {
        let mut held = Vec::new();
        if let Some(vector) = &self.hold {
            let mut call = client.open(self, vector).await.expect("it starts");
            call.wait_for_event().await;
            held.push(call);
        }
        if let Some(vector) = &self.queued {
            let mut call = client.open(self, vector).await.expect("it is queued");
            call.wait_for_progress().await;
            held.push(call);
        }
        if let Some(signal) = &self.signal {
            assert_eq!(signal, "SIGTERM");
            self.process.lock().expect("not poisoned").signal(Signal::TERM);
            let health = call("grpc.health.v1.Health/Check", json!({}));
            while client.call(self, &health).await.messages == [json!({"status": "SERVING"})] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        held
    }
}

impl Hold {
    fn vector(&self) -> Vector {
        call(&self.method, self.request.clone())
    }
}

/// Returns a vector without an expectation.
fn call(method: &str, request: Value) -> Vector {
    let expect =
        Expectation { response: None, events: None, error: None, absent: Vec::new(), headers: BTreeMap::new() };
    Vector {
        name: method.to_owned(),
        server: String::new(),
        method: method.to_owned(),
        metadata: BTreeMap::new(),
        deadline_ms: None,
        eventually: false,
        request,
        request_binary: String::new(),
        binary_only: false,
        cancel_after: None,
        expect,
    }
}

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

/// Writes a file, or copies a file or folder of `tests/contract`.
fn write(path: &Path, content: &Content) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is writable");
    match content {
        Content::Text(text) => std::fs::write(path, text).expect("the file is written"),
        Content::Copy { copy } => copy_all(&contract().join(copy), path),
    }
}

fn copy_all(from: &Path, to: &Path) {
    if from.is_file() {
        std::fs::copy(from, to).expect("it is copied");
        return;
    }
    std::fs::create_dir_all(to).expect("the folder is writable");
    for entry in from.read_dir().expect("a folder") {
        let entry = entry.expect("a file");
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}
