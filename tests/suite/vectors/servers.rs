//! The servers of `tests/contract/servers.json`, as processes.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tandem_common::process::{Service, Signal};
use tandem_tests::newer::proxy;
use tandem_tests::{binary, repository};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::client::{Call, Client};
use super::{Expectation, Vector, expand};

const CONTROL_SERVICE: &str = "tandem.generate.v1.ControlService/";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
    /// False if the server does not become ready during its vectors.
    #[serde(default = "is_ready")]
    ready: bool,
    /// The authority's certificate, if the server needs TLS.
    tls: Option<String>,
    hold: Option<Hold>,
    queued: Option<Hold>,
    signal: Option<String>,
}

fn is_ready() -> bool {
    true
}

/// The content of a file.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Content {
    Text(String),
    /// A copy of a file or folder. Zeros extend a file to `size` bytes.
    Copy {
        copy: String,
        size: Option<u64>,
    },
    /// A named pipe without a writer.
    Pipe {
        #[serde(rename = "pipe")]
        _pipe: bool,
    },
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
    /// True if clients reach the servers through a proxy that turns their answers into those of a later version.
    is_newer: bool,
    /// The arguments of gen-bridge that name an engine. With them, a bridge takes the place of gen-svc.
    engine: Vec<String>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    service: Mutex<Service>,
    address: String,
    control_address: String,
    channel: Channel,
    control: Channel,
    hold: Option<Vector>,
    queued: Option<Vector>,
    signal: Option<String>,
    _folder: TempDir,
}

pub(super) fn contract() -> PathBuf {
    repository().join("tests/contract")
}

impl Servers {
    pub(super) fn new() -> Self {
        let specs = expand::read(&contract().join("servers.json"));
        Self { specs, running: HashMap::new(), is_newer: false, engine: Vec::new() }
    }

    /// Returns servers with bridges in front of an engine with the vectors' model, in place of gen-svc.
    pub(super) fn bridged(kind: &str, url: &str) -> Self {
        let mut servers = Self::new();
        for spec in servers.specs.values_mut().filter(|spec| spec.service == "gen-svc") {
            spec.service = "gen-bridge".to_owned();
            // The engine has these settings.
            for flag in ["--threads", "--dtype"] {
                if let Some(at) = spec.args.iter().position(|argument| argument == flag) {
                    spec.args.drain(at..at + 2);
                }
            }
        }
        servers.engine = ["--engine", kind, "--engine-url", url].map(str::to_owned).into();
        servers
    }

    pub(super) fn of_a_newer_version() -> Self {
        Self { is_newer: true, ..Self::new() }
    }

    /// Returns the server of a key. Starts it, after its replicas, unless it runs.
    pub(super) async fn start(&mut self, key: &str) -> Arc<Server> {
        let replicas = self.specs[key].replicas.clone();
        let mut generate = String::new();
        for replica in replicas.iter().rev() {
            generate = format!("http://{}", Box::pin(self.start(replica)).await.address);
        }
        if !self.running.contains_key(key) {
            let spec = &self.specs[key];
            let engine = if spec.service == "gen-bridge" { &self.engine[..] } else { &[] };
            let server = Server::start(spec, &generate, engine, self.is_newer).await;
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
    /// Starts the program, and waits until it is ready, or accepts connections if it does not become ready.
    /// Returns it with its address.
    async fn run(&self, arguments: Vec<String>) -> (Service, String) {
        let address = if self.ready { "127.0.0.1:0".to_owned() } else { free_address().await };
        let mut command = Command::new(binary(&self.service));
        command.args(["serve", "--listen", &address]).args(arguments).stderr(Stdio::null());
        let name = self.service.clone();
        if self.ready {
            let started = tokio::task::spawn_blocking(move || Service::start(&name, &mut command));
            let service = started.await.expect("no panic").unwrap_or_else(|error| panic!("{error}"));
            let address = service.address().to_owned();
            return (service, address);
        }
        let service = Service::spawn(&name, &mut command).unwrap_or_else(|error| panic!("{error}"));
        while TcpStream::connect(&address).await.is_err() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        (service, address)
    }

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
    async fn start(spec: &Spec, generate: &str, engine: &[String], is_newer: bool) -> Self {
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
        let arguments: Vec<String> = spec.args.iter().map(fill).chain(engine.iter().cloned()).collect();
        let (service, mut address) = spec.run(arguments).await;
        if is_newer {
            address = newer(address).await;
        }
        Self {
            channel: spec.connect(&address),
            address,
            control: spec.connect(&control),
            control_address: control,
            service: Mutex::new(service),
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
            self.terminate(client).await;
        }
        held
    }

    /// Returns true if health reports SERVING.
    pub(super) async fn is_serving(&self, client: &Client) -> bool {
        let health = call("grpc.health.v1.Health/Check", json!({}));
        // In a box, because a call can wait for the health of its server.
        Box::pin(client.call(self, &health)).await.messages == [json!({"status": "SERVING"})]
    }

    /// Sends SIGTERM, and waits until health is not SERVING.
    pub(super) async fn terminate(&self, client: &Client) {
        self.service.lock().expect("not poisoned").signal(Signal::TERM).expect("it is signalled");
        while self.is_serving(client).await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(service) = self.service.get_mut() {
            let _ = service.kill();
        }
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
        request_binary: None,
        binary_only: false,
        compression: None,
        cancel_after: None,
        signal_after: None,
        expect,
    }
}

/// Returns the address of a proxy that turns a service's answers into those of a later version.
async fn newer(service: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(proxy::serve(listener, service));
    address
}

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

/// Writes a file, makes a pipe, or copies a file or folder of `tests/contract`.
fn write(path: &Path, content: &Content) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is writable");
    match content {
        Content::Text(text) => std::fs::write(path, text).expect("the file is written"),
        Content::Copy { copy, size } => {
            copy_all(&contract().join(copy), path);
            if let Some(size) = size {
                let file = std::fs::OpenOptions::new().write(true).open(path).expect("the copy opens");
                file.set_len(*size).expect("the file system has sparse files");
            }
        }
        Content::Pipe { .. } => {
            assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
        }
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
