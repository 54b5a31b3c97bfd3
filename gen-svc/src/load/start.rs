//! Loads the configured model, and starts its engine.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tandem_core::cache::CacheSize;
use tandem_core::engine::{self, Config, Engine};
use tandem_core::error::LoadError;
use tandem_core::grammar::Grammars;
use tandem_core::library::Library;
use tandem_core::lifecycle::Lifecycle;
use tandem_core::media::{self, ImageAttention, Vision};
use tandem_core::models::decoder::Decoder;
use tandem_core::models::vision::{TowerFit, families};
use tandem_core::models::{self, Backend, LoadedModel};
use tandem_core::request::{SamplingOptions, ServedModel};
use tandem_core::weights::ModelFile;
use tandem_kernels::IsaLevel;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::CancelScope;
use tokio_util::sync::CancellationToken;

use super::choice::{self, Loaded};

/// Starts the engine's thread, which loads the model. Returns once requests are accepted. The
/// result includes the thread, which the caller joins at shutdown.
///
/// # Errors
/// The model cannot be loaded as configured.
pub fn start(config: Config, library: &'static dyn Library) -> Result<(Engine, JoinHandle<()>), LoadError> {
    let lifecycle = Lifecycle::default();
    let started = start_loading(config, library, lifecycle.clone())?;
    lifecycle.serve();
    Ok(started)
}

/// Starts the engine's thread under a server's lifecycle, which decides when requests are
/// accepted.
///
/// # Errors
/// Fails as [`start`] does, and with [`LoadError::Cancelled`] if the server drains during the load.
pub fn start_loading(
    config: Config,
    library: &'static dyn Library,
    lifecycle: Lifecycle,
) -> Result<(Engine, JoinHandle<()>), LoadError> {
    let cancelled = lifecycle.cancellation();
    Engine::start_loading_with(config, lifecycle, move |config| load(config, library, cancelled))
}

/// Loads the configured model. Runs on the engine's thread, because a library's settings may be per
/// thread.
///
/// # Errors
/// The model cannot be loaded as configured; [`LoadError::Cancelled`] once `cancelled` is
/// cancelled.
pub(super) fn load(
    config: &Config,
    library: &dyn Library,
    cancelled: CancellationToken,
) -> Result<(ServedModel, LoadedModel), LoadError> {
    let _scope = CancelScope::start(cancelled.clone());
    let loaded = load_files(config, library, cancelled.clone());
    // Each reader of files has its own error of a cancelled load.
    loaded.map_err(|error| if cancelled.is_cancelled() { LoadError::Cancelled } else { error })
}

fn load_files(
    config: &Config,
    library: &dyn Library,
    cancelled: CancellationToken,
) -> Result<(ServedModel, LoadedModel), LoadError> {
    let start = Instant::now();
    let choice = choice::resolve(config, library)?;
    let threads = choice::threads(config.threads);
    library.set_threads(threads);
    let artifacts = Artifacts::load(&config.model)?;
    if config.model.join("adapter_config.json").is_file() {
        tracing::warn!(
            "the folder has a LoRA adapter (adapter_config.json), which is not applied: merge it into the model"
        );
    }
    let file = models::open_with(&artifacts, config.mmproj.as_deref())?.cancelled_by(cancelled);
    let defaults = artifacts.sampling_defaults()?;
    if !defaults.without_effect.is_empty() {
        tracing::warn!(
            settings = defaults.without_effect.join(", "),
            "generation settings of the model have no effect"
        );
    }
    let sampling = SamplingOptions::recommended(&defaults)?;
    let decoder = models::describe(&file)?;
    // Before the weights, which may take minutes.
    artifacts.tokenizer()?;
    if config.mmproj.is_some() && !library.has_towers() {
        return Err(LoadError::WithoutTorch { needed_by: "--mmproj".to_owned() });
    }
    let has_tower = has_tower(&file, library);
    let vision = if has_tower { vision(&artifacts, &file, &decoder, config)? } else { None };
    let loaded = choice::load(config, &file.with_progress(), decoder, &choice, library)?;
    let backend = loaded.model.backend.as_ref();
    engine::require_context(config, backend)?;
    let served = ServedModel { vision, ..served_model(&artifacts, config, sampling, &loaded)? };
    let took = start.elapsed();
    engine::record_load(took);
    log_loaded(&served, config, backend, threads, took)?;
    Ok((served, loaded.model))
}

