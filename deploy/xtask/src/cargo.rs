//! The cargo commands that `cargo xtask` runs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::files;
use crate::layout::Layout;

/// Returns a command for the cargo that started this program, to run in the repository's root.
///
/// It runs without the variables of this program's package. Build scripts, such as ring's, run again
/// when these change, and then everything above is rebuilt.
pub(crate) fn command(layout: &Layout) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(layout.root());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    command
}

/// Removes a package's build results.
pub(crate) fn clean(layout: &Layout, package: &str) -> Result<()> {
    for profile in ["dev", "release"] {
        let arguments = ["clean", "--quiet", "--package", package, "--profile", profile];
        let status = command(layout).args(arguments).status().context("cannot run cargo")?;
        if !status.success() {
            bail!("cargo {} failed", arguments.join(" "));
        }
    }
    Ok(())
}

/// The folder of the programs of one profile.
#[derive(Debug)]
pub(crate) struct Programs(PathBuf);

impl Programs {
    /// Finds the folder. Cargo puts all programs of a profile into one folder, and this program is
    /// one of them.
    pub(crate) fn of(profile: Profile) -> Result<Self> {
        let this = env::current_exe().context("cannot find this program's own path")?;
        let target = this.ancestors().nth(2).context("this program is not in cargo's target folder")?;
        Ok(Self(target.join(profile.folder())))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn executable(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        if !path.is_file() {
            bail!("cargo built no {}", path.display());
        }
        Ok(path)
    }
}

/// The profile of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// Returns the command that builds programs. The command prints cargo's progress.
///
/// It selects no package. Cargo then gives every dependency the features that the whole workspace
/// needs, as `cargo build` does, and compiles nothing twice.
pub(crate) fn build_command(layout: &Layout, profile: Profile, programs: &[&str]) -> Command {
    let mut command = command(layout);
    command.args(["build", "--profile", profile.name()]);
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    command
}

/// The packages that need libtorch.
const OF_LIBTORCH: [&str; 2] = ["tandem-tests-full", "tandem-torch"];

/// As [`build_command`], without libtorch: its packages are not built, and gen-svc has no feature `torch`.
pub(crate) fn text_only_command(layout: &Layout, profile: Profile, programs: &[&str]) -> Command {
    let mut command = build_command(layout, profile, programs);
    command.args(["--workspace", "--no-default-features"]);
    command.args(OF_LIBTORCH.iter().flat_map(|package| ["--exclude", package]));
    command
}

/// Builds gen-svc without libtorch, and copies it to `gen-svc-text`, beside which gen-svc is built as usual.
pub(crate) fn build_text_only(layout: &Layout) -> Result<()> {
    let profile = Profile::Dev;
    run(&mut text_only_command(layout, profile, &["gen-svc"]))?;
    let programs = Programs::of(profile)?;
    files::copy(&programs.executable("gen-svc")?, &programs.folder().join("gen-svc-text"))
}

/// Builds programs.
pub(crate) fn build(layout: &Layout, profile: Profile, programs: &[&str]) -> Result<Programs> {
    build_with(layout, profile, programs, &[])
}

/// Builds programs with environment variables.
pub(crate) fn build_with(
    layout: &Layout,
    profile: Profile,
    programs: &[&str],
    variables: &[(&str, &str)],
) -> Result<Programs> {
    run(build_command(layout, profile, programs).envs(variables.iter().copied()))?;
    Programs::of(profile)
}

/// Runs a build.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    if !command.status().context("cannot run cargo")?.success() {
        bail!("the build failed; see cargo's messages above");
    }
    Ok(())
}
