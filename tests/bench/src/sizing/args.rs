//! The arguments of `sizing`.

use std::path::PathBuf;

use super::shape::Shape;

/// Sizing: tokens per second and memory by model size, and the time of render-svc beside gen-svc.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Sizing {
    /// The render-svc to measure.
    #[arg(long, value_name = "PATH")]
    pub(super) render_svc: PathBuf,
    /// The gen-svc to measure.
    #[arg(long, value_name = "PATH")]
    pub(super) gen_svc: PathBuf,
    /// Models to measure: GGUF files or folders, separated by commas.
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub(super) models: Vec<PathBuf>,
    /// Sizes of models with random weights, which are measured after the others.
    #[arg(long, value_delimiter = ',', default_values = ["0.4b", "1b", "3b"])]
    pub(super) shapes: Vec<Shape>,
    /// Weights of gen-svc: keep, int8 or int4.
    #[arg(long, default_value = "int8")]
    pub(super) quantize: String,
    /// Threads of gen-svc.
    #[arg(long, default_value_t = crate::machine::cores())]
    pub(super) threads: usize,
    /// KV cache of gen-svc, in MiB.
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    pub(super) kv_memory_mib: u32,
    /// Numbers of tasks at the same time.
    #[arg(long, value_delimiter = ',', default_values = ["1", "8"])]
    pub(super) parallel: Vec<usize>,
    /// Tasks per row.
    #[arg(long, default_value_t = 16)]
    pub(super) tasks: usize,
    /// Tokens per answer.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) tokens: u32,
}
