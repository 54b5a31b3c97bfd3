//! `render-svc serve`: models, APIs and server, from start to drain.

use std::future::Future;
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;

use tandem_common::pb::render::v1::registry_service_server::{self, RegistryServiceServer};
use tandem_common::pb::render::v1::render_service_server::{self, RenderServiceServer};
use tandem_common::pb::task::v1::task_service_server::{self, TaskServiceServer};
use tandem_common::serve::{self, Endpoint, Health, Later, Security, ServeArgs, ServeError};
use tandem_common::status::chain;
use tandem_common::telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::service::Routes;

use crate::adapters::Registry;
use crate::args::Serve;
use crate::generation::GenerationClient;
use crate::grpc::task::TaskApi;
use crate::grpc::{RenderApi, Renderer};
use crate::models::{Library, Rescan};
use crate::task::TaskRunner;
use crate::task::generator::Generator;

/// Listens, loads the models, says so, and serves until SIGTERM.
///
/// # Errors
/// A model does not load, the address cannot be had, or the server failed.
pub async fn run(args: Serve, telemetry: &Telemetry) -> anyhow::Result<()> {
    let (shutdown, hangups) = (serve::shutdown_signal()?, signal(SignalKind::hangup())?);
    let security = Security::open(&args.serve.security)?;
    let listener = serve::listen(args.listen, &security).await?;
    let (address, mut stdout) = (listener.local_addr()?, std::io::stdout());
    if let Some(metrics) = telemetry.serve_metrics(&security).await? {
        writeln!(stdout, "render-svc metrics listening on {metrics}")?;
    }
    let generation = args.generation.config().map(|config| GenerationClient::connect(&config)).transpose()?;
    let runner = TaskRunner::new(generation);
    let (sources, later) = (args.sources.into(), Later::default());
    let loading = tokio::task::spawn_blocking(|| Library::open(sources, Registry::default()));
    let mut serving = pin!(serve((listener, security), &args.serve, Arc::clone(&later), shutdown));
    let library = tokio::select! {
        ended = &mut serving => return Ok(ended?),
        loaded = loading => Arc::new(loaded??),
    };
    let rescans = tokio::spawn(rescan_on(hangups, Arc::clone(&library)));
    // Nobody else makes them.
    let _ = later.set(routes(Renderer::new(library, args.limits), runner, args.serve.max_message_bytes));
    writeln!(stdout, "render-svc listening on {address}")?;
    serving.await?;
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
    routes: Later,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let names =
        [render_service_server::SERVICE_NAME, registry_service_server::SERVICE_NAME, task_service_server::SERVICE_NAME];
    let endpoint = Endpoint { listener, security, names: names.to_vec(), routes };
    serve::serve(vec![endpoint], args, Health::new(names), shutdown).await
}

/// The services, over what renders and what runs tasks.
#[must_use]
pub fn routes(renderer: Renderer, runner: TaskRunner<impl Generator>, max_message_bytes: usize) -> Routes {
    let api = RenderApi::new(renderer);
    let mut routes = Routes::builder();
    routes
        .add_service(RenderServiceServer::new(api.clone()).max_decoding_message_size(max_message_bytes))
        .add_service(RegistryServiceServer::new(api.clone()).max_decoding_message_size(max_message_bytes))
        .add_service(TaskServiceServer::new(TaskApi::new(api, runner)).max_decoding_message_size(max_message_bytes));
    routes.routes()
}
