//! Comparison of the manifests with the expected ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cases::{stem, yaml_files};
use crate::files::{make_folder, read, write};

/// A longer line is cut: the dashboard is one.
const LONGEST_LINE: usize = 1000;

/// Returns a failure if the manifest differs from the expected one. With `is_accepted`, writes it.
pub(super) fn check(folder: &Path, name: &str, manifest: &Path, is_accepted: bool) -> Result<Option<String>> {
    let golden = folder.join(format!("{name}.yaml"));
    write(manifest_short(manifest).as_path(), &shortened(&read(manifest)?))?;
    if is_accepted {
        make_folder(folder)?;
        write(&golden, &shortened(&read(manifest)?))?;
        return Ok(None);
    }
    let mut diff = Command::new("diff");
    let status = diff.arg("-u").arg(&golden).arg(manifest_short(manifest)).status().context("cannot run diff")?;
    let advice = "if the change is intended, run `cargo xtask chart --accept`";
    Ok((!status.success()).then(|| format!("{} differs from the rendered chart; {advice}", golden.display())))
}

/// Returns a failure for each expected manifest without a file of values.
pub(super) fn unused(folder: &Path, values: &[PathBuf]) -> Result<Vec<String>> {
    let names: Vec<_> = values.iter().map(|file| stem(file)).collect();
    let files = yaml_files(folder)?;
    let unused = files.iter().filter(|file| !names.contains(&stem(file)));
    Ok(unused.map(|file| format!("{} has no file of values", file.display())).collect())
}

/// Returns the path of the copy that is compared.
fn manifest_short(manifest: &Path) -> PathBuf {
    manifest.with_extension("short")
}

fn shortened(text: &str) -> String {
    let cut = |line: &str| {
        let end = line.char_indices().nth(60).map_or(line.len(), |(at, _)| at);
        format!("{} (cut: {} bytes)", &line[..end], line.len())
    };
    let lines = text.lines().map(|line| if line.len() > LONGEST_LINE { cut(line) } else { line.to_owned() });
    lines.map(|line| line + "\n").collect()
}
