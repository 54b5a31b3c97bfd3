//! `cargo xtask test --clients`: the client packages against both services.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{self, Profile};
use crate::layout::Layout;
use crate::setup;
use crate::setup::python::Python;

/// Builds the services, installs each package with the tools of its language, and runs its tests. The
/// first failure ends it.
pub(super) fn run(layout: &Layout) -> Result<ExitCode> {
    setup::ensure(layout)?;
    let services = cargo::build(layout, Profile::Dev, &["gen-svc", "render-svc"])?.executable("gen-svc")?;
    let programs = services.parent().context("a program is in a folder")?;
    let is_good = python(layout, programs)? && typescript(layout, programs)?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Installs the Python package and its dependencies into `.tandem/clients`, and tests it.
fn python(layout: &Layout, programs: &Path) -> Result<bool> {
    let python = Python::find()?;
    python.require_pip()?;
    let (package, installed) = (layout.root().join("proto/clients/python"), layout.tandem().join("clients"));
    let mut install = python.pip();
    install.args(["install", "--quiet", "--upgrade", "--target"]).arg(&installed).arg(&package);
    let mut test = python.command();
    test.args(["-m", "unittest", "discover", "-s"]).arg(package.join("tests")).env("PYTHONPATH", installed);
    Ok(succeeds(&mut install)? && succeeds(test.env("TANDEM_PROGRAMS", programs))?)
}

/// Installs the dependencies of the TypeScript package in its folder, which also compiles it, and tests it.
fn typescript(layout: &Layout, programs: &Path) -> Result<bool> {
    let package = layout.root().join("proto/clients/typescript");
    let npm = |argument: &str| {
        let mut command = Command::new("npm");
        command.arg(argument).current_dir(&package).env("TANDEM_PROGRAMS", programs);
        succeeds(&mut command)
    };
    Ok(npm("ci")? && npm("test")?)
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let arguments = command.get_args().collect::<Vec<_>>().join(OsStr::new(" "));
    eprintln!("\n=== {program} {}", arguments.display());
    Ok(command.status().with_context(|| format!("cannot run {program}"))?.success())
}
