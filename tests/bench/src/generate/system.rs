//! The measured systems: all are loaded, each as a child process, and one works at a time.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::args::{Family, Generate, Mode};
use super::peer::Peer;
use super::run::{Trial, Workload};
use super::score::Score;
use super::tandem::Tandem;
use super::variant::{PEERS, TRANSFORMERS_F32, Type, Variant};
use super::weights::{Storage, read_per_token};
use crate::machine::resident;
use crate::progress::progress;

/// One system in one mode.
#[derive(Debug)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) family: Family,
    /// The type of the weights.
    pub(super) kind: Type,
    /// Bytes of matrices that are read per token.
    pub(super) weights: u64,
    /// Resident bytes after the first few tokens.
    pub(super) loaded: Option<u64>,
    patience: Duration,
    /// None after a failure.
    engine: Option<Engine>,
    failure: Option<String>,
}

#[derive(Debug)]
enum Engine {
    Tandem(Tandem),
    Peer(Box<Peer>),
}

/// Starts the selected systems, one after the other.
pub(super) async fn start(args: &Generate) -> Result<Vec<System>> {
    let mut systems = Vec::new();
    if args.systems.contains(&Family::Tandem) {
        for &mode in &args.modes {
            systems.push(tandem(args, mode).await?);
        }
    }
    for variant in PEERS.iter().filter(|variant| args.systems.contains(&variant.family)) {
        systems.push(peer(args, variant).await?);
    }
    Ok(systems)
}

/// Starts gen-svc with libtorch in f32, and transformers in f32.
pub(super) async fn start_torch(args: &Generate) -> Result<Vec<System>> {
    Ok(vec![tandem(args, Mode::Torch).await?, peer(args, &TRANSFORMERS_F32).await?])
}

async fn tandem(args: &Generate, mode: Mode) -> Result<System> {
    let name = format!("tandem {}", name(&mode));
    let engine = async { Ok(Engine::Tandem(Tandem::start(args, mode).await?)) };
    System::start(args, (name, Family::Tandem), weights(mode), engine).await
}

async fn peer(args: &Generate, variant: &Variant) -> Result<System> {
    let engine = async { Ok(Engine::Peer(Box::new(Peer::start(args, variant).await?))) };
    let name = format!("{}{}", name(&variant.family), variant.suffix);
    System::start(args, (name, variant.family), (variant.weights, variant.storage), engine).await
}

/// Returns the type of weights, and the bits per weight. 8-bit blocks of 32 have a scale of 16 bits,
/// 4-bit blocks also a minimum.
fn weights(mode: Mode) -> (Type, Storage) {
    match mode {
        Mode::Keep => (Type::File, Storage::File),
        Mode::F32 | Mode::Torch => (Type::F32, Storage::Bits(32.0)),
        Mode::Bf16 => (Type::Bf16, Storage::Bits(16.0)),
        Mode::Int8 => (Type::Int8, Storage::Bits(8.5)),
        Mode::Int4 => (Type::File, Storage::BitsAndHead(5.0, 8.5)),
    }
}

/// Returns the name on the command line.
pub(super) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Prints the systems that failed, and the reasons.
pub(super) fn report_failures(systems: &[System]) {
    for system in systems {
        if let Some(failure) = &system.failure {
            println!("\nnot measured: {}: {failure}", system.name);
        }
    }
}

impl System {
    async fn start(
        args: &Generate,
        (name, family): (String, Family),
        (kind, storage): (Type, Storage),
        engine: impl Future<Output = Result<Engine>>,
    ) -> Result<Self> {
        progress(&format!("{name}: loads"));
        let weights = read_per_token(&args.model, storage)?;
        let patience = Duration::from_secs(args.patience);
        let mut system = Self { name, family, kind, weights, loaded: None, patience, engine: None, failure: None };
        let engine = patient(patience, engine).await;
        system.engine = system.settle(engine);
        if system.run(&Workload { prompts: vec![(0..32).collect()], tokens: 8 }).await.is_some() {
            system.loaded = system.memory();
        }
        Ok(system)
    }

    pub(super) fn is_running(&self) -> bool {
        self.engine.is_some()
    }

    /// Returns true if the system returns the probabilities of prompts.
    pub(super) fn can_score(&self) -> bool {
        self.family != Family::OpenVino
    }

    /// Runs prompts. Returns none after a failure.
    pub(super) async fn run(&mut self, work: &Workload) -> Option<Trial> {
        let answer = match self.engine.as_mut()? {
            Engine::Tandem(tandem) => patient(self.patience, tandem.run(work)).await,
            Engine::Peer(peer) => patient(self.patience, peer.run(work)).await,
        };
        self.settle(answer)
    }

    /// Scores a text. Returns none after a failure.
    pub(super) async fn score(&mut self, ids: &[u32]) -> Option<Score> {
        let answer = match self.engine.as_mut()? {
            Engine::Tandem(tandem) => patient(self.patience, tandem.score(ids)).await,
            Engine::Peer(peer) => patient(self.patience, peer.score(ids)).await,
        };
        self.settle(answer)
    }

    /// Runs two requests. The second finds the prefix of the first in the cache.
    pub(super) async fn run_twice(&mut self, first: &Workload, second: &Workload) -> Option<[Trial; 2]> {
        let Engine::Tandem(tandem) = self.engine.as_mut()? else { return None };
        let answer = patient(self.patience, async {
            let first = tandem.run(first).await?;
            Ok([first, tandem.run_again(second).await?])
        });
        let answer = answer.await;
        self.settle(answer)
    }

    /// Returns the current resident bytes.
    pub(super) fn memory(&self) -> Option<u64> {
        let process = match self.engine.as_ref()? {
            Engine::Tandem(tandem) => Some(tandem.process()),
            Engine::Peer(peer) => peer.process(),
        };
        resident(process?)
    }

    /// Returns an answer. After a failure the system is stopped and no longer measured.
    fn settle<T>(&mut self, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.failure = Some(format!("{error:#}"));
                progress(&format!("{}: {error:#}", self.name));
                self.engine = None;
                None
            }
        }
    }
}

async fn patient<T>(patience: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(patience, work).await {
        Ok(answer) => answer,
        Err(_) => bail!("no answer within {} s, stopped", patience.as_secs()),
    }
}