/// Returns true if the model takes images here.
fn has_tower(file: &ModelFile, library: &dyn Library) -> bool {
    let has_tower = models::vision::has_tower(file);
    if has_tower && !library.has_towers() {
        tracing::warn!(
            "this gen-svc is built without libtorch, which computes images: the model takes text only; for images, use \
             the image whose tag does not end with -text, or build with the feature `torch`"
        );
    }
    has_tower && library.has_towers()
}

/// Reads the processor of images. Returns None for a model without a chat template, which would place
/// them: it is served for text.
fn vision(
    artifacts: &Artifacts,
    file: &ModelFile,
    decoder: &Decoder,
    config: &Config,
) -> Result<Option<Vision>, LoadError> {
    if artifacts.templates.get("default").is_none() {
        tracing::warn!("model has a tower and no chat template, so that it takes text only");
        return Ok(None);
    }
    let attention = ImageAttention { has_axes: decoder.has_axes(), is_mutual: decoder.has_image_blocks() };
    let processor = match file.processor() {
        Some(files) => families::processor(files)?,
        None => media::read_processor(&artifacts.path)?,
    };
    let fit = TowerFit::of(file)?;
    fit.check(&processor)?;
    let processor = processor.fitted(move |plan| fit.problem_of(plan));
    Vision::load(artifacts, processor, attention, config.media, config.image_hosts.clone()).map(Some)
}

/// Logs every setting in force, defaults included.
fn log_loaded(
    served: &ServedModel,
    config: &Config,
    backend: &dyn Backend,
    threads: usize,
    took: Duration,
) -> Result<(), LoadError> {
    let (shape, limits) = (backend.shape(), config.limits());
    let CacheSize { blocks, states } = engine::cache_size(config, backend)?;
    let blocks = u64::from(blocks);
    let kv_tokens = blocks * shape.block as u64;
    let context = shape.context.min(usize::try_from(kv_tokens).unwrap_or(usize::MAX));
    tracing::info!(
        model = served.id,
        architecture = served.architecture,
        device = served.device,
        dtype = served.dtype,
        quantization = served.quantization,
        batch_invariant = config.batch_invariant,
        threads,
        kernels = IsaLevel::detect().name(),
        context,
        weights_mib = backend.weight_bytes().map(|bytes| bytes >> 20),
        kv_tokens,
        kv_mib = (blocks * shape.block_bytes) >> 20,
        states = (states > 0).then_some(states),
        states_mib = (states > 0).then_some((u64::from(states) * shape.state_bytes) >> 20),
        max_running = limits.max_running,
        max_queue = limits.max_queue,
        max_prompt_tokens = served.max_prompt_tokens.min(context),
        max_output_tokens = served.max_output_tokens.min(context),
        prefill_chunk = limits.prefill_chunk,
        sampling_defaults = served.defaults.in_force().described(),
        seconds = took.as_secs_f64(),
        "model loaded"
    );
    Ok(())
}

fn served_model(
    artifacts: &Artifacts,
    config: &Config,
    defaults: SamplingOptions,
    loaded: &Loaded,
) -> Result<ServedModel, LoadError> {
    let shape = loaded.model.backend.shape();
    let (tokenizer, eos_token_ids) = (artifacts.tokenizer()?, artifacts.eos_token_ids()?);
    Ok(ServedModel {
        id: config.model_id.clone().unwrap_or_else(|| artifacts.name.clone()),
        architecture: artifacts.architecture.clone().unwrap_or_default(),
        context_length: shape.context,
        max_prompt_tokens: config.max_prompt_tokens.unwrap_or(usize::MAX),
        max_output_tokens: config.max_output_tokens.unwrap_or(usize::MAX),
        vocabulary_size: shape.vocabulary,
        dtype: loaded.dtype.name().to_owned(),
        quantization: loaded.quantization.name().to_owned(),
        device: config.devices.to_string(),
        vision: None,
        grammars: Grammars::new(
            tokenizer.clone(),
            shape.vocabulary,
            eos_token_ids.clone(),
            config.grammar_trials.clone(),
        ),
        tokenizer,
        eos_token_ids,
        defaults,
    })
}
