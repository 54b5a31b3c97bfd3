//! The content of a tarball.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::files::{copy, make_folder, write};
use crate::layout::Layout;
use crate::output::output_of;
use crate::release::binary::{self, Library};
use crate::release::libtorch;

/// The completion scripts: the shell, and the file's name before and after the service's.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ".bash"), ("zsh", "_", ""), ("fish", "", ".fish")];

/// A program to pack.
#[derive(Debug)]
pub(super) struct Package<'a> {
    pub(super) layout: &'a Layout,
    pub(super) service: &'a str,
    pub(super) program: PathBuf,
    /// Accept a program that finds libraries outside of the tarball too.
    pub(super) is_trial: bool,
}

/// Fills a folder of `staging` with the tarball's content. Returns the folder's name:
/// `SERVICE-VERSION-TARGET`.
pub(super) fn fill(package: &Package, staging: &Path) -> Result<String> {
    let Package { layout, service, program, is_trial } = package;
    // A program for other machines does not search the folder of libtorch here.
    let version = output_of(Command::new(program).arg("--version").env("LD_LIBRARY_PATH", libtorch(layout)))?;
    let fact = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (number, target) = (fact(service).context("no version")?, fact("target:").context("no target")?);
    let name = format!("{service}-{number}-{target}");
    let root = staging.join(&name);
    let staged = root.join("bin").join(service);
    make_folder(&root.join("bin"))?;
    output_of(Command::new("strip").arg("-o").arg(&staged).arg(program))?;
    let foreign = binary::foreign_folders(&staged)?;
    match (foreign.as_slice(), is_trial) {
        ([], _) => {}
        (folders, true) => eprintln!("warning: {service} also searches {}", folders.join(", ")),
        (folders, false) => bail!("{service} searches libraries in {}", folders.join(", ")),
    }
    let libraries = copy_libraries(program, &root, &libtorch(layout))?;
    write_pages(&staged, service, &root.join("share"))?;
    for folder in ["google", "tandem"] {
        copy_protos(&layout.root().join("proto").join(folder), &root.join("share/proto").join(folder))?;
    }
    let unit = format!("{service}.service");
    make_folder(&root.join("share/systemd"))?;
    copy(&layout.root().join("deploy/systemd").join(&unit), &root.join("share/systemd").join(&unit))?;
    copy(&layout.root().join("LICENSE"), &root.join("LICENSE"))?;
    let glibc = libraries.iter().chain([&staged]).map(|file| binary::glibc(file)).collect::<Result<Vec<_>>>()?;
    let (major, minor) = glibc.into_iter().max().unwrap_or_default();
    write(&root.join("README.md"), &readme(service, &version, &format!("{major}.{minor}")))?;
    eprintln!("{name}: {} libraries, glibc {major}.{minor} or newer", libraries.len());
    Ok(name)
}

/// Copies the libraries into `lib/`, under the names that the program loads.
fn copy_libraries(program: &Path, root: &Path, libtorch: &Path) -> Result<Vec<PathBuf>> {
    let mut copied = Vec::new();
    for Library { path: library, .. } in binary::libraries(program, libtorch)?.into_iter().filter(|it| !it.is_system) {
        let name = library.file_name().context("a library has a name")?;
        if name.to_string_lossy().starts_with("libtorch_cuda") {
            bail!("dist packs libtorch for the CPU only; {} has CUDA", libtorch.display());
        }
        let to = root.join("lib").join(name);
        copy(&library, &to)?;
        copied.push(to);
    }
    Ok(copied)
}

/// Lets the staged program, with the staged libraries, write its manual pages and completions.
fn write_pages(staged: &Path, service: &str, share: &Path) -> Result<()> {
    output_of(Command::new(staged).arg("man").arg(share.join("man/man1")))?;
    make_folder(&share.join("completions"))?;
    for (shell, before, after) in SHELLS {
        let script = output_of(Command::new(staged).args(["completions", shell]))?;
        write(&share.join("completions").join(format!("{before}{service}{after}")), &script)?;
    }
    Ok(())
}

/// Copies all `.proto` files.
fn copy_protos(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_protos(&path, &to)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            copy(&path, &to)?;
        }
    }
    Ok(())
}

fn readme(service: &str, version: &str, glibc: &str) -> String {
    let example = match service {
        "gen-svc" => "bin/gen-svc serve --model MODEL.gguf",
        "gen-bridge" => "bin/gen-bridge serve --engine llama-cpp --engine-url http://127.0.0.1:8080 --model MODEL.gguf",
        _ => "bin/render-svc serve --models MODELS --generate http://127.0.0.1:50052",
    };
    let version = version.trim().replace('\n', "\n    ");
    let values = [("{service}", service), ("{version}", &version), ("{glibc}", glibc), ("{example}", example)];
    values.iter().fold(include_str!("readme.txt").to_owned(), |text, (name, value)| text.replace(name, value))
}
