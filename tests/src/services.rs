//! Services that run in the test's process, on free loopback ports.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use render_svc::adapters::Registry;
use render_svc::args::GenerationArgs;
use render_svc::catalog::{ModelCatalog, Sources};
use render_svc::executor::Executor;
use render_svc::generation::GenerationClient;
use render_svc::limits::Limits;
use render_svc::task::TaskRunner;
use render_svc::task::generator::Generator;
use tandem_common::serve::{DeferredRoutes, Health, SecureListener, Security, ServeArgs, ServeError, Shutdown};
use tokio::net::TcpListener;
use tokio::sync::{SetOnce, mpsc};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::files::default_model;

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    /// The address on which the service listens.
    pub address: SocketAddr,
    stop: Option<mpsc::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    /// Starts a service. `serve` gets a listener on a free loopback port and its shutdown.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start<F, S>(serve: F) -> Self
    where
        F: FnOnce(TcpListener, Shutdown) -> S,
        S: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, shutdown) = Shutdown::channel();
        let served = tokio::spawn(serve(listener, shutdown));
        Self { address, stop: Some(stop), served }
    }

    /// Connects to the service.
    ///
    /// # Panics
    /// If the service does not answer.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        endpoint.connect().await.expect("the service answers")
    }

    /// Waits until the service has ended by itself.
    ///
    /// # Panics
    /// If the service failed.
    pub async fn ended(self) {
        self.served.await.expect("the server does not panic").expect("the server ends without an error");
    }

    /// Waits until the service has failed and returns the error.
    ///
    /// # Panics
    /// If the service did not fail.
    pub async fn failure(self) -> ServeError {
        self.served.await.expect("the server does not panic").expect_err("the server fails")
    }

    /// Requests the shutdown as a signal does. A second request ends the drain delay.
    ///
    /// # Panics
    /// If the service has ended.
    pub fn request_shutdown(&self) {
        self.stop.as_ref().expect("it was not stopped").try_send(()).expect("the service runs");
    }

    /// Drains the service at once.
    ///
    /// # Panics
    /// If the service failed.
    pub async fn stop(mut self) {
        self.stop.take();
        self.served.await.expect("the server does not panic").expect("the server ends without an error");
    }
}

/// Starts a render service for these models that calls `generation`, if given.
///
/// # Panics
/// If a model does not load.
pub async fn render_service(models: &[PathBuf], generation: Option<SocketAddr>) -> Running {
    let sources = Sources { models: models.to_owned(), config: None };
    serve_catalog(ModelCatalog::open(sources, Registry::default()).expect("the models load").into(), generation).await
}

/// Returns a catalog with only the default model.
///
/// # Panics
/// If the model does not load.
#[must_use]
pub fn default_catalog() -> Arc<ModelCatalog> {
    catalog(&default_model())
}

/// Returns a catalog with only this model.
///
/// # Panics
/// If the model does not load.
#[must_use]
pub fn catalog(model: &Path) -> Arc<ModelCatalog> {
    let sources = Sources { models: vec![model.to_owned()], config: None };
    ModelCatalog::open(sources, Registry::default()).expect("the model loads").into()
}

/// Starts a render service for these models with these arguments.
///
/// # Panics
/// If a model does not load.
pub async fn render_service_with_args(models: &[PathBuf], args: ServeArgs) -> Running {
    let sources = Sources { models: models.to_owned(), config: None };
    let catalog = ModelCatalog::open(sources, Registry::default()).expect("the models load").into();
    serve_catalog_as(catalog, None, args).await
}

/// Starts a render service with this catalog that calls `generation`, if given.
///
/// # Panics
/// If no port is free.
pub async fn serve_catalog(catalog: Arc<ModelCatalog>, generation: Option<SocketAddr>) -> Running {
    serve_catalog_as(catalog, generation, ServeArgs::default()).await
}

async fn serve_catalog_as(catalog: Arc<ModelCatalog>, generation: Option<SocketAddr>, args: ServeArgs) -> Running {
    let generate = generation.iter().map(|address| format!("http://{address}").parse().expect("an address")).collect();
    serve_catalog_with_generation(catalog, GenerationArgs { generate, ..GenerationArgs::default() }, args).await
}

/// Starts a render service with this catalog and these arguments, which calls this generation
/// service.
///
/// # Panics
/// If the credentials cannot be used.
pub async fn serve_catalog_with_generation(
    catalog: Arc<ModelCatalog>,
    generation: GenerationArgs,
    args: ServeArgs,
) -> Running {
    let client =
        generation.config().map(|config| GenerationClient::connect(&config).expect("the credentials can be used"));
    serve_catalog_with_generator(catalog, client, args).await
}

/// Serves a catalog, and tasks on a generator.
///
/// # Panics
/// If no port is free.
pub async fn serve_catalog_with_generator(
    catalog: Arc<ModelCatalog>,
    generator: Option<impl Generator>,
    args: ServeArgs,
) -> Running {
    let runner = TaskRunner::new(generator);
    Running::start(move |listener, shutdown| async move {
        let security = Security::open(&args.security)?;
        let executor = Executor::new(catalog, Limits::default());
        let routes = render_svc::serve::routes(executor, runner, args.max_message_bytes);
        let routes = DeferredRoutes::new(SetOnce::from(routes));
        let health = Health::new(render_svc::serve::SERVICE_NAMES);
        render_svc::serve::serve(SecureListener { listener, security }, &args, health, routes, shutdown).await
    })
    .await
}
