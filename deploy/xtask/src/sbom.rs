//! `cargo xtask sbom`: a software bill of materials per service.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::files::{make_folder, read, write};
use crate::layout::Layout;
use crate::release::{self, Commit, SERVICES};
use crate::setup::{self, cyclonedx};

/// Write a software bill of materials per service, in the format CycloneDX 1.5.
///
/// It lists every crate that is compiled into the program, with version, digest and license, and for
/// gen-svc libtorch. Build-time crates are not listed. Equal inputs give equal files: the time is
/// SOURCE_DATE_EPOCH, or else the commit's. The first run builds cargo-cyclonedx into `.tandem`, which
/// takes some minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask sbom                          all services, into target/sbom
  cargo xtask sbom render-svc --out /tmp    one service")]
pub(crate) struct Args {
    /// Services [default: all]
    #[arg(value_name = "SERVICE", value_parser = SERVICES)]
    services: Vec<String>,
    /// Folder of the files [default: target/sbom]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// The name of the files that cargo-cyclonedx writes beside the manifest of every crate.
const NAME: &str = "tandem-sbom";

/// The line after which a document's components follow.
const COMPONENTS: &str = "\n  \"components\": [\n";

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    let program = cyclonedx::ensure(layout)?;
    let out = args.out.clone().unwrap_or_else(|| layout.root().join("target/sbom"));
    make_folder(&out)?;
    let seconds = Commit::of(layout).seconds;
    for service in release::chosen(&args.services) {
        let described = describe(layout, &program, &service, seconds);
        let removed = remove_documents(layout.root());
        let document = out.join(format!("{service}.cdx.json"));
        write(&document, &described?)?;
        removed?;
        println!("{}", document.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the document of a service. Paths in it are relative to the repository.
fn describe(layout: &Layout, program: &Path, service: &str, seconds: u64) -> Result<String> {
    let folder = layout.root().join(folder_of(service));
    let mut command = Command::new(program);
    command.args(["cyclonedx", "-q", "--format", "json", "--spec-version", "1.5", "--no-build-deps"]);
    command.args(["--override-filename", NAME, "--manifest-path"]).arg(folder.join("Cargo.toml"));
    let status = command.env("SOURCE_DATE_EPOCH", seconds.to_string()).status();
    if !status.with_context(|| format!("cannot run {}", program.display()))?.success() {
        bail!("cargo-cyclonedx failed; see its messages above");
    }
    let root = layout.root().display().to_string();
    let text = read(&folder.join(format!("{NAME}.json")))?.replace(&format!("path+file://{root}"), "path+file://.");
    match service {
        "gen-svc" => with_component(&text, &libtorch(layout)),
        _ => Ok(text),
    }
}

/// Returns the folder of a service's crate, in the repository.
fn folder_of(service: &str) -> &str {
    match service {
        "gen-bridge" => "gen-svc/bridge",
        _ => service,
    }
}

/// Adds a component, which no crate names, before the others.
fn with_component(document: &str, component: &str) -> Result<String> {
    let (head, tail) = document.split_once(COMPONENTS).context("cargo-cyclonedx wrote no list of components")?;
    Ok(format!("{head}{COMPONENTS}{component},\n{tail}"))
}

fn libtorch(layout: &Layout) -> String {
    let version = setup::libtorch_version(layout);
    let component = r#"    {
      "type": "library",
      "bom-ref": "libtorch",
      "name": "libtorch",
      "version": "VERSION",
      "description": "The C++ libraries of PyTorch, which gen-svc loads",
      "scope": "required",
      "licenses": [{ "license": { "id": "BSD-3-Clause" } }],
      "purl": "pkg:pypi/torch@VERSION"
    }"#;
    component.replace("VERSION", &version)
}

/// Removes the documents of all crates.
fn remove_documents(folder: &Path) -> Result<()> {
    let failed = || format!("cannot read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if name == format!("{NAME}.json") {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        } else if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            remove_documents(&path)?;
        }
    }
    Ok(())
}
