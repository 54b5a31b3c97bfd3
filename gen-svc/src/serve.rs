//! A replica: loads the model, serves requests, and drains.

use std::convert::Infallible;
use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_common::serve::{
    self, DeferredRoutes, Endpoint, Health, SecureListener, Security, ServeArgs, ServeError, Shutdown,
};
use tandem_common::telemetry::Telemetry;
use tandem_common::timing::{ENDLESS_STEP, SLOW_STEP};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::LoadError;
use tandem_core::library::Library;
use tandem_core::lifecycle::{Lifecycle, ServerState};
use tandem_core::models::Model;
use tandem_core::request::ServedModel;
use tokio::net::TcpListener;
use tokio::sync::SetOnce;
use tonic::service::Routes;

use crate::args::ReplicaArgs;
use crate::command::CommandError;
use crate::grpc;
use crate::load;

/// The share of the drain time in which running requests may finish. After it, they are cancelled.
const DRAIN_GRACE_SHARE: f64 = 0.9;

/// How long a step may take.
#[derive(Debug, Clone, Copy)]
pub struct StallLimits {
    /// While a step runs for longer, health reports NOT_SERVING.
    pub slow: Duration,
    /// A step that runs for longer does not end: only a restart helps.
    pub most: Duration,
    /// The time between two looks at the current step.
    pub check_interval: Duration,
}

impl Default for StallLimits {
    fn default() -> Self {
        Self { slow: SLOW_STEP, most: ENDLESS_STEP, check_interval: Duration::from_secs(1) }
    }
}

/// A server whose engine is installed once its model is loaded. Clones share one server.
#[derive(Debug, Clone, Default)]
pub struct Server {
    lifecycle: Lifecycle,
    engine: Arc<OnceLock<Engine>>,
    routes: DeferredRoutes,
    /// Set once health reports SERVING.
    ready: Arc<SetOnce<()>>,
    stall_limits: StallLimits,
}

impl Server {
    /// Sets how long a step may take.
    #[must_use]
    pub fn with_stall_limits(self, stall_limits: StallLimits) -> Self {
        Self { stall_limits, ..self }
    }

    /// Creates a server for an engine that already accepts requests.
    #[must_use]
    pub fn of(engine: Engine, max_message_bytes: usize) -> Self {
        let server = Self { lifecycle: engine.lifecycle().clone(), ..Self::default() };
        server.install(engine, max_message_bytes);
        server
    }

    /// Returns the state of the server.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// Loads the model, and installs the engine. Blocks until then. Returns the engine and its
    /// thread, which the caller joins after the drain.
    ///
    /// # Errors
    /// The model cannot be loaded as configured; [`LoadError::Cancelled`] if the server drains
    /// during the load.
    pub fn load(
        &self,
        config: Config,
        library: &'static dyn Library,
        max_message_bytes: usize,
    ) -> Result<Started, LoadError> {
        let (engine, thread) = load::start_loading(config, library, self.lifecycle.clone())?;
        self.install(engine.clone(), max_message_bytes);
        Ok((engine, thread))
    }

    /// Calls `load` for the model, and installs an engine with it. Blocks until then.
    ///
    /// # Errors
    /// As [`Engine::start_with`].
    pub fn load_with(
        &self,
        config: Config,
        max_message_bytes: usize,
        load: impl FnOnce(&Config) -> Result<(ServedModel, Box<dyn Model>), LoadError> + Send + 'static,
    ) -> Result<Started, LoadError> {
        let (engine, thread) = Engine::start_loading_with(config, self.lifecycle.clone(), load)?;
        self.install(engine.clone(), max_message_bytes);
        Ok((engine, thread))
    }

    /// Installs the engine, and accepts requests unless the server drains. Later calls have no
    /// effect.
    pub fn install(&self, engine: Engine, max_message_bytes: usize) {
        let routes = Routes::new(grpc::server(engine.clone(), max_message_bytes));
        if self.engine.set(engine).is_ok() {
            // Health reports SERVING once the routes are set, so the state is set first.
            self.lifecycle.serve();
            let _ = self.routes.set(routes);
        }
    }
}

/// An engine, and its thread, which is joined after the drain.
type Started = (Engine, JoinHandle<()>);

/// Starts an engine in a server, for messages of at most this many bytes.
type Start = dyn FnOnce(&Server, usize) -> Result<Started, LoadError> + Send;

