//! Waits for the engine, proves that it has the model of the bridge's files, and watches it.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gen_svc::serve::Server;
use tandem_common::timing::READER_PATIENCE;
use tandem_core::engine::{Engine, EngineLimits};
use tandem_core::error::LoadError;
use tandem_core::grammar::Grammars;
use tandem_core::lifecycle::Lifecycle;
use tandem_core::request::{SamplingOptions, ServedModel};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::call::CallError;
use crate::engine::RemoteEngine;
use crate::identity::{self, Skew};
use crate::kind::EngineKind;
use crate::protocol::{EngineState, Facts, Protocol};
use crate::shared::{Parts, Shared};
use crate::target::Target;

/// How often the engine is asked for its health and load.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks in a row without an answer after which the engine counts as gone. A busy machine may miss one.
const MAX_MISSES: u32 = 2;
/// How long an engine that was proven before may take to generate the tokens that show its settings.
const DETAILS_LIMIT: Duration = Duration::from_secs(5);
/// How often a wait for the engine is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Events that a request's channel has room for.
const EVENT_CAPACITY: usize = 64;
/// Outputs at once, if the engine does not report how many it generates.
const DEFAULT_RUNNING: usize = 64;

/// The engine, and the files of its model.
#[derive(Debug)]
pub struct Config {
    /// The kind of engine.
    pub kind: &'static EngineKind,
    /// Its address, and the credentials for it.
    pub target: Target,
    /// The files of the model's tokenizer.
    pub model: PathBuf,
    /// The model's id in requests.
    pub model_id: Option<String>,
    /// Requests that may wait.
    pub max_queue: usize,
    /// Outputs at once. None: as many as the engine reports.
    pub max_running: Option<usize>,
    /// Tokens that a prompt may have.
    pub max_prompt_tokens: Option<usize>,
    /// Tokens that an output may have.
    pub max_output_tokens: Option<usize>,
    /// The program that tries costly grammars.
    pub grammar_trials: Option<PathBuf>,
}

/// Connects to the engine, and installs it in the server. Blocks until the engine has loaded its model.
///
/// # Errors
/// The files cannot be read; the engine serves another model; or the server drains meanwhile.
pub fn start(config: Config, server: &Server, max_message_bytes: usize) -> Result<(Engine, JoinHandle<()>), LoadError> {
    let artifacts = Artifacts::load(&config.model)?;
    let tokenizer = artifacts.tokenizer()?;
    let protocol = (config.kind.connect)(&config.target, tokenizer.clone())?;
    let runtime = Handle::current();
    let lifecycle = server.lifecycle().clone();
    let facts = runtime.block_on(async {
        tokio::select! {
            facts = first_facts(protocol.as_ref(), &tokenizer, &config.target.url) => facts,
            () = lifecycle.draining() => Err(LoadError::Cancelled),
        }
    })?;
    log_engine(&config, &facts);
    let limits = EngineLimits {
        max_queue: config.max_queue.max(1),
        max_running: config.max_running.or(facts.slots).unwrap_or(DEFAULT_RUNNING).max(1),
        ..EngineLimits::default()
    };
    let model = served_model(&artifacts, tokenizer, &config, &facts)?;
    let parts = Parts { kind: config.kind, protocol, model, facts, limits, patience: READER_PATIENCE };
    let _entered = runtime.enter();
    let (remote, thread) = RemoteEngine::start(parts, lifecycle.clone())?;
    runtime.spawn(watch(Arc::clone(remote.shared()), lifecycle.clone()));
    let engine = Engine::new(remote, lifecycle, EVENT_CAPACITY);
    server.install(engine.clone(), max_message_bytes);
    Ok((engine, thread))
}

fn served_model(
    artifacts: &Artifacts,
    tokenizer: Tokenizer,
    config: &Config,
    facts: &Facts,
) -> Result<ServedModel, LoadError> {
    let eos_token_ids = artifacts.eos_token_ids()?;
    let vocabulary = facts.vocabulary.unwrap_or_else(|| tokenizer.vocab_size());
    Ok(ServedModel {
        id: config.model_id.clone().unwrap_or_else(|| artifacts.name.clone()),
        architecture: artifacts.architecture.clone().unwrap_or_default(),
        context_length: facts.context,
        max_prompt_tokens: config.max_prompt_tokens.unwrap_or(usize::MAX),
        max_output_tokens: config.max_output_tokens.unwrap_or(usize::MAX),
        vocabulary_size: vocabulary,
        dtype: facts.dtype.clone(),
        quantization: facts.quantization.clone(),
        device: config.kind.name.to_owned(),
        vision: None,
        grammars: Grammars::new(tokenizer.clone(), vocabulary, eos_token_ids.clone(), config.grammar_trials.clone()),
        tokenizer,
        eos_token_ids,
        defaults: SamplingOptions::recommended(&artifacts.sampling_defaults()?)?,
    })
}

