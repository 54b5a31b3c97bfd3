//! Services in processes of their own.

use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};

/// A running service. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    address: String,
}

impl Service {
    /// Starts it, and reads where it listens from the line that it prints when it is ready.
    pub(crate) async fn start(mut command: Command) -> Result<Self> {
        let name = command.as_std().get_program().display().to_string();
        let mut child =
            command.stdout(Stdio::piped()).kill_on_drop(true).spawn().with_context(|| format!("cannot run {name}"))?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let line = lines.next_line().await?;
        let line = line.with_context(|| format!("{name} did not start; what it printed above says why"))?;
        let address = line.rsplit(' ').next().context("no address")?.to_owned();
        Ok(Self { child, address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?.tcp_nodelay(true);
        Ok(endpoint.connect().await?)
    }
}
