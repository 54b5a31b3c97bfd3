//! `gen-svc serve`: the engine behind a server, from start to drain.

use std::future::Future;
use std::io::Write as _;
use std::time::Duration;

use tandem_common::serve::{self, Endpoint, Health, Security, ServeArgs, ServeError};
use tokio::net::TcpListener;
use tonic::service::Routes;

use crate::args::Serve;
use crate::engine::{Engine, Stage};
use crate::grpc;

/// Listens, loads the model, says so, and serves until SIGTERM.
///
/// # Errors
/// The address, what protects it or the model cannot be had, or the server or the engine failed.
pub async fn run(args: Serve) -> anyhow::Result<()> {
    let security = Security::open(&args.serve.security)?;
    let listener = serve::listen(args.listen, &security).await?;
    let control = Control::listen(&args, &security).await?;
    let config = args.engine.into();
    let (engine, thread) = tokio::task::spawn_blocking(|| Engine::start(config)).await??;
    let shutdown = serve::shutdown_signal()?;
    let mut stdout = std::io::stdout();
    if let Some(control) = &control {
        writeln!(stdout, "gen-svc control listening on {}", control.listener.local_addr()?)?;
    }
    writeln!(stdout, "gen-svc listening on {}", listener.local_addr()?)?;
    serve(engine.clone(), (listener, security), control, &args.serve, shutdown).await?;
    if engine.stage() == Stage::Failed {
        // Its thread waits for requests, to refuse them.
        anyhow::bail!("the engine had broken down");
    }
    engine.stop();
    // libtorch must not compute while the process is taken down.
    match tokio::task::spawn_blocking(|| thread.join()).await? {
        Ok(()) => Ok(()),
        Err(_) => anyhow::bail!("the engine's thread panicked"),
    }
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

/// Serves the engine until `shutdown`, or until it is told to drain, and its control on a socket of its own. Then it drains: nothing new
/// is taken on, and what runs may finish, until shortly before the drain time is over; what is left then is told that it was cancelled.
///
/// # Errors
/// The server could not be built, or failed.
pub async fn serve(
    engine: Engine,
    (listener, security): (TcpListener, Security),
    control: Option<Control>,
    args: &ServeArgs,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let routes = Routes::new(grpc::server(engine.clone(), args.max_message_bytes));
    let mut endpoints = vec![Endpoint { listener, security, names: vec![grpc::SERVICE_NAME], routes }];
    if let Some(Control { listener, security }) = control {
        let routes = Routes::new(grpc::control::server(engine.clone(), args.max_message_bytes));
        endpoints.push(Endpoint { listener, security, names: vec![grpc::control::SERVICE_NAME], routes });
    }
    let health = Health::new(endpoints.iter().flat_map(|endpoint| endpoint.names.clone()));
    let drained = async {
        tokio::select! {
            () = shutdown => engine.drain(),
            () = engine.draining() => {}
        }
    };
    let server = serve::serve(endpoints, args, health.clone(), drained);
    tokio::pin!(server);
    let grace = Duration::from_secs(args.drain_seconds).mul_f64(0.9);
    tokio::select! {
        ended = &mut server => return ended,
        _ = async { tokio::join!(report_failure(&engine, &health), stop_in_time(&engine, grace)) } => {}
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