/// A program that serves one model.
pub struct Replica {
    name: &'static str,
    start: Box<Start>,
    stall_limits: StallLimits,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Replica {
    /// Creates the replica of a program with this name. `start` blocks until it has installed an engine in the
    /// server, for messages of at most this many bytes.
    #[must_use]
    pub fn new(
        name: &'static str,
        start: impl FnOnce(&Server, usize) -> Result<Started, LoadError> + Send + 'static,
    ) -> Self {
        Self { name, start: Box::new(start), stall_limits: StallLimits::default() }
    }

    /// Sets how long a step may take.
    #[must_use]
    pub fn with_stall_limits(self, stall_limits: StallLimits) -> Self {
        Self { stall_limits, ..self }
    }

    /// Listens, loads the model, prints the addresses, and serves until SIGTERM or a call of Drain.
    /// Each of the two also cancels a load.
    ///
    /// # Errors
    /// An address, the TLS or token files, or the model cannot be used, or the server or the engine
    /// failed.
    pub async fn run(self, args: ReplicaArgs, telemetry: &Telemetry) -> Result<(), CommandError> {
        let shutdown = Shutdown::on_signals()?;
        let (generate, control) = self.listen(&args, telemetry).await?;
        let server = Server::default().with_stall_limits(self.stall_limits);
        let loading = self.load(server.clone(), args.serve.max_message_bytes, generate.listener.local_addr()?);
        let serving = async {
            let ended = serve(server.clone(), generate, control, &args.serve, shutdown).await;
            server.lifecycle.drain();
            Ok(ended)
        };
        let (loaded, ended) = tokio::try_join!(loading, serving)?;
        let stopped = match loaded {
            Some((engine, thread)) => end(engine, thread).await,
            None => Ok(()),
        };
        ended?;
        stopped
    }

    /// Reads the TLS and token files, checks the addresses, and loads the model as [`run`](Self::run) does. Does
    /// not listen. Returns a line that names the model.
    ///
    /// # Errors
    /// An address must not be used, or the TLS or token files or the model cannot be used.
    pub async fn check(self, args: ReplicaArgs) -> Result<String, CommandError> {
        let security = Security::open(&args.serve.security)?;
        for address in args.telemetry.metrics_listen.iter().chain([&args.listen]) {
            security.check(*address)?;
        }
        Control::configured(&args, &security)?;
        let (name, max_message_bytes) = (self.name, args.serve.max_message_bytes);
        let start = move || (self.start)(&Server::default(), max_message_bytes);
        let (engine, thread) = tokio::task::spawn_blocking(start).await??;
        let ServedModel { id, architecture, device, dtype, quantization, context_length, .. } = engine.model();
        let line = format!(
            "{name} would serve {id} ({architecture}, {dtype}, quantization {quantization}) on {}, with device {device} \
             and a context of {context_length} tokens",
            args.listen
        );
        end(engine, thread).await?;
        Ok(line)
    }

    /// Opens the socket for generation and, if they are configured, the metrics endpoint and the socket
    /// for control.
    async fn listen(
        &self,
        args: &ReplicaArgs,
        telemetry: &Telemetry,
    ) -> Result<(SecureListener, Option<Control>), CommandError> {
        let name = self.name;
        let security = Security::open(&args.serve.security)?;
        let listener = serve::listen(args.listen, &security).await?;
        let control = Control::listen(args, &security).await?;
        let mut stdout = std::io::stdout();
        if let Some(metrics) = serve::serve_metrics(telemetry, &security).await? {
            writeln!(stdout, "{name} metrics listening on {metrics}")?;
        }
        if let Some(control) = &control {
            writeln!(stdout, "{name} control listening on {}", control.listener.local_addr()?)?;
        }
        Ok((SecureListener { listener, security }, control))
    }

    /// Loads the model, and prints that the server listens. Returns None if the load was cancelled.
    async fn load(
        self,
        server: Server,
        max_message_bytes: usize,
        address: SocketAddr,
    ) -> Result<Option<Started>, CommandError> {
        let Self { name, start, .. } = self;
        tracing::info!(%address, "loading model; calls are rejected until it is loaded");
        let (lifecycle, ready) = (server.lifecycle.clone(), Arc::clone(&server.ready));
        let loaded = match tokio::task::spawn_blocking(move || start(&server, max_message_bytes)).await? {
            Err(LoadError::Cancelled) => return Ok(None),
            loaded => loaded?,
        };
        tokio::select! {
            _ = ready.wait() => {}
            () = lifecycle.draining() => {}
            () = lifecycle.failed() => {}
        }
        if lifecycle.state() == ServerState::Serving
            && let Err(error) = writeln!(std::io::stdout(), "{name} listening on {address}")
        {
            tracing::warn!(%address, %error, "cannot print the address");
        }
        Ok(Some(loaded))
    }
}

/// Stops the engine and waits for its thread, because a library must not compute while the process
/// exits.
///
/// # Errors
/// The engine has failed, so that the process must exit with an error.
pub async fn end(engine: Engine, thread: JoinHandle<()>) -> Result<(), CommandError> {
    engine.lifecycle().stop();
    let joined = tokio::task::spawn_blocking(|| thread.join()).await?;
    match (joined, engine.lifecycle().state()) {
        (Err(_), _) => Err(CommandError::EnginePanicked),
        (Ok(()), ServerState::Failed) => Err(CommandError::EngineFailed),
        (Ok(()), _) => Ok(()),
    }
}

/// The control service's socket and its security settings.
#[derive(Debug)]
pub struct Control {
    /// The socket.
    pub listener: TcpListener,
    /// TLS and the tokens of the socket.
    pub security: Security,
}

impl Control {
    /// Opens the socket, if it is configured.
    async fn listen(args: &ReplicaArgs, security: &Security) -> Result<Option<Self>, ServeError> {
        let Some((address, security)) = Self::configured(args, security)? else { return Ok(None) };
        Ok(Some(Self { listener: serve::listen(address, &security).await?, security }))
    }

