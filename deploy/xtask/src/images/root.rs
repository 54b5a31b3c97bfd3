//! The root file system of an image: the program and the files that it needs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::files::{copy, make_folder};
use crate::layout::Layout;
use crate::output::output_of;
use crate::release::binary::{Library, libraries};
use crate::release::libtorch;

/// Fills `root`: the program in `bin/`, its libraries in `lib/`, those of glibc at their own paths,
/// where the loader searches them. Returns the image's tag: the program's version, with `-cuda` if the
/// image has CUDA, and `-text` if gen-svc has no libtorch, as the chart expects.
pub(super) fn fill(layout: &Layout, service: &str, program: &Path, root: &Path) -> Result<String> {
    let libtorch = libtorch(layout);
    let staged = root.join("bin").join(service);
    make_folder(&root.join("bin"))?;
    output_of(Command::new("strip").arg("-o").arg(&staged).arg(program))?;
    let mut found = libraries(program, &libtorch)?;
    let has_cuda = found.iter().any(|library| is_cuda(&library.path));
    if has_cuda {
        found.extend(all_of(&libtorch)?);
    }
    for Library { path, is_system } in &found {
        let to = match is_system {
            true => path.strip_prefix("/").unwrap_or(path).to_path_buf(),
            false => Path::new("lib").join(path.file_name().context("a library has a name")?),
        };
        copy(path, &root.join(to))?;
    }
    copy(&layout.root().join("LICENSE"), &root.join("LICENSE"))?;
    let version = output_of(Command::new(program).arg("-V").env("LD_LIBRARY_PATH", &libtorch))?;
    let version = version.split_whitespace().last().context("the program has a version")?;
    let has_libtorch = found.iter().any(|library| is_libtorch(&library.path));
    let suffix = match service {
        _ if has_cuda => "-cuda",
        "gen-svc" if !has_libtorch => "-text",
        _ => "",
    };
    Ok(format!("{version}{suffix}"))
}

fn is_cuda(library: &Path) -> bool {
    is_named(library, "libtorch_cuda")
}

fn is_libtorch(library: &Path) -> bool {
    is_named(library, "libtorch")
}

fn is_named(library: &Path, start: &str) -> bool {
    library.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// Returns all libraries of a folder. With CUDA, libtorch loads some by name while it runs.
fn all_of(folder: &Path) -> Result<Vec<Library>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_library = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
    Ok(paths.into_iter().filter(|path| is_library(path)).map(|path| Library { path, is_system: false }).collect())
}
