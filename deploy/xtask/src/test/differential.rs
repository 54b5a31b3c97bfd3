//! `cargo xtask test --differential`: the template engine and the parser of answers compared with
//! transformers, on random cases.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::files;
use crate::layout::Layout;
use crate::setup::{self, venv};

/// The full names of the tests that compare.
const TESTS: [&str; 2] = [
    "template::differential::random_cases_render_as_in_transformers",
    "render::response_parser::differential::random_answers_are_read_as_by_transformers",
];
/// Real templates and conversations, if the repository has this folder beside it.
const CORPUS: &str = "../shared/corpus";

/// One kind of cases, and its share.
struct Kind {
    name: &'static str,
    percent: u64,
    takes_corpus: bool,
}

const KINDS: [Kind; 2] = [
    Kind { name: "snippets", percent: 80, takes_corpus: false },
    Kind { name: "conversations", percent: 20, takes_corpus: true },
];

/// Makes `count` cases for each test, renders or parses them with transformers, and compares.
pub(super) fn run(layout: &Layout, count: u64, seed: Option<u64>) -> Result<ExitCode> {
    setup::ensure(layout)?;
    let scripts = layout.root().join("tests/differential");
    let python = venv::transformers(layout)?.python();
    let seed = seed.unwrap_or_else(fresh_seed);
    println!(
        "{count} cases each from seed {seed}; the same again: cargo xtask test --differential {count} --seed {seed}"
    );
    let folder = layout.tandem().join("differential-cases");
    files::make_folder(&folder)?;
    let oracle = Oracle { python: &python, scripts: &scripts };
    let mut cases = Vec::new();
    for kind in &KINDS {
        let path = folder.join(format!("{}.jsonl", kind.name));
        let start = Instant::now();
        let corpus = Some(layout.root().join(CORPUS)).filter(|corpus| kind.takes_corpus && corpus.is_dir());
        oracle.render(kind, (count * kind.percent).div_ceil(100), seed, corpus.as_deref(), &path)?;
        println!("transformers has rendered the {} in {} s", kind.name, start.elapsed().as_secs());
        cases.push(path);
    }
    let answers = folder.join("answers.jsonl");
    let start = Instant::now();
    oracle.parse(count, seed, &answers)?;
    println!("transformers has parsed the answers in {} s", start.elapsed().as_secs());
    compare(layout, &cases, &answers)
}

fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// transformers, in separate processes.
struct Oracle<'a> {
    python: &'a Path,
    scripts: &'a Path,
}

impl Oracle<'_> {
    /// Runs three processes in a pipe: one makes cases, two render them. Only cases with equal
    /// results are kept.
    fn render(&self, kind: &Kind, count: u64, seed: u64, corpus: Option<&Path>, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut generate = self.script("generate.py");
        generate.args([seed.to_string(), count.to_string(), kind.name.to_owned()]).args(corpus);
        let (mut generate, cases) = piped(generate)?;
        let mut first = self.script("oracle.py");
        first.stdin(cases);
        let (mut first, rendered) = piped(first)?;
        let mut second = self.script("oracle.py").stdin(rendered).stdout(file).spawn().context("cannot run python")?;
        self.wait([&mut generate, &mut first, &mut second])
    }

    /// Runs one process, which makes cases for the parser of answers and parses them.
    fn parse(&self, count: u64, seed: u64, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut answers = self.script("answers.py");
        answers.args([seed.to_string(), count.to_string()]).stdout(file);
        self.wait([&mut answers.spawn().context("cannot run python")?])
    }

    /// Waits for scripts. Fails if one of them fails.
    fn wait<const N: usize>(&self, scripts: [&mut Child; N]) -> Result<()> {
        for script in scripts {
            if !script.wait().context("cannot wait for python")?.success() {
                bail!("a script in {} failed; see its messages above", self.scripts.display());
            }
        }
        Ok(())
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.python);
        command.arg(self.scripts.join(name));
        command
    }
}

fn piped(mut command: Command) -> Result<(Child, ChildStdout)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run python")?;
    let output = child.stdout.take().context("python has no output")?;
    Ok((child, output))
}

fn compare(layout: &Layout, cases: &[PathBuf], answers: &Path) -> Result<ExitCode> {
    let cases = env::join_paths(cases).context("the folder's path holds a path separator")?;
    let mut command = cargo::command(layout);
    command.args(["test", "--package", "tandem-tests", "--test", "light", "--", "--ignored", "--nocapture", "--exact"]);
    command.args(TESTS).env("TANDEM_DIFFERENTIAL", cases).env("TANDEM_DIFFERENTIAL_ANSWERS", answers);
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
