//! A generation service in the test's process, on the CPU's kernels.

use std::net::SocketAddr;

use crate::files::default_model;
use crate::services::Running;
use gen_svc::load::{self, WithoutLibrary};
use gen_svc::serve::{Control, Server};
use tandem_common::serve::{SecureListener, Security, ServeArgs};
use tandem_core::engine::{Config, DtypeChoice, Engine};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tokio::net::TcpListener;

/// A generation service with the default model.
#[derive(Debug)]
pub struct Generation {
    /// The service.
    pub running: Running,
    /// The address of its control service.
    pub control: SocketAddr,
    /// The service's engine, from which tests read gauges.
    pub engine: Engine,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
}

impl Generation {
    /// Loads the model and serves it.
    ///
    /// # Panics
    /// If the model does not load.
    pub async fn start() -> Self {
        // Tests run in parallel. One thread per engine keeps them from competing for cores.
        Self::start_with(Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(default_model()) }).await
    }

    /// Loads the model with a configuration and serves it.
    ///
    /// # Panics
    /// If the model does not load.
    pub async fn start_with(config: Config) -> Self {
        Self::start_with_args(config, ServeArgs::default()).await
    }

    /// Loads the model and serves it with these arguments.
    ///
    /// # Panics
    /// If the model does not load.
    pub async fn start_with_args(config: Config, args: ServeArgs) -> Self {
        let load = || load::start(config, &WithoutLibrary).expect("the model loads");
        let (engine, _thread) = tokio::task::spawn_blocking(load).await.expect("the load does not panic");
        Self::serving(engine, args).await
    }

    /// Serves an engine with the default model's tokenizer.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn serving(engine: Engine, args: ServeArgs) -> Self {
        let tokenizer = Artifacts::load(&default_model())
            .expect("the default model is readable")
            .tokenizer()
            .expect("the default model has a tokenizer");
        let served = engine.clone();
        let control_listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let control = control_listener.local_addr().expect("an address");
        let running = Running::start(move |listener, shutdown| async move {
            let security = Security::open(&args.security)?;
            let control = Control { listener: control_listener, security: security.clone() };
            let server = Server::of(served, args.max_message_bytes);
            gen_svc::serve::serve(server, SecureListener { listener, security }, Some(control), &args, shutdown).await
        })
        .await;
        Self { running, control, engine, tokenizer }
    }
}
