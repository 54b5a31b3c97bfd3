//! The engine and the bridge, each as a child process.

use std::process::{Command, Stdio};

use anyhow::Result;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::process::Service;

use super::args::Bridge;
use super::call::{Caller, Route};
use super::http::Connection;
use super::prompts::Prompts;
use crate::child;

/// Outputs that the engine generates at once.
pub(super) const SLOTS: usize = 32;

/// What every part uses. Dropping it stops the processes.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) args: &'a Bridge,
    pub(super) prompts: Prompts,
    pub(super) bridge: Service,
    llama: Service,
}

impl<'a> Bench<'a> {
    pub(super) async fn start(args: &'a Bridge) -> Result<Self> {
        let mut command = Command::new(&args.python);
        let llama = ["0", &SLOTS.to_string(), "", "2048"];
        command.arg(&args.llama_server).arg(&args.model).args(llama).stderr(Stdio::null());
        let llama = child::start("llama-server", command).await?;
        let mut command = Command::new(&args.gen_bridge);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--engine", "llama-cpp", "--engine-url"]);
        command.arg(format!("http://{}", llama.address())).arg("--model").arg(&args.model);
        // One caller has three quarters of each.
        let most = (2 * args.streams).to_string();
        command.args(["--max-queue", &most, "--max-calls", &most]);
        let bridge = child::start("gen-bridge", command).await?;
        Ok(Self { args, prompts: Prompts::new(&args.model)?, bridge, llama })
    }

    /// Returns a caller with its own open connection, for one request.
    pub(super) async fn caller(&self, route: Route) -> Result<Caller> {
        Ok(match route {
            Route::Direct => Caller::Direct(Connection::open(self.llama.address()).await?),
            Route::Bridge => Caller::Bridge(GenerateServiceClient::new(child::connect(&self.bridge).await?)),
        })
    }

    /// Returns the number of requests that the engine computes.
    pub(super) async fn running(&self) -> Result<usize> {
        let mut connection = Connection::open(self.llama.address()).await?;
        let page = connection.get("/metrics").await?;
        let line = page.lines().find_map(|line| line.strip_prefix("llamacpp:requests_processing "));
        Ok(line.unwrap_or_default().trim().parse::<f64>()? as usize)
    }

    /// Waits until the engine computes no request.
    pub(super) async fn idle(&self) -> Result<()> {
        while self.running().await? > 0 {}
        Ok(())
    }
}
