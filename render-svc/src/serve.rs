//! `render-svc serve`: models, APIs and server, from start to drain.

use std::collections::HashMap;
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;

use tandem_common::pb::render::v1::registry_service_server::{self, RegistryServiceServer};
use tandem_common::pb::render::v1::render_service_server::{self, RenderServiceServer};
use tandem_common::pb::task::v1::task_service_server::{self, TaskServiceServer};
use tandem_common::serve::{
    self, DeferredRoutes, Endpoint, Health, SecureListener, Security, ServeArgs, ServeError, Shutdown,
};
use tandem_common::status::chain;
use tandem_common::telemetry::Telemetry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::service::Routes;

use crate::adapters::Registry;
use crate::args::{GenerationArgs, Serve};
use crate::catalog::{ModelCatalog, ReloadOutcome, ServedModel};
use crate::command::CommandError;
use crate::executor::Executor;
use crate::generation::{Availability, GenerationClient};
use crate::grpc::RenderApi;
use crate::grpc::task::TaskApi;
use crate::limits::Limits;
use crate::task::TaskRunner;
use crate::task::generator::Generator;
use crate::task::model_names::ModelNames;

/// The full names of the services.
pub const SERVICE_NAMES: [&str; 3] =
    [render_service_server::SERVICE_NAME, registry_service_server::SERVICE_NAME, task_service_server::SERVICE_NAME];

/// Listens, loads the models, prints the address, and serves until SIGTERM.
///
/// # Errors
/// No model can be loaded, the address is not available, or the server failed.
pub async fn run(args: Serve, telemetry: &Telemetry) -> Result<(), CommandError> {
    let (shutdown, hangups) = (Shutdown::on_signals()?, signal(SignalKind::hangup())?);
    let security = Security::open(&args.serve.security)?;
    let listener = serve::listen(args.listen, &security).await?;
    let (address, mut stdout) = (listener.local_addr()?, std::io::stdout());
    if let Some(metrics) = serve::serve_metrics(telemetry, &security).await? {
        writeln!(stdout, "render-svc metrics listening on {metrics}")?;
    }
    let generation = args.generation.config().map(|config| GenerationClient::connect(&config)).transpose()?;
    let availability = generation.as_ref().map(GenerationClient::availability);
    let runner = TaskRunner::new(generation);
    let health = health(&args.generation);
    let (sources, deferred) = (args.sources.clone(), DeferredRoutes::default());
    let loading = tokio::task::spawn_blocking(|| ModelCatalog::open(sources, Registry::default()));
    let listener = SecureListener { listener, security };
    let mut serving = pin!(serve(listener, &args.serve, health.clone(), Arc::clone(&deferred), shutdown));
    let catalog = tokio::select! {
        ended = &mut serving => return Ok(ended?),
        loaded = loading => Arc::new(loaded??),
    };
    let reloads = tokio::spawn(reload_on(hangups, Arc::clone(&catalog)));
    let reports = tokio::spawn(report_availability(health.clone(), availability, Arc::clone(&catalog)));
    log_settings(&args, &catalog);
    warn_if_empty(&catalog);
    // The routes are set only here, so that setting them cannot fail.
    let _ = deferred.set(routes(Executor::new(catalog, args.limits), runner, args.serve.max_message_bytes));
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = health.ready() => writeln!(stdout, "render-svc listening on {address}")?,
    }
    serving.await?;
    reloads.abort();
    reports.abort();
    Ok(())
}

fn health(args: &GenerationArgs) -> Health {
    let health = Health::new(SERVICE_NAMES);
    if args.ready_with_replica { health.requiring(task_service_server::SERVICE_NAME) } else { health }
}

/// Logs the settings in force, defaults included.
fn log_settings(args: &Serve, catalog: &ModelCatalog) {
    let Limits { max_prompt_bytes, max_images, max_image_pixels, .. } = args.limits;
    let replicas = args.generation.config().map(|config| config.targets);
    let replicas: Vec<_> = replicas.unwrap_or_default().iter().map(ToString::to_string).collect();
    tracing::info!(
        models = catalog.models().loaded().count(),
        replicas = replicas.join(" "),
        max_calls = args.serve.max_calls,
        max_connections = args.serve.max_connections(),
        max_message_bytes = args.serve.max_message_bytes,
        max_total_message_bytes = args.serve.max_total_message_bytes(),
        max_prompt_bytes,
        max_images,
        max_image_pixels,
        drain_seconds = args.serve.drain_seconds,
        "settings"
    );
}

