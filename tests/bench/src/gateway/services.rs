//! The services, each as a child process: render-svc, and the mock of gen-svc that it calls.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::process::Service;
use tonic::transport::Channel;

use super::args::Gateway;
use super::call::{Caller, Route};
use super::model::Model;
use crate::{child, machine};

/// Both services. Dropping them stops them.
#[derive(Debug)]
pub(super) struct Services {
    render: Service,
    generate: Service,
    _model: Model,
}

/// CPU time of each process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuTimes {
    pub(super) render: Duration,
    pub(super) generate: Duration,
    /// This process, which runs the clients.
    pub(super) clients: Duration,
}

impl Services {
    /// Starts both services. A step of the mock takes `step_ms` milliseconds.
    pub(super) async fn start(args: &Gateway, step_ms: u64) -> Result<Self> {
        let model = Model::write()?;
        let mut command = Command::new(&args.gen_svc_mock);
        command.args(["--listen", "127.0.0.1:0", "--step-ms", &step_ms.to_string(), "--model"]).arg(model.path());
        let generate = child::start("gen-svc-mock", command).await?;
        let mut command = Command::new(&args.render_svc);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--models"]).arg(model.path());
        command.args(["--generate", &format!("http://{}", generate.address())]);
        let render = child::start("render-svc", command).await?;
        Ok(Self { render, generate, _model: model })
    }

    pub(super) async fn renderer(&self) -> Result<RenderServiceClient<Channel>> {
        Ok(RenderServiceClient::new(child::connect(&self.render).await?))
    }

    /// Returns a caller with its own connection.
    pub(super) async fn caller(&self, route: Route) -> Result<Caller> {
        Ok(match route {
            Route::Direct => Caller::Direct(GenerateServiceClient::new(child::connect(&self.generate).await?)),
            Route::RunTask => Caller::RunTask(TaskServiceClient::new(child::connect(&self.render).await?)),
        })
    }

    pub(super) fn cpu_times(&self) -> CpuTimes {
        let of = |process: u32| machine::cpu_time(process).unwrap_or_default();
        CpuTimes { render: of(self.render.id()), generate: of(self.generate.id()), clients: of(std::process::id()) }
    }
}

impl CpuTimes {
    pub(super) fn sum(self) -> Duration {
        self.render + self.generate + self.clients
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            render: self.render.saturating_sub(before.render),
            generate: self.generate.saturating_sub(before.generate),
            clients: self.clients.saturating_sub(before.clients),
        }
    }
}
