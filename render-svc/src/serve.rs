//! `render-svc serve`: models, APIs and server, from start to drain.

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;

use tandem_common::pb::render::v1::registry_service_server::{self, RegistryServiceServer};
use tandem_common::pb::render::v1::render_service_server::{self, RenderServiceServer};
use tandem_common::pb::task::v1::task_service_server::{self, TaskServiceServer};
use tandem_common::serve::{self, Endpoint, Health, Security, ServeArgs, ServeError};
use tandem_common::status::chain;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::service::Routes;

use crate::adapters::Registry;
use crate::args::Serve;
use crate::grpc::{RenderApi, Renderer, TaskApi};
use crate::models::{Library, Rescan};
use crate::task::TaskRunner;

/// Loads the models, listens, says so, and serves until SIGTERM.
///
/// # Errors
/// A model does not load, the address cannot be had, or the server failed.
pub async fn run(args: Serve) -> anyhow::Result<()> {
    let security = Security::open(&args.serve.security)?;
    let listener = serve::listen(args.listen, &security).await?;
    let library = Arc::new(Library::open(args.sources.into(), Registry::default())?);
    let runner = TaskRunner::new(&args.generation)?;
    let shutdown = serve::shutdown_signal()?;
    let rescans = tokio::spawn(rescan_on(signal(SignalKind::hangup())?, Arc::clone(&library)));
    writeln!(std::io::stdout(), "render-svc listening on {}", listener.local_addr()?)?;
    serve((listener, security), &args.serve, library, runner, shutdown).await?;
    rescans.abort();
    Ok(())
}

/// Looks for models again at every SIGHUP.
async fn rescan_on(mut hangups: Signal, library: Arc<Library>) {
    while hangups.recv().await.is_some() {
        let library = Arc::clone(&library);
        match tokio::task::spawn_blocking(move || library.rescan()).await {
            Ok(Ok(Rescan { loaded, kept, removed, failed })) => {
                tracing::info!(?loaded, kept = kept.len(), ?removed, ?failed, "models rescanned");
            }
            Ok(Err(error)) => tracing::error!("models not rescanned, all stay as they are: {}", chain(&error)),
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "models not rescanned"),
        }
    }
}

/// Serves until `shutdown`, then drains.
///
/// # Errors
/// The server fails.
pub async fn serve(
    (listener, security): (TcpListener, Security),
    args: &ServeArgs,
    library: Arc<Library>,
    runner: TaskRunner,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let api = RenderApi::new(Renderer::new(library));
    let limit = args.max_message_bytes;
    let mut routes = Routes::builder();
    routes
        .add_service(RenderServiceServer::new(api.clone()).max_decoding_message_size(limit))
        .add_service(RegistryServiceServer::new(api.clone()).max_decoding_message_size(limit))
        .add_service(TaskServiceServer::new(TaskApi::new(api, runner)).max_decoding_message_size(limit));
    let names =
        [render_service_server::SERVICE_NAME, registry_service_server::SERVICE_NAME, task_service_server::SERVICE_NAME];
    let endpoint = Endpoint { listener, security, names: names.to_vec(), routes: routes.routes() };
    serve::serve(vec![endpoint], args, Health::new(names), shutdown).await
}