    /// Returns the socket's address and security settings, if it is configured.
    fn configured(args: &ReplicaArgs, security: &Security) -> Result<Option<(SocketAddr, Security)>, ServeError> {
        let Some(address) = args.control_listen else { return Ok(None) };
        let security = match &args.control_token_file {
            Some(file) => security.with_tokens(file.clone())?,
            None => security.clone(),
        };
        security.check_operators(address)?;
        Ok(Some((address, security)))
    }
}

/// Serves the engine once it is loaded, and the control service on a separate socket. Ends at
/// `shutdown` or a failure of the engine, after the drain delay, or a call of Drain. Then the server drains, and the control
/// service shows its state until the end: new requests are
/// rejected, and running ones may finish. Shortly before the drain time is over, the remaining
/// requests are cancelled, so that callers receive a finish reason.
///
/// # Errors
/// The server could not be built, or failed.
pub async fn serve(
    server: Server,
    SecureListener { listener, security }: SecureListener,
    control: Option<Control>,
    args: &ServeArgs,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let Server { lifecycle, engine, routes, ready, stall_limits } = server;
    let watched_engine = Arc::clone(&engine);
    let mut endpoints =
        vec![Endpoint { listener, security, names: vec![grpc::SERVICE_NAME], routes, outlasts_drain: false }];
    if let Some(Control { listener, security }) = control {
        let control = grpc::control::server(lifecycle.clone(), engine, args.max_message_bytes);
        let routes = DeferredRoutes::new(SetOnce::from(Routes::new(control)));
        endpoints.push(Endpoint {
            listener,
            security,
            names: vec![grpc::control::SERVICE_NAME],
            routes,
            outlasts_drain: true,
        });
    }
    let health = Health::new(endpoints.iter().flat_map(|endpoint| endpoint.names.clone()));
    let drained = async {
        tokio::select! {
            () = shutdown.announced(&health, args.drain_delay()) => {}
            () = lifecycle.shutdown_requested() => {}
            () = after_failure(&lifecycle, &health, args.drain_delay()) => {}
        }
        lifecycle.drain();
    };
    let serving = serve::serve(endpoints, args, health.clone(), drained);
    let grace = Duration::from_secs(args.drain_seconds).mul_f64(DRAIN_GRACE_SHARE);
    let watched = async {
        tokio::join!(
            report_failure(&lifecycle, &health),
            report_stalls(&watched_engine, &lifecycle, &health, stall_limits),
            stop_in_time(&lifecycle, grace),
            async {
                health.ready().await;
                let _ = ready.set(()); // fails for a second server with the same engine
            }
        )
    };
    tokio::select! {
        ended = serving => ended,
        ((), never, (), ()) = watched => match never {},
    }
}

/// Reports NOT_SERVING, and that only a restart helps, once the engine has failed.
async fn report_failure(lifecycle: &Lifecycle, health: &Health) {
    lifecycle.failed().await;
    health.set_live(false);
    health.set(false).await;
}

/// Reports the failure of the engine, then waits for `delay`, in which clients notice NOT_SERVING.
async fn after_failure(lifecycle: &Lifecycle, health: &Health, delay: Duration) {
    report_failure(lifecycle, health).await;
    tracing::error!(seconds = delay.as_secs(), "engine failed, shutting down");
    tokio::time::sleep(delay).await;
}

/// Reports NOT_SERVING while the engine's step is slow, and that only a restart helps once it has taken the
/// most time.
async fn report_stalls(
    engine: &OnceLock<Engine>,
    lifecycle: &Lifecycle,
    health: &Health,
    limits: StallLimits,
) -> Infallible {
    let (mut was_slow, mut was_live) = (false, true);
    loop {
        tokio::time::sleep(limits.check_interval).await;
        let age = engine.get().and_then(Engine::step_age).unwrap_or_default();
        let (is_slow, is_live) = (age > limits.slow, age <= limits.most);
        if (is_slow, is_live) != (was_slow, was_live) && lifecycle.state() != ServerState::Failed {
            tracing::error!(is_slow, is_live, step_seconds = age.as_secs(), "engine stalled or recovered");
            health.set_live(is_live);
            health.set(!is_slow && lifecycle.state() == ServerState::Serving).await;
            (was_slow, was_live) = (is_slow, is_live);
        }
    }
}

/// Cancels running requests `grace` after the drain has begun.
async fn stop_in_time(lifecycle: &Lifecycle, grace: Duration) {
    lifecycle.draining().await;
    tokio::time::sleep(grace).await;
    lifecycle.stop();
}
