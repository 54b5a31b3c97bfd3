//! The optimized programs of a commit, as tarballs and images have them.

pub(crate) mod binary;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo::{self, Profile, Programs};
use crate::layout::Layout;
use crate::setup;

pub(crate) const SERVICES: [&str; 3] = ["render-svc", "gen-svc", "gen-bridge"];

/// Returns the named services, or all if none is named.
pub(crate) fn chosen(named: &[String]) -> Vec<String> {
    if named.is_empty() { SERVICES.map(str::to_owned).to_vec() } else { named.to_vec() }
}

/// Returns the services' programs: those of `folder`, or else optimized ones, which are built.
pub(crate) fn programs(
    layout: &Layout,
    services: &[String],
    commit: &Commit,
    folder: Option<&Path>,
) -> Result<Vec<PathBuf>> {
    match folder {
        Some(folder) => Ok(services.iter().map(|service| folder.join(service)).collect()),
        None => build(layout, services, commit),
    }
}

fn build(layout: &Layout, services: &[String], commit: &Commit) -> Result<Vec<PathBuf>> {
    setup::ensure(layout)?;
    let names: Vec<&str> = services.iter().map(String::as_str).collect();
    eprintln!("Building {} of commit {}, optimized; this takes some minutes.", names.join(", "), commit.name);
    let variables = [("TANDEM_DIST", "1"), ("TANDEM_COMMIT", commit.name.as_str())];
    let built = cargo::build_with(layout, Profile::Release, &names, &variables)?;
    names.iter().map(|name| built.executable(name)).collect()
}

/// Builds the services' optimized programs without libtorch, which is not needed then.
pub(crate) fn without_libtorch(layout: &Layout, services: &[String], commit: &Commit) -> Result<Vec<PathBuf>> {
    let programs = Programs::of(Profile::Release)?;
    let names: Vec<&str> = services.iter().map(String::as_str).collect();
    eprintln!("Building {} of commit {} without libtorch, optimized.", names.join(", "), commit.name);
    let mut command = cargo::text_only_command(layout, Profile::Release, &names);
    cargo::run(command.env("TANDEM_DIST", "1").env("TANDEM_COMMIT", &commit.name))?;
    names.iter().map(|name| programs.executable(name)).collect()
}

/// Returns the folder of libtorch's libraries.
pub(crate) fn libtorch(layout: &Layout) -> PathBuf {
    env::var_os("LIBTORCH").map_or_else(|| layout.libtorch(), PathBuf::from).join("lib")
}

/// The commit of the sources.
#[derive(Debug)]
pub(crate) struct Commit {
    /// The hash, with `-modified` if files differ from it, or `unknown`.
    pub(crate) name: String,
    /// The time of all packed files, in seconds since 1970.
    pub(crate) seconds: u64,
}

impl Commit {
    pub(crate) fn of(layout: &Layout) -> Self {
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
