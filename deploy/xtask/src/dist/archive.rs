//! Tarballs that depend on their content only, and the file of their digests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::files::write;
use crate::output::output_of;

/// The file of the tarballs' digests.
pub(super) const DIGESTS: &str = "SHA256SUMS";

/// A tarball.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// Packs the folder `name` of `staging`. Order, times, owners and modes depend on nothing else.
pub(super) fn pack(staging: &Path, name: &str, out: &Path, seconds: u64) -> Result<Archive> {
    let path = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--mode=u+rw,go+rX,go-w").arg(format!("--mtime=@{seconds}"));
    tar.args(["--use-compress-program", "gzip --no-name"]).arg("--file").arg(&path);
    output_of(tar.arg("--directory").arg(staging).arg(name))?;
    let bytes = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.len();
    Ok(Archive { path, bytes })
}

/// Writes the digests in the format of `sha256sum --check`.
pub(super) fn write_digests(out: &Path, archives: &[Archive]) -> Result<()> {
    let mut names: Vec<_> = archives.iter().filter_map(|archive| archive.path.file_name()).collect();
    names.sort();
    let digests = output_of(Command::new("sha256sum").current_dir(out).args(names))?;
    write(&out.join(DIGESTS), &digests)
}
