//! The services: render-svc in front of a mock of gen-svc, each in a process of its own.

use std::time::Duration;

use anyhow::Result;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tokio::process::Command;
use tonic::transport::Channel;

use super::Gateway;
use super::call::{Caller, Route};
use super::model::Model;
use crate::child::Service;
use crate::machine;

/// Both services. Dropping them ends them.
#[derive(Debug)]
pub(super) struct Services {
    render: Service,
    generate: Service,
    _model: Model,
}

/// Time on a CPU that each process has taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CpuTimes {
    pub(super) render: Duration,
    pub(super) generate: Duration,
    /// This process.
    pub(super) clients: Duration,
}

impl Services {
    /// A step of the mock takes so many milliseconds.
    pub(super) async fn start(args: &Gateway, step_ms: u64) -> Result<Self> {
        let model = Model::write()?;
        let mut command = Command::new(&args.gen_svc_mock);
        command.args(["--listen", "127.0.0.1:0", "--step-ms", &step_ms.to_string(), "--model"]).arg(model.path());
        let generate = Service::start(command).await?;
        let mut command = Command::new(&args.render_svc);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "error", "--models"]).arg(model.path());
        command.args(["--generate", &format!("http://{}", generate.address())]);
        let render = Service::start(command).await?;
        Ok(Self { render, generate, _model: model })
    }

    pub(super) async fn renderer(&self) -> Result<RenderServiceClient<Channel>> {
        Ok(RenderServiceClient::new(self.render.connect().await?))
    }

    /// A caller with a connection of its own.
    pub(super) async fn caller(&self, route: Route) -> Result<Caller> {
        Ok(match route {
            Route::Direct => Caller::Direct(GenerateServiceClient::new(self.generate.connect().await?)),
            Route::RunTask => Caller::RunTask(TaskServiceClient::new(self.render.connect().await?)),
        })
    }

    pub(super) fn cpu_times(&self) -> CpuTimes {
        let of = |process: Option<u32>| process.and_then(machine::cpu_time).unwrap_or_default();
        CpuTimes {
            render: of(self.render.process()),
            generate: of(self.generate.process()),
            clients: of(Some(std::process::id())),
        }
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
