//! The operations that a decode step asks of libtorch, counted in a process of gen-svc. The benchmarks
//! include this file, too: their workspace has no other crate of the tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

const COUNTER: &str = include_str!("operations/counter.cpp");

/// The least tokens that each sequence generates, of many sequences as many as there are. Most steps then have
/// all sequences and no prompt.
const TOKENS: usize = 24;
/// The tokens of a prompt.
const PROMPT: usize = 8;
/// Token ids are below it.
const IDS: usize = 32;

/// The operations of a step by name, and how many there are of each.
pub type Operations = BTreeMap<String, u32>;

/// A library that counts operations of libtorch in the process that loads it.
#[derive(Debug)]
pub struct Counter {
    library: PathBuf,
    folder: TempDir,
}

impl Counter {
    /// Compiles the library for the libtorch in this folder.
    ///
    /// # Errors
    /// There is no C++ compiler, or it fails.
    pub fn compile(libtorch: &Path) -> Result<Self> {
        let folder = TempDir::new()?;
        let (source, library) = (folder.path().join("counter.cpp"), folder.path().join("counter.so"));
        fs::write(&source, COUNTER)?;
        let mut compiler = Command::new("c++");
        // libtorch is built so, and its classes have other members without it.
        compiler.args(["-DNDEBUG", "-std=c++20", "-shared", "-fPIC", "-I"]).arg(libtorch.join("include"));
        compiler.arg(&source).arg("-o").arg(&library);
        compiler.arg("-L").arg(libtorch.join("lib")).args(["-ltorch_cpu", "-lc10"]);
        let status = compiler.status().context("cannot run c++, a C++ compiler")?;
        ensure!(status.success(), "the counter of operations does not compile");
        Ok(Self { library, folder })
    }

    /// Returns the operations of a decode step of this many greedy sequences of like lengths, in f32.
    /// `embeddings` is the number of embeddings in a step. Copies from and to the device are named
    /// `upload` and `download`.
    ///
    /// # Errors
    /// gen-svc fails, or no step of all sequences repeats.
    pub fn decode_step(&self, gen_svc: &Path, model: &Path, sequences: usize, embeddings: usize) -> Result<Operations> {
        self.step(gen_svc, model, sequences, embeddings, &json!({"temperature": 0}), &[])
    }

    /// As [`decode_step`](Self::decode_step), with these settings of the requests and arguments of gen-svc.
    ///
    /// # Errors
    /// gen-svc fails, or no step of all sequences repeats.
    pub fn step(
        &self,
        gen_svc: &Path,
        model: &Path,
        sequences: usize,
        embeddings: usize,
        settings: &Value,
        arguments: &[&str],
    ) -> Result<Operations> {
        let steps = self.steps(gen_svc, model, sequences, embeddings, settings, arguments)?;
        let whole = steps.iter().filter(|step| rows(step).all(|rows| rows == Some(sequences)));
        most_frequent(whole.map(without_rows)).with_context(|| format!("no step of {sequences} sequences repeats"))
    }

    /// Returns the operations of every step. The name of a product or of an embedding is followed by its number
    /// of rows: `aten::linear[64]`.
    ///
    /// # Errors
    /// gen-svc fails.
    pub fn steps(
        &self,
        gen_svc: &Path,
        model: &Path,
        sequences: usize,
        embeddings: usize,
        settings: &Value,
        arguments: &[&str],
    ) -> Result<Vec<Operations>> {
        let mut command = Command::new(gen_svc);
        command.args(["generate", "--dtype", "f32", "--threads", "1", "--kv-memory-mib", "64", "--jsonl"]);
        if !arguments.contains(&"--device") {
            command.args(["--device", "cpu-torch"]);
        }
        command.args(["--log", "error", "--max-running", &sequences.to_string(), "--model"]).arg(model).args(arguments);
        self.watch(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cannot run gen-svc")?;
        let tokens = TOKENS.max(sequences);
        let requests: String = (0..sequences).map(|sequence| request(sequence, tokens, settings)).collect();
        child.stdin.take().context("no stdin")?.write_all(requests.as_bytes())?;
        ensure!(child.wait()?.success(), "gen-svc failed; see its messages above");
        // What precedes the first step loads the model.
        Ok(self.counted()?[1..].chunks_exact(embeddings).map(sum).collect())
    }

    /// Runs a command. Returns the operations before its first embedding, and then those from each embedding
    /// to the next one.
    ///
    /// # Errors
    /// The command fails.
    pub fn count(&self, command: &mut Command) -> Result<Vec<Operations>> {
        self.watch(command);
        let output = command.stdin(Stdio::null()).output().context("cannot run the command")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        Ok(self.counted()?.iter().map(without_rows).collect())
    }

    /// Lets the counter count the operations of a process.
    fn watch(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TANDEM_OPERATIONS", self.path());
    }

    fn counted(&self) -> Result<Vec<Operations>> {
        let steps: Vec<_> = fs::read_to_string(self.path())?.lines().map(operations).collect();
        ensure!(!steps.is_empty(), "the counter wrote nothing");
        Ok(steps)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("steps")
    }
}

/// Returns a line with a request.
fn request(sequence: usize, tokens: usize, settings: &Value) -> String {
    let ids: Vec<usize> = (0..PROMPT).map(|at| (sequence * 7 + at) % IDS).collect();
    let mut request = json!({"token_ids": ids, "max_new_tokens": tokens, "ignore_eos": true});
    let settings = settings.as_object().into_iter().flatten();
    settings.for_each(|(name, value)| request[name] = value.clone());
    format!("{request}\n")
}

fn operations(line: &str) -> Operations {
    let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?))).collect()
}

fn sum(parts: &[Operations]) -> Operations {
    let mut sum = Operations::new();
    for (name, count) in parts.iter().flatten() {
        *sum.entry(name.clone()).or_default() += count;
    }
    sum
}

/// Returns the rows of each embedding and of each product with all weights of a matrix. In a decode step, they
/// are its sequences.
fn rows(step: &Operations) -> impl Iterator<Item = Option<usize>> {
    let names = step.keys().filter_map(|name| name.strip_suffix(']')?.split_once('['));
    let products = names.filter(|(name, _)| ["aten::embedding", "aten::linear"].contains(name));
    products.map(|(_, rows)| rows.parse().ok())
}

fn without_rows(step: &Operations) -> Operations {
    let mut plain = Operations::new();
    for (name, count) in step {
        let name = name.split_once('[').map_or(name.as_str(), |(name, _)| name);
        *plain.entry(name.to_owned()).or_default() += count;
    }
    plain
}

fn most_frequent(steps: impl Iterator<Item = Operations>) -> Option<Operations> {
    let mut counts: BTreeMap<Operations, usize> = BTreeMap::new();
    steps.for_each(|step| *counts.entry(step).or_default() += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > 1).map(|(step, _)| step)
}
