//! `cargo xtask dist`: a tarball per service, which runs on another machine of the same kind.

mod archive;
mod binary;
mod content;
mod output;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::cargo::{self, Profile};
use crate::files::{make_folder, remove_folder};
use crate::layout::Layout;
use crate::setup;
use archive::Archive;
use content::Package;

/// Build a tarball per service, which needs neither this checkout nor a Rust or C++ toolchain.
///
/// A tarball has the program (release build, stripped), the libraries that it needs besides
/// glibc, manual pages, shell completions, the proto files and the license. SHA256SUMS has the
/// digests. Equal inputs give equal tarballs: every file gets the time SOURCE_DATE_EPOCH, or else
/// the commit's. TANDEM_COMMIT replaces the commit that `--version` names. The machine that runs
/// it needs the same glibc or a newer one. gen-svc is packed for the CPU only.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask dist                          both services, into target/dist
  cargo xtask dist render-svc --out /tmp    one service")]
pub(crate) struct Args {
    /// Services to pack [default: both]
    #[arg(value_name = "SERVICE", value_parser = SERVICES)]
    services: Vec<String>,
    /// Folder of the tarballs [default: target/dist]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Pack the programs of this folder, and build nothing. Used by tests.
    #[arg(long, value_name = "FOLDER", hide = true)]
    programs: Option<PathBuf>,
}

const SERVICES: [&str; 2] = ["render-svc", "gen-svc"];

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let all = SERVICES.map(str::to_owned);
    let services = if args.services.is_empty() { &all[..] } else { &args.services };
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/dist"));
    make_folder(&out)?;
    let commit = Commit::of(layout);
    let programs = match &args.programs {
        Some(folder) => services.iter().map(|service| folder.join(service)).collect(),
        None => build(layout, services, &commit)?,
    };
    let mut archives = Vec::new();
    for (service, program) in services.iter().zip(programs) {
        let package = Package { layout, service, program, is_trial: args.programs.is_some() };
        archives.push(pack(&package, &out, commit.seconds)?);
    }
    archive::write_digests(&out, &archives)?;
    for archive in &archives {
        println!("{}  {:.1} MB", archive.path.display(), archive.bytes as f64 / 1e6);
    }
    println!("{}", out.join(archive::DIGESTS).display());
    Ok(ExitCode::SUCCESS)
}

fn build(layout: &Layout, services: &[String], commit: &Commit) -> Result<Vec<PathBuf>> {
    setup::ensure(layout)?;
    let names: Vec<&str> = services.iter().map(String::as_str).collect();
    eprintln!("Building {} of commit {}, optimized; this takes some minutes.", names.join(" and "), commit.name);
    let variables = [("TANDEM_DIST", "1"), ("TANDEM_COMMIT", commit.name.as_str())];
    let built = cargo::build_with(layout, Profile::Release, &names, &variables)?;
    names.iter().map(|name| built.executable(name)).collect()
}

/// Fills a folder with the tarball's content, packs it, and removes it.
fn pack(package: &Package, out: &Path, seconds: u64) -> Result<Archive> {
    let staging = out.join("staging");
    remove_folder(&staging)?;
    let name = content::fill(package, &staging)?;
    eprintln!("Packing {name}");
    let archive = archive::pack(&staging, &name, out, seconds)?;
    remove_folder(&staging)?;
    Ok(archive)
}

/// The commit of the sources.
#[derive(Debug)]
struct Commit {
    /// The hash, with `-modified` if files differ from it, or `unknown`.
    name: String,
    /// The time of all packed files, in seconds since 1970.
    seconds: u64,
}

impl Commit {
    fn of(layout: &Layout) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").current_dir(layout.root()).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let stated = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let is_modified = || git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
        let described = || Some(git(&["rev-parse", "HEAD"])? + if is_modified() { "-modified" } else { "" });
        let name = stated("TANDEM_COMMIT").or_else(described).unwrap_or_else(|| "unknown".to_owned());
        let time = stated("SOURCE_DATE_EPOCH").or_else(|| git(&["log", "-1", "--format=%ct"]));
        Self { name, seconds: time.and_then(|time| time.parse().ok()).unwrap_or_default() }
    }
}
