//! HTTP/1.1, as far as llama.cpp's server needs it: the least work that a direct client can have.

use anyhow::{Context, Result};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A connection for one request.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
}

/// The read parts of a streamed event.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    /// The tokens of the answer so far. The list of ids lacks some inside characters.
    #[serde(default)]
    pub(super) tokens_predicted: usize,
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address: address.to_owned() })
    }

    /// Sends a request with a body of JSON.
    pub(super) async fn post(&mut self, path: &str, body: &str) -> Result<()> {
        self.send(&format!("POST {path}"), body).await
    }

    /// Returns the answer to a GET, with its headers.
    pub(super) async fn get(&mut self, path: &str) -> Result<String> {
        self.send(&format!("GET {path}"), "").await?;
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn send(&mut self, method: &str, body: &str) -> Result<()> {
        let head = format!(
            "{method} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(format!("{head}{body}").as_bytes()).await?)
    }

    /// Returns the next event. The server sends each as a chunk, so that the lines without data are the headers,
    /// the sizes of chunks, and empty.
    pub(super) async fn event(&mut self) -> Result<Event> {
        let mut line = String::new();
        while self.stream.read_line(&mut line).await? > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).with_context(|| line.clone());
            }
            line.clear();
        }
        anyhow::bail!("the stream ended before its last event")
    }
}
