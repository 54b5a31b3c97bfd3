//! Tries costly grammars in another process.
//!
//! The library cannot be interrupted, and needs hours for some grammars of a few kilobytes. A grammar
//! that may be so costly is first compiled in another process, which ends at its limits of processor
//! time and memory, and when the caller has gone. The service then compiles it within the same time.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};
use tandem_common::thread_priority;
use tandem_model_files::tokenizer::{CancelScope, Tokenizer};

use super::source::Grammar;
use super::{library, vocabulary};
use crate::error::RequestError;

/// The command of the program that runs a trial. Its input is on standard input.
const COMMAND: &str = "try-grammar";
/// The most processor time of a trial.
const CPU_SECONDS: u64 = 4;
/// The most time of a trial, on a machine without enough processor time.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The most memory of a trial, besides that of the program itself. The largest JSON schemas need a third of it.
const MEMORY_BYTES: u64 = 128 << 20;
/// The interval at which the trial and the caller are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The input of a trial: all that the time to compile a grammar depends on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    grammar: Grammar,
    vocabulary: usize,
    eos: Vec<u32>,
    special: HashMap<u32, Vec<u8>>,
}

impl Trial {
    pub(super) fn new(grammar: &Grammar, tokenizer: &Tokenizer, vocabulary: usize, eos: &[u32]) -> Self {
        let special = vocabulary::special_words(tokenizer, vocabulary);
        Self { grammar: grammar.clone(), vocabulary, eos: eos.to_vec(), special }
    }

    /// Compiles the grammar with `program` in another process. Blocks.
    ///
    /// # Errors
    /// The process exceeds its limits, or cannot be started; or the caller has gone.
    pub(super) fn run(&self, program: &Path) -> Result<(), RequestError> {
        let refused = |problem: String| RequestError::invalid(self.grammar.kind.field(), problem);
        match self.status(program)? {
            Some(status) if status.success() => Ok(()),
            Some(status) if status.signal() != Some(Signal::XCPU.as_raw()) => {
                tracing::info!(%status, "trial of a grammar failed");
                Err(refused("cannot be compiled".to_owned()))
            }
            _ => Err(refused(format!("takes more than {CPU_SECONDS} s of processor time to compile"))),
        }
    }

    /// Returns the status of the process at its end. None if it takes too long.
    fn status(&self, program: &Path) -> Result<Option<ExitStatus>, RequestError> {
        let start = Instant::now();
        let mut process = Process::start(program).map_err(RequestError::Thread)?;
        process.write(&serde_json::to_vec(self).map_err(|error| RequestError::Thread(error.into()))?);
        while start.elapsed() < MAX_TIME {
            if let Some(status) = process.0.try_wait().map_err(RequestError::Thread)? {
                return Ok(Some(status));
            }
            CancelScope::check().map_err(RequestError::Tokenize)?;
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(None)
    }
}

/// The process of a trial. Dropping it ends it.
struct Process(Child);

impl Process {
    fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }

    /// Writes the whole input. A process that ends early reads only a part.
    fn write(&mut self, input: &[u8]) {
        if let Some(mut stdin) = self.0.stdin.take() {
            let _ = stdin.write_all(input);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the trial of this input, within its limits. Whether the grammar is valid is no matter: the
/// service compiles it again.
///
/// # Errors
/// The input is not that of a trial, or the limits cannot be set.
pub fn run(mut input: impl Read) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let memory = program_bytes()? + MEMORY_BYTES;
    for (resource, most) in [(Resource::Core, 0), (Resource::Cpu, CPU_SECONDS), (Resource::Data, memory)] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most + 1) })?;
    }
    thread_priority::lower();
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let trial: Trial = serde_json::from_slice(&text)?;
    let main = move || trial.compile();
    let thread = thread::Builder::new().stack_size(library::STACK_BYTES).spawn(main)?;
    thread.join().map_err(|_| io::Error::other("the grammar library panicked"))
}

/// Returns the memory that counts towards the limit before the trial, with the stack that it gets. That of
/// libtorch's libraries depends on the machine.
fn program_bytes() -> io::Result<u64> {
    let status = if cfg!(target_os = "linux") { fs::read_to_string("/proc/self/status")? } else { String::new() };
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmData:")?.split_whitespace().next()?.parse().ok());
    Ok(kilobytes.unwrap_or(0) * 1024 + library::STACK_BYTES as u64)
}

impl Trial {
    fn compile(self) {
        let Self { grammar, vocabulary, eos, mut special } = self;
        let words: Vec<_> = (0..vocabulary as u32).map(|id| special.remove(&id).unwrap_or_default()).collect();
        let factory = vocabulary::environment(&words, &eos).and_then(|tokens| library::factory(&tokens));
        if let (Some(factory), Ok(text)) = (factory, library::read(&grammar)) {
            let _ = library::parser(&factory, &grammar, text);
        }
    }
}
