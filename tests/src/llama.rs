//! llama.cpp's own HTTP server, in another process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{default_model, repository};
use tandem_common::process::{Service, Signal};

/// The tokens of a slot's context.
const CONTEXT: usize = 2048;

/// llama.cpp's server. Dropping it kills it.
#[derive(Debug)]
pub struct Llama {
    service: Service,
    model: PathBuf,
    slots: usize,
}

impl Llama {
    /// Starts the server with the default model.
    pub fn start(slots: usize) -> Self {
        Self::start_at(&default_model(), 0, slots, "", CONTEXT)
    }

    /// Starts a server that asks for this bearer token.
    pub fn start_with_key(key: &str) -> Self {
        Self::start_at(&default_model(), 0, 1, key, CONTEXT)
    }

    /// Starts a server with these slots, each with a context of this many tokens. Port 0 is a free one.
    pub fn start_at(model: &Path, port: u16, slots: usize, key: &str, context: usize) -> Self {
        let python = repository().join(".tandem/engines/bin/python");
        let mut command = Command::new(&python);
        let script = repository().join("tests/suite/bridge/llama_server.py");
        command
            .arg(script)
            .arg(model)
            .args([&port.to_string(), &slots.to_string(), key, &context.to_string()])
            .stderr(Stdio::null());
        let started = Service::start("llama-server", &mut command);
        let service =
            started.unwrap_or_else(|error| panic!("{error}; `cargo xtask test` installs {}", python.display()));
        Self { service, model: model.to_owned(), slots }
    }

    /// Kills the server, and starts it again at the same address with another model, or with the same one.
    pub fn restart(mut self, model: Option<&Path>) -> Self {
        self.kill();
        let port = self.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
        Self::start_at(model.unwrap_or(&self.model), port, self.slots, "", CONTEXT)
    }

    pub fn address(&self) -> &str {
        self.service.address()
    }

    pub fn kill(&mut self) {
        self.service.kill().expect("it is killed");
    }

    pub fn signal(&mut self, signal: Signal) {
        self.service.signal(signal).expect("it is signalled");
    }

    /// Returns the greedy ids of a prompt that the server itself answers.
    pub fn greedy(&self, prompt: &[u32], count: u32) -> Vec<u32> {
        let body = serde_json::json!({"prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": true,
            "cache_prompt": false});
        let answer: serde_json::Value =
            serde_json::from_str(&self.http("POST", "/completion", &body.to_string())).expect("an answer in JSON");
        serde_json::from_value(answer["tokens"].clone()).expect("ids")
    }

    fn http(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        let (address, length) = (self.address(), body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
    }

    /// Returns the requests that it computes and that wait in it.
    pub fn requests(&self) -> (u64, u64) {
        let page = self.http("GET", "/metrics", "");
        let value = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)).expect("a metric");
            line.trim().parse::<f64>().expect("a number") as u64
        };
        (value("llamacpp:requests_processing "), value("llamacpp:requests_deferred "))
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.service.kill();
    }
}
