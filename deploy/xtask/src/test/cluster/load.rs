//! Tasks that run beside a step.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::scene::Scene;
use crate::cargo::{self, Profile};
use crate::layout::Layout;

/// The address of render-svc's ClusterIP.
pub(super) const SERVICE: &str = "http://tandem-render:50051";

/// Builds the client.
pub(super) fn build(layout: &Layout) -> Result<PathBuf> {
    cargo::build(layout, Profile::Dev, &["tandem-load"])?.executable("tandem-load")
}

/// A client that runs tasks until it is finished.
#[derive(Debug)]
pub(super) struct Load(Child);

impl Load {
    /// Starts to run tasks, at least 200 or as many as `options` state.
    pub(super) fn start(scene: &Scene, service: &str, options: &[&str]) -> Result<Self> {
        let mut client = Command::new(scene.load_program());
        client.args([service, "--until-end-of-input"]).args(options);
        let mut command = scene.command(&client)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self(command.spawn().context("cannot run the client")?))
    }

    /// Waits for the tasks, and returns the client's figures.
    ///
    /// # Errors
    /// A task failed, or two equal tasks had different answers.
    pub(super) fn finish(mut self) -> Result<String> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().context("cannot wait for the client")?;
        let [text, errors] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        if !output.status.success() {
            bail!("the client failed ({}): {text}\n{errors}", output.status);
        }
        Ok(text)
    }
}

/// Runs a step while tasks run, at least 200 of them. Returns the client's figures after the step's.
pub(super) fn under_load(scene: &Scene, step: impl FnOnce() -> Result<String>) -> Result<String> {
    let load = Load::start(scene, SERVICE, &["--tasks=200"])?;
    let done = step();
    let figures = load.finish();
    let done = done?;
    Ok(format!("{done}; {}", figures?))
}