/// Reads the TLS and token files, checks the addresses, and loads the models as [`run`] does. Does
/// not listen. Returns a line that names the models.
///
/// # Errors
/// An address must not be used, the TLS or token files cannot be used, or a model cannot be loaded.
/// [`run`] serves the other models then.
pub async fn check(args: Serve) -> Result<String, CommandError> {
    let security = Security::open(&args.serve.security)?;
    for address in args.telemetry.metrics_listen.iter().chain([&args.listen]) {
        security.check(*address)?;
    }
    if let Some(config) = args.generation.config() {
        config.credentials.check(&config.targets)?;
    }
    let catalog = tokio::task::spawn_blocking(|| ModelCatalog::open(args.sources, Registry::default())).await??;
    let models = catalog.models();
    if let Some(problem) = models.entries().find_map(|(_, entry)| entry.problem.clone()) {
        return Err(CommandError::Model(problem));
    }
    let ids: Vec<_> = models.entries().map(|(id, _)| id).collect();
    let models =
        if ids.is_empty() { "without a model".to_owned() } else { format!("with these models: {}", ids.join(", ")) };
    Ok(format!("render-svc would serve on {}, {models}", args.listen))
}

fn warn_if_empty(catalog: &ModelCatalog) {
    if catalog.models().entries().next().is_none() {
        tracing::warn!("there is no model: every request for one is rejected");
    }
}

/// Reloads the models at every SIGHUP.
async fn reload_on(mut hangups: Signal, catalog: Arc<ModelCatalog>) {
    while hangups.recv().await.is_some() {
        let reloaded = Arc::clone(&catalog);
        match tokio::task::spawn_blocking(move || reloaded.reload()).await {
            Ok(Ok(ReloadOutcome { loaded, kept, removed, failed })) => {
                tracing::info!(?loaded, kept = kept.len(), ?removed, ?failed, "models reloaded");
                warn_if_empty(&catalog);
            }
            Ok(Err(error)) => {
                tracing::error!("model reload failed, the table of models is unchanged: {}", chain(&error))
            }
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "model reload failed"),
        }
    }
}

/// Serves until `shutdown` and the drain delay, then drains.
///
/// # Errors
/// The server fails.
pub async fn serve(
    SecureListener { listener, security }: SecureListener,
    args: &ServeArgs,
    health: Health,
    routes: DeferredRoutes,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let endpoint = Endpoint { listener, security, names: SERVICE_NAMES.to_vec(), routes, outlasts_drain: false };
    let announced = health.clone();
    serve::serve(vec![endpoint], args, health, async { shutdown.announced(&announced, args.drain_delay()).await }).await
}

/// Reports TaskService as NOT_SERVING while no task can run: without a generation service, or while
/// no healthy replica serves any of the models. Warns of a `generate_id` that no replica has.
pub async fn report_availability(health: Health, availability: Option<Availability>, catalog: Arc<ModelCatalog>) {
    let Some(mut availability) = availability else {
        return health.set_available(task_service_server::SERVICE_NAME, false).await;
    };
    let mut reloads = catalog.changes();
    let mut unserved = HashMap::new();
    loop {
        let is_available = {
            let models = catalog.models();
            let names = |served: &ServedModel| ModelNames::of(&served.model, models.generation_ids());
            let configured = models.loaded().filter(|served| served.model.has_generate_id);
            let problems = configured.filter_map(|served| names(served));
            let problems = problems.filter_map(|names| Some((availability.unserved(&names)?, names.id)));
            let problems: HashMap<_, _> = problems.map(|(problem, id)| (id, problem)).collect();
            warn_of_new(&problems, &unserved);
            unserved = problems;
            models.loaded().filter_map(|served| names(served)).any(|names| availability.serves(&names))
        };
        health.set_available(task_service_server::SERVICE_NAME, is_available).await;
        // The sender lives as long as `catalog`.
        tokio::select! {
            () = availability.changed() => {}
            _ = reloads.changed() => {}
        }
    }
}

fn warn_of_new(problems: &HashMap<String, String>, known: &HashMap<String, String>) {
    for (model, problem) in problems.iter().filter(|(model, _)| !known.contains_key(*model)) {
        tracing::warn!(model, problem, "no replica has the model's generate_id");
    }
}

/// Returns the services over this executor and this runner of tasks.
#[must_use]
pub fn routes(executor: Executor, runner: TaskRunner<impl Generator>, max_message_bytes: usize) -> Routes {
    let api = RenderApi::new(executor);
    let mut routes = Routes::builder();
    routes
        .add_service(RenderServiceServer::new(api.clone()).max_decoding_message_size(max_message_bytes))
        .add_service(RegistryServiceServer::new(api.clone()).max_decoding_message_size(max_message_bytes))
        .add_service(TaskServiceServer::new(TaskApi::new(api, runner)).max_decoding_message_size(max_message_bytes));
    routes.routes()
}
