//! Loads the configured model.

use std::time::Instant;

use tandem_model_files::artifacts::Artifacts;
use tokio_util::sync::CancellationToken;

use super::backend::{self, BackendNames};
use super::config::Config;
use super::memory;
use crate::error::Error;
use crate::grammar::Grammars;
use crate::models::{self, Backend, Model};
use crate::request::{SamplingOptions, ServedModel};

/// Loads the configured model. Runs on the engine's thread, because libtorch's settings are per
/// thread.
///
/// # Errors
/// The model cannot be loaded as configured; [`Error::LoadCancelled`] once `cancelled` is
/// cancelled.
pub(super) fn load(config: &Config, cancelled: CancellationToken) -> Result<(ServedModel, Box<dyn Model>), Error> {
    let start = Instant::now();
    let backend = backend::resolve(config)?;
    let threads = backend::threads(config.threads);
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    let artifacts = Artifacts::load(&config.model)?;
    let file = models::open(&artifacts)?.cancelled_by(cancelled);
    let decoder = models::describe(&file)?;
    memory::require(models::weight_bytes(&file, &decoder, backend)?, config.device)?;
    let model = models::load(&file, decoder, backend)?;
    let served = served_model(&artifacts, config, model.as_ref(), backend)?;
    tracing::info!(
        model = served.id,
        dtype = served.dtype,
        quantization = served.quantization,
        device = served.device,
        seconds = start.elapsed().as_secs_f64(),
        "model loaded"
    );
    Ok((served, model))
}

fn served_model(
    artifacts: &Artifacts,
    config: &Config,
    model: &dyn Model,
    backend: Backend,
) -> Result<ServedModel, Error> {
    let BackendNames { device, dtype, quantization } = backend::names(backend);
    let shape = model.shape();
    let (tokenizer, eos_token_ids) = (artifacts.tokenizer()?, artifacts.eos_token_ids()?);
    Ok(ServedModel {
        id: config.model_id.clone().unwrap_or_else(|| artifacts.name.clone()),
        architecture: artifacts.architecture.clone().unwrap_or_default(),
        context_length: shape.context,
        max_prompt_tokens: config.max_prompt_tokens.unwrap_or(usize::MAX),
        vocabulary_size: shape.vocabulary,
        dtype: dtype.to_owned(),
        quantization: quantization.to_owned(),
        device,
        grammars: Grammars::new(tokenizer.clone(), shape.vocabulary, eos_token_ids.clone()),
        tokenizer,
        eos_token_ids,
        defaults: SamplingOptions::recommended(&artifacts.generation),
    })
}
