//! vLLM as processes. `cargo xtask test --engines` installs it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tandem_common::process::Signal;

/// How long vLLM may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(1500);
/// The name of the process that computes the steps.
const ENGINE_CORE: &str = "VLLM::EngineCor"; // the kernel keeps 15 bytes

/// An interface of vLLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Http,
    /// `vllm.Inference` of the Rust frontend.
    Inference,
    /// `VllmEngine` of the Python server.
    Engine,
}

impl Api {
    /// Returns the value of `--engine`.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Http => "vllm",
            Self::Inference => "vllm-grpc",
            Self::Engine => "vllm-engine",
        }
    }
}

/// A server and its processes. Dropping it kills them.
#[derive(Debug)]
pub struct Vllm {
    api: Api,
    child: Child,
    port: u16,
}

fn folder() -> PathBuf {
    std::env::var_os("TANDEM_VLLM").map(PathBuf::from).expect("TANDEM_VLLM: run `cargo xtask test --engines`")
}

/// Returns the default model's folder, with f32 weights.
#[must_use]
pub fn model() -> PathBuf {
    folder().join("model")
}

/// Returns the folder of the vectors' model, with heads that vLLM can compute.
#[must_use]
pub fn vectors_model() -> PathBuf {
    folder().join("wide")
}

/// Returns the folder of a model whose heads two processes can share: the default one has three heads of keys.
#[must_use]
pub fn random_model() -> PathBuf {
    folder().join("random")
}

/// Returns a port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

impl Vllm {
    /// Starts a server of a model on both cores, and waits until it listens.
    pub fn start(api: Api, model: &Path, arguments: &[&str]) -> Self {
        let flags = ["--enable-scale-out", "--enable-prompt-tokens-details"];
        let flags: &[&str] = if api == Api::Http { &flags } else { &[] };
        let mut server = Self::spawn(api, model, "0-1", &[flags, arguments].concat());
        server.wait();
        server
    }

    /// Starts two processes with half of each weight, as on two nodes. The first one has the interface.
    pub fn start_two_nodes() -> (Self, Self) {
        let port = free_port().to_string();
        let shared = ["--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port"];
        let shared = [&shared[..], &[&port, "--distributed-executor-backend", "mp"]].concat();
        let mut first = Self::spawn(Api::Http, &random_model(), "0", &[&shared[..], &["--node-rank", "0"]].concat());
        let second =
            Self::spawn(Api::Http, &random_model(), "1", &[&shared[..], &["--node-rank", "1", "--headless"]].concat());
        first.wait();
        (first, second)
    }

    fn spawn(api: Api, model: &Path, cores: &str, arguments: &[&str]) -> Self {
        let (port, folder) = (free_port(), folder());
        let log = std::env::temp_dir().join(format!("vllm-{port}.log"));
        eprintln!("vLLM starts; its log is {}", log.display());
        let log = File::create(log).expect("a log");
        let mut command = Command::new(folder.join("bin/vllm"));
        command.arg("serve").arg(model).args(["--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"]);
        command.args(["--max-model-len", "2048", "--max-num-seqs", "32", "--generation-config", "vllm"]);
        command.args(["--structured-outputs-config.backend", "guidance"]).args(arguments);
        let other = free_port().to_string();
        match api {
            Api::Http => command.args(["--port", &port.to_string()]),
            Api::Engine => command.args(["--port", &port.to_string(), "--grpc"]),
            Api::Inference => command.args(["--port", &other, "--grpc-port", &port.to_string()]),
        };
        if api == Api::Inference {
            command.env("VLLM_USE_RUST_FRONTEND", "1").env("VLLM_RUST_FRONTEND_PATH", folder.join("vllm-rs"));
        }
        command.env("VLLM_CPU_KVCACHE_SPACE", "2").env("VLLM_CPU_OMP_THREADS_BIND", cores);
        command.env("VLLM_NO_USAGE_STATS", "1").env("HF_HUB_OFFLINE", "1");
        command.stdout(log.try_clone().expect("a log")).stderr(log).stdin(Stdio::null()).process_group(0);
        Self { api, child: command.spawn().expect("vLLM starts"), port }
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(self.child.try_wait().expect("a state").is_none(), "vLLM has ended; see its log");
            assert!(start.elapsed() < LOAD_LIMIT, "vLLM has not loaded after {LOAD_LIMIT:?}");
            std::thread::sleep(Duration::from_secs(1));
        }
        eprintln!("vLLM listens after {:?}", start.elapsed());
    }

    pub fn api(&self) -> Api {
        self.api
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the outputs that it generates. None: this interface does not report it.
    pub fn running(&self) -> Option<u64> {
        if self.api != Api::Http {
            return None;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        let line = page.lines().find(|line| line.starts_with("vllm:num_requests_running{")).expect("a metric");
        Some(line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number") as u64)
    }

    /// Signals the processes of this server that compute.
    pub fn signal_engine(&self, signal: Signal) {
        let group = self.child.id();
        let mut found = 0;
        for entry in fs::read_dir("/proc").expect("processes").flatten() {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let (Some((_, name)), Some((_, rest))) = (stat.split_once('('), stat.rsplit_once(") ")) else { continue };
            let is_of_group = rest.split(' ').nth(2) == Some(&group.to_string());
            if is_of_group && (name.starts_with(ENGINE_CORE) || name.starts_with("VLLM::Worker")) {
                found += 1;
                let id = entry.file_name().into_string().expect("a number");
                let signal = format!("-{}", signal.as_raw());
                assert!(Command::new("kill").args([&signal, &id]).status().expect("it runs").success());
            }
        }
        assert!(found > 0, "no process of vLLM computes");
    }
}

impl Drop for Vllm {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.child.id())]).status();
        let _ = self.child.wait();
    }
}
