//! `render-svc serve`: models, APIs and server, from start to drain.

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;

use tandem_common::pb::render::v1::registry_service_server::{self, RegistryServiceServer};
use tandem_common::pb::render::v1::render_service_server::{self, RenderServiceServer};
use tandem_common::pb::task::v1::task_service_server::{self, TaskServiceServer};
use tandem_common::serve::{self, Health, ServeArgs, ServeError};
use tokio::net::TcpListener;
use tonic::service::Routes;

use crate::args::Serve;
use crate::grpc::{RenderApi, TaskApi};
use crate::models::Models;
use crate::task::TaskRunner;

/// Loads the models, listens, says so, and serves until SIGTERM.
///
/// # Errors
/// A model does not load, the address cannot be had, or the server failed.
pub async fn run(args: Serve) -> anyhow::Result<()> {
    let listener = serve::listen(args.listen).await?;
    let models = Models::load(&args.models)?;
    let shutdown = serve::shutdown_signal()?;
    writeln!(std::io::stdout(), "render-svc listening on {}", listener.local_addr()?)?;
    serve(listener, &args.serve, models, TaskRunner::new(args.generate), shutdown).await?;
    Ok(())
}

/// Serves until `shutdown`, then drains.
///
/// # Errors
/// The server fails.
pub async fn serve(
    listener: TcpListener,
    args: &ServeArgs,
    models: Models,
    runner: TaskRunner,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let models = Arc::new(models);
    let api = RenderApi::new(Arc::clone(&models));
    let limit = args.max_message_bytes;
    let mut routes = Routes::builder();
    routes
        .add_service(RenderServiceServer::new(api.clone()).max_decoding_message_size(limit))
        .add_service(RegistryServiceServer::new(api).max_decoding_message_size(limit))
        .add_service(TaskServiceServer::new(TaskApi::new(models, runner)).max_decoding_message_size(limit));
    let names =
        [render_service_server::SERVICE_NAME, registry_service_server::SERVICE_NAME, task_service_server::SERVICE_NAME];
    serve::serve(listener, args, Health::new(names), routes.routes(), shutdown).await
}
