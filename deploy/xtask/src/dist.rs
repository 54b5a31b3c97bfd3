//! `cargo xtask dist`: a tarball per service, which runs on another machine of the same kind.

mod archive;
mod content;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::files::{make_folder, remove_folder};
use crate::layout::Layout;
use crate::release::{self, Commit, SERVICES};
use archive::Archive;
use content::Package;

/// Build a tarball per service, which needs neither this checkout nor a Rust or C++ toolchain.
///
/// A tarball has the program (release build, stripped), the libraries that it needs besides
/// glibc, manual pages, shell completions, a unit of systemd, the proto files and the license. SHA256SUMS has the
/// digests. Equal inputs give equal tarballs: every file gets the time SOURCE_DATE_EPOCH, or else
/// the commit's. TANDEM_COMMIT replaces the commit that `--version` names. The machine that runs
/// it needs the same glibc or a newer one. gen-svc is packed for the CPU only.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask dist                          all services, into target/dist
  cargo xtask dist render-svc --out /tmp    one service")]
pub(crate) struct Args {
    /// Services to pack [default: all]
    #[arg(value_name = "SERVICE", value_parser = SERVICES)]
    services: Vec<String>,
    /// Folder of the tarballs [default: target/dist]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Pack the programs of this folder, and build nothing. Used by tests.
    #[arg(long, value_name = "FOLDER", hide = true)]
    programs: Option<PathBuf>,
}

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let services = release::chosen(&args.services);
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/dist"));
    make_folder(&out)?;
    let commit = Commit::of(layout);
    let programs = release::programs(layout, &services, &commit, args.programs.as_deref())?;
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
