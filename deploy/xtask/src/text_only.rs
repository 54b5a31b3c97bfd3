//! `cargo xtask text-only`: gen-svc without libtorch.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo;
use crate::layout::Layout;

/// Build gen-svc without libtorch, as `target/debug/gen-svc-text`.
///
/// It takes no images, has no GPU, and computes only the models that the CPU's kernels compute. Needs no set-up.
/// `cargo xtask test` builds it too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(layout: &Layout) -> Result<ExitCode> {
    cargo::build_text_only(layout)?;
    Ok(ExitCode::SUCCESS)
}
