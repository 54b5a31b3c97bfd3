//! `gen-svc serve`: the engine behind a server, from start to drain.

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_common::serve::{self, DeferredRoutes, Endpoint, Health, SecureListener, Security, ServeArgs, ServeError};
use tandem_common::telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::sync::SetOnce;
use tonic::service::Routes;

use crate::args::Serve;
use crate::engine::{Config, Engine, Stage};
use crate::error::Error;
use crate::grpc;

/// What is served once the model is loaded, unless the server is to end by then.
#[derive(Debug, Clone, Default)]
pub struct Served {
    engine: Arc<SetOnce<Engine>>,
    routes: DeferredRoutes,
    ending: Arc<SetOnce<()>>,
    cancel_load: Arc<AtomicBool>,
}

impl Served {
    /// Lets the engine be used from now on; the first counts. Whether it is: a server that is to end only tells that it is.
    pub fn set(&self, engine: Engine, max_message_bytes: usize) -> bool {
        let routes = Routes::new(grpc::server(engine.clone(), max_message_bytes));
        if self.engine.set(engine).is_ok() {
            let _ = self.routes.set(routes);
        }
        if self.is_ending() {
            self.end();
        }
        !self.is_ending()
    }

    /// As configured, with a load that is given up when the server is to end.
    #[must_use]
    pub fn loading(&self, config: Config) -> Config {
        Config { cancel_load: Arc::clone(&self.cancel_load), ..config }
    }

    /// The engine, if its model is loaded.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// Ends the server: nothing is taken on any more, and what runs may finish.
    pub(crate) fn end(&self) {
        self.cancel_load.store(true, Ordering::Relaxed);
        let _ = self.ending.set(());
        self.engine().into_iter().for_each(Engine::drain);
    }

    /// Whether the server is to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.initialized()
    }
}

/// Listens, loads the model, says so, and serves until SIGTERM, or until it is told to drain; both also give up a load.
///
/// # Errors
/// The address, what protects it or the model cannot be had, or the server or the engine failed.
pub async fn run(args: Serve, telemetry: &Telemetry) -> anyhow::Result<()> {
    let shutdown = serve::shutdown_signal()?;
    let (generate, control) = listen(&args, telemetry).await?;
    let (address, served) = (generate.listener.local_addr()?, Served::default());
    let config = served.loading(args.engine.into());

    let loading = async {
        tracing::info!(%address, "loading the model; until it is there, calls are refused");
        let loaded = tokio::task::spawn_blocking(|| Engine::start(config)).await?;
        if let Ok((engine, _)) = &loaded
            && served.set(engine.clone(), args.serve.max_message_bytes)
            && let Err(error) = writeln!(std::io::stdout(), "gen-svc listening on {address}")
        {
            tracing::warn!(%address, %error, "listening, which cannot be printed");
        }
        match loaded {
            Err(Error::Draining) => Ok(None),
            loaded => anyhow::Ok(Some(loaded?)),
        }
    };
    let serving = async {
        let ended = serve(served.clone(), generate, control, &args.serve, shutdown).await;
        served.end();
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

/// A socket for those who generate, and one for those who run the server, if they are to have one.
async fn listen(args: &Serve, telemetry: &Telemetry) -> anyhow::Result<(SecureListener, Option<Control>)> {
    let security = Security::open(&args.serve.security)?;
    let listener = serve::listen(args.listen, &security).await?;
    let control = Control::listen(args, &security).await?;
    let mut stdout = std::io::stdout();
    if let Some(metrics) = serve::serve_metrics(telemetry, &security).await? {
        writeln!(stdout, "gen-svc metrics listening on {metrics}")?;
    }
    if let Some(control) = &control {
        writeln!(stdout, "gen-svc control listening on {}", control.listener.local_addr()?)?;
    }
    Ok((SecureListener { listener, security }, control))
}

/// Ends the engine after the server: libtorch must not compute while the process is taken down.
async fn end(engine: Engine, thread: JoinHandle<()>) -> anyhow::Result<()> {
    engine.stop();
    let joined = tokio::task::spawn_blocking(|| thread.join()).await?;
    anyhow::ensure!(joined.is_ok(), "the engine's thread panicked");
    anyhow::ensure!(engine.stage() != Stage::Failed, "the engine had broken down");
    Ok(())
}

/// Where the server is run from.
#[derive(Debug)]
pub struct Control {
    /// Where callers connect.
    pub listener: TcpListener,
    /// Who may.
    pub security: Security,
}

impl Control {
    /// As configured.
    async fn listen(args: &Serve, security: &Security) -> Result<Option<Self>, ServeError> {
        let Some(address) = args.control_listen else { return Ok(None) };
        let security = match &args.control_token_file {
            Some(file) => security.with_tokens(file.clone())?,
            None => security.clone(),
        };
        security.check_operators(address)?;
        Ok(Some(Self { listener: serve::listen(address, &security).await?, security }))
    }
}

/// Serves the engine, once it is there, until `shutdown`, or until it is told to drain, and its control on a socket of its own. Then it
/// drains: nothing new is taken on, and what runs may finish, until shortly before the drain time is over; what is left then is told
/// that it was cancelled.
///
/// # Errors
/// The server could not be built, or failed.
pub async fn serve(
    served: Served,
    SecureListener { listener, security }: SecureListener,
    control: Option<Control>,
    args: &ServeArgs,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let routes = Arc::clone(&served.routes);
    let mut endpoints = vec![Endpoint { listener, security, names: vec![grpc::SERVICE_NAME], routes }];
    if let Some(Control { listener, security }) = control {
        let control = Routes::new(grpc::control::server(served.clone(), args.max_message_bytes));
        let routes = DeferredRoutes::new(SetOnce::from(control));
        endpoints.push(Endpoint { listener, security, names: vec![grpc::control::SERVICE_NAME], routes });
    }
    let health = Health::new(endpoints.iter().flat_map(|endpoint| endpoint.names.clone()));
    let drained = async {
        tokio::select! {
            () = shutdown => {}
            _ = served.ending.wait() => {}
        }
        served.end();
    };
    let server = serve::serve(endpoints, args, health.clone(), drained);
    tokio::pin!(server);
    let grace = Duration::from_secs(args.drain_seconds).mul_f64(0.9);
    let watched = async {
        let engine = served.engine.wait().await;
        tokio::join!(report_failure(engine, &health), stop_in_time(engine, grace))
    };
    tokio::select! {
        ended = &mut server => return ended,
        _ = watched => {}
    }
    server.await
}

/// A broken engine makes the service NOT_SERVING.
async fn report_failure(engine: &Engine, health: &Health) {
    engine.failed().await;
    health.set(false).await;
}

async fn stop_in_time(engine: &Engine, grace: Duration) {
    engine.draining().await;
    tokio::time::sleep(grace).await;
    engine.stop();
}