fn log_engine(config: &Config, facts: &Facts) {
    tracing::info!(
        engine = config.kind.name,
        version = facts.version,
        url = config.target.url,
        model = facts.model,
        context = facts.context,
        slots = facts.slots,
        "engine is ready, and has the tokenizer of the model's files"
    );
    facts.advice.iter().for_each(|advice| tracing::warn!(engine = config.kind.name, "{advice}"));
}

/// Waits until the engine is ready, and returns its facts after the proof.
async fn first_facts(protocol: &dyn Protocol, tokenizer: &Tokenizer, url: &str) -> Result<Facts, LoadError> {
    let mut log = Instant::now();
    loop {
        match protocol.state().await {
            EngineState::Ready => match prove(protocol, tokenizer).await {
                Ok(facts) => return Ok(facts),
                // It may end just now; its state says so next.
                Err(Skew::Engine(CallError::Lost(problem))) => log_wait(&mut log, url, &lost(&problem)),
                Err(Skew::Engine(CallError::Busy)) => log_wait(&mut log, url, "it is busy"),
                Err(skew) => return Err(LoadError::Engine { url: url.to_owned(), problem: skew.to_string() }),
            },
            EngineState::Loading => log_wait(&mut log, url, "it loads its model"),
            EngineState::Lost(problem) => log_wait(&mut log, url, &lost(&problem)),
        }
        sleep(LOOK_INTERVAL).await;
    }
}

fn lost(problem: &str) -> String {
    format!("{problem}; if the engine runs, check --engine and --engine-url")
}

fn log_wait(log: &mut Instant, url: &str, problem: &str) {
    if *log <= Instant::now() {
        tracing::info!(url, problem, "waiting for the engine");
        *log = Instant::now() + LOG_INTERVAL;
    }
}

async fn prove(protocol: &dyn Protocol, tokenizer: &Tokenizer) -> Result<Facts, Skew> {
    let facts = protocol.facts().await?;
    let facts = protocol.details(facts).await?;
    identity::prove(protocol, &facts, tokenizer).await?;
    Ok(facts)
}

/// As [`prove`], for an engine that was proven before. The same engine keeps its details if all its places are taken, so
/// that the requests which ask for them would wait.
async fn prove_within(shared: &Shared) -> Result<Facts, Skew> {
    let (protocol, before) = (shared.protocol.as_ref(), shared.facts());
    let facts = protocol.facts().await?;
    // Details of a stalled engine show that it generates.
    let is_same = facts.is_of(&before) && !shared.is_stalled();
    let facts = match timeout(DETAILS_LIMIT, protocol.details(facts)).await {
        Ok(Ok(facts)) => facts,
        Ok(Err(CallError::Busy)) | Err(_) if is_same => before,
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(CallError::Lost("it generates nothing".to_owned()).into()),
    };
    identity::prove(protocol, &facts, &shared.model.tokenizer).await?;
    Ok(facts)
}

/// Watches the engine's health and load. After a look without an answer, or with other facts, it is proven again: it
/// may serve another model.
async fn watch(shared: Arc<Shared>, lifecycle: Lifecycle) {
    let (mut log, mut misses) = (Instant::now(), 0);
    while !lifecycle.is_stopped() {
        sleep(LOOK_INTERVAL).await;
        let problem = match shared.protocol.state().await {
            EngineState::Ready if misses == 0 && !shared.is_stalled() && has_same_facts(&shared).await => {
                // A busy engine may report its load late.
                if let Ok(Ok(load)) = timeout(LOOK_INTERVAL, shared.protocol.load()).await {
                    shared.set_load(load);
                }
                if shared.turns.lock().running() == 0 {
                    shared.record_work();
                }
                continue;
            }
            EngineState::Ready => match prove_again(&shared).await {
                Ok(()) => {
                    tracing::info!(engine = shared.kind.name, "engine is back, with the same model");
                    misses = 0;
                    shared.set_gone(false);
                    continue;
                }
                Err(problem) => {
                    misses = MAX_MISSES;
                    problem
                }
            },
            EngineState::Loading => "it loads its model".to_owned(),
            EngineState::Lost(problem) => problem,
        };
        misses += 1;
        if misses < MAX_MISSES {
            continue;
        }
        shared.set_gone(true);
        if log <= Instant::now() {
            tracing::error!(engine = shared.kind.name, problem, "engine cannot be used; health is NOT_SERVING");
            log = Instant::now() + LOG_INTERVAL;
        }
    }
}

/// Returns true if the engine, which is ready, reports the facts of its last proof. A late answer is no other fact.
async fn has_same_facts(shared: &Shared) -> bool {
    shared.beat();
    let facts = timeout(LOOK_INTERVAL, shared.protocol.facts()).await;
    facts.ok().and_then(Result::ok).is_none_or(|facts| facts.is_of(&shared.facts()))
}

/// Proves that an engine which was gone still serves the same model, as large as before.
async fn prove_again(shared: &Shared) -> Result<(), String> {
    let facts = prove_within(shared).await.map_err(|skew| skew.to_string())?;
    let before = shared.facts();
    if facts.context < before.context {
        return Err(format!(
            "its context is {} tokens now, {} before: restart the bridge",
            facts.context, before.context
        ));
    }
    shared.set_facts(facts);
    Ok(())
}
