//! `cargo xtask test --cluster`: the chart and the images on a real Kubernetes of one node.

mod images;
mod load;
mod node;
mod requirements;
mod scene;
mod steps;

use std::fs::File;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::layout::Layout;
use crate::setup::{self, programs};
use node::Node;
use scene::Scene;

/// Builds the cluster's programs unless they are built, starts the cluster, and runs the steps whose
/// names contain `filter`, after the steps that install the release.
pub(super) fn run(layout: &Layout, filter: &str) -> Result<ExitCode> {
    let missing = requirements::missing();
    if !missing.is_empty() {
        println!("skipped: the test on a cluster needs {}", missing.join("; "));
        return Ok(ExitCode::SUCCESS);
    }
    setup::ensure(layout)?;
    let cache = programs::cache(layout)?;
    let _only = only_one(&cache)?;
    let programs = programs::cluster(layout)?;
    let archives = images::make(layout, &programs, &cache)?;
    let load = load::build(layout)?;
    let node = Node::start(layout, &programs, &cache.join("run"))?;
    let scene = Scene::new(layout, node, load);
    scene.prepare(&archives)?;
    let failed = steps::run(&scene, filter);
    if !failed.is_empty() {
        bail!("failed on the cluster: {}", failed.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a lock, because the cluster's control groups have fixed names.
fn only_one(cache: &std::path::Path) -> Result<File> {
    let file = File::create(cache.join("lock"))?;
    if file.try_lock().is_err() {
        bail!("another test on a cluster is running");
    }
    Ok(file)
}
