//! Models of random weights, for kinds of layers that the default model does not have.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::args::{Generate, RandomModel};
use super::system;

const SCRIPT: &str = include_str!("models.py");

/// A model in a folder that is removed at the end.
#[derive(Debug)]
pub(super) struct Model(TempDir);

impl Model {
    /// Makes the model with the Python of transformers.
    pub(super) fn make(args: &Generate, kind: RandomModel) -> Result<Self> {
        let folder = TempDir::new()?;
        let script = folder.path().join("make.py");
        fs::write(&script, SCRIPT)?;
        let mut command = Command::new(&args.python);
        command.arg(script).arg(system::name(&kind)).arg(folder.path());
        let status = command.status().with_context(|| format!("cannot run {}", args.python.display()))?;
        ensure!(status.success(), "no model was made: see the messages above");
        Ok(Self(folder))
    }

    /// Returns the arguments with this model.
    pub(super) fn chosen(&self, args: &Generate) -> Generate {
        let path = |name| self.0.path().join(name);
        Generate { model: path("model.gguf"), folder: Some(path("folder")), ..args.clone() }
    }
}
