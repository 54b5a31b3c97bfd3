//! The commands of each language.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::layout::Layout;

/// A language with a suite. Rust's suite is part of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    Python,
    Typescript,
    Go,
    Java,
}

/// The suite of a language.
pub(super) struct Suite {
    pub(super) language: Language,
    pub(super) name: &'static str,
    /// Programs on the PATH that the commands need.
    pub(super) tools: &'static [&'static str],
    /// Tests the language's package, if it has one.
    pub(super) package: Option<fn(&Clients<'_>) -> Vec<Command>>,
    /// Replays the vectors, and writes the requests' bytes into the exchange folder.
    pub(super) replay: fn(&Clients<'_>) -> Vec<Command>,
    /// Replays vectors again, after `replay`.
    pub(super) replay_again: fn(&Clients<'_>) -> Command,
    /// Reads the bytes that all languages wrote into the exchange folder.
    pub(super) read: fn(&Clients<'_>) -> Vec<Command>,
}

/// The paths that the commands need.
pub(super) struct Clients<'a> {
    pub(super) layout: &'a Layout,
    /// The folder of the services' programs.
    pub(super) programs: PathBuf,
    /// The folder of programs that run the services as those of a later version.
    pub(super) newer: PathBuf,
    /// The folder of programs that run a bridge as gen-svc.
    pub(super) bridged: PathBuf,
    /// A Python with the suite's requirements.
    pub(super) python: PathBuf,
    pub(super) buf: PathBuf,
    /// The folder of the requests' bytes, a file per language.
    pub(super) exchange: PathBuf,
}

pub(super) const SUITES: &[Suite] = &[
    Suite {
        language: Language::Python,
        name: "Python",
        tools: &["python3", "openssl"],
        package: Some(python_package),
        replay: |clients| vec![python(clients, "run_examples.py"), python(clients, "replay.py")],
        replay_again: |clients| python(clients, "replay.py"),
        read: |clients| vec![python(clients, &format!("replay.py --read {}", clients.exchange.display()))],
    },
    Suite {
        language: Language::Typescript,
        name: "TypeScript",
        tools: &["node", "npm", "python3", "openssl"],
        package: Some(|clients| npm(clients, "proto/clients/typescript", &["ci", "test"])),
        replay: |clients| npm(clients, "tests/clients/typescript", &["ci", "run build", "run examples", "run replay"]),
        replay_again: |clients| clients.command("npm", &clients.folder("tests/clients/typescript"), "run replay"),
        read: |clients| {
            let read = format!("run read -- {}", clients.exchange.display());
            npm(clients, "tests/clients/typescript", &[read.as_str()])
        },
    },
    Suite {
        language: Language::Go,
        name: "Go",
        tools: &["go"],
        package: None,
        replay: go_replay,
        replay_again: |clients| {
            clients.command("go", &clients.folder("tests/clients/go"), "test -count=1 -run TestReplay")
        },
        read: |clients| vec![clients.command("go", &clients.folder("tests/clients/go"), "test -count=1 -run TestRead")],
    },
    Suite {
        language: Language::Java,
        name: "Java",
        tools: &["mvn", "javac"],
        package: None,
        replay: |clients| vec![maven(clients, "test -Dtest=!ReadTest")],
        replay_again: |clients| maven(clients, "surefire:test -Dtest=ReplayTest"),
        read: |clients| vec![maven(clients, "surefire:test -Dtest=ReadTest")],
    },
];

impl Clients<'_> {
    /// Returns a folder of the repository.
    fn folder(&self, path: &str) -> PathBuf {
        self.layout.root().join(path)
    }

    /// Returns a command in a folder, with the paths that suites and packages read from variables.
    fn command(&self, program: impl AsRef<Path>, folder: &Path, arguments: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(folder).args(arguments.split(' '));
        command.env("TANDEM_PROGRAMS", &self.programs).env("TANDEM_EXCHANGE", &self.exchange);
        command
    }
}

/// Installs the package, its dependencies and those of its tests into `.tandem/clients`, and tests it.
fn python_package(clients: &Clients<'_>) -> Vec<Command> {
    let (package, installed) = (clients.folder("proto/clients/python"), clients.layout.tandem().join("clients"));
    let install = "-m pip --disable-pip-version-check install --quiet --upgrade --constraint";
    let mut install = clients.command("python3", &clients.folder("tests/clients/python"), install);
    install.env("PIP_ROOT_USER_ACTION", "ignore"); // The warning is about system folders, which stay unchanged.
    install.arg("requirements.txt").arg("--target").arg(&installed);
    install.arg(format!("{}[test]", package.display()));
    let mut test = clients.command("python3", &package, "-m unittest discover -s tests");
    test.env("PYTHONPATH", installed);
    vec![install, test]
}

fn python(clients: &Clients<'_>, arguments: &str) -> Command {
    clients.command(&clients.python, &clients.folder("tests/clients/python"), arguments)
}

fn npm(clients: &Clients<'_>, folder: &str, scripts: &[&str]) -> Vec<Command> {
    scripts.iter().map(|script| clients.command("npm", &clients.folder(folder), script)).collect()
}

fn go_replay(clients: &Clients<'_>) -> Vec<Command> {
    let folder = clients.folder("tests/clients/go");
    let generate = clients.command(&clients.buf, &folder, "generate");
    vec![generate, clients.command("go", &folder, "test -count=1 -skip TestRead")]
}

fn maven(clients: &Clients<'_>, goals: &str) -> Command {
    clients.command(
        "mvn",
        &clients.folder("tests/clients/java"),
        &format!("--batch-mode --quiet -Dstyle.color=never {goals}"),
    )
}
