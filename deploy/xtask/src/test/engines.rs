//! The engines of `cargo xtask test --engines`.

use anyhow::Result;

use crate::layout::Layout;
use crate::setup;
use crate::setup::vllm::Vllm;

/// Installs vLLM. None if that is not possible here: then a line says why.
pub(super) fn vllm(layout: &Layout) -> Result<Option<Vllm>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: vLLM for a CPU needs Linux on x86-64");
        return Ok(None);
    }
    setup::ensure(layout)?;
    let installed = Vllm::ensure(layout).inspect_err(|error| {
        println!("skipped: vLLM cannot be installed (20 GB of disk, 10 GB of memory, Python 3.10): {error:#}");
    });
    Ok(installed.ok())
}
