//! The images of the pods.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cargo::{self, Profile};
use crate::files::{copy, make_folder, remove_folder};
use crate::images;
use crate::layout::Layout;
use crate::release::Commit;

/// Makes the images of both services, as `cargo xtask images` does, from programs of the profile `dev`,
/// and that of `pause`. Returns the archives.
pub(super) fn make(layout: &Layout, programs: &Path, cache: &Path) -> Result<Vec<PathBuf>> {
    let services = ["render-svc", "gen-svc"];
    let built = cargo::build(layout, Profile::Dev, &services)?;
    let folder = built.executable("gen-svc")?.parent().map(Path::to_path_buf).unwrap_or_default();
    let out = cache.join("images");
    images::run(layout, &images::Args::of_programs(&services, out.clone(), folder))?;
    let pause = out.join("pause");
    remove_folder(&pause)?;
    make_folder(&pause)?;
    copy(&programs.join("pause"), &pause.join("root/bin/pause"))?;
    images::pack(&pause, "pause", "localhost/tandem/pause:1", &Commit::of(layout))?;
    Ok(["pause", "render-svc", "gen-svc"].map(|name| out.join(format!("{name}.tar"))).to_vec())
}

/// Returns the command that loads an image into the node.
pub(super) fn import(archive: &Path) -> Command {
    let mut ctr = Command::new("ctr");
    ctr.args(["--namespace", "k8s.io", "images", "import"]).arg(archive);
    ctr
}
