//! The division of a GPU's memory. The numbers of a GPU are made up here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use gen_svc::args::{Args, Command};
use gen_svc::grpc;
use tandem_common::pb::generate::v1 as pb;
use tandem_common::status::Reason;
use tandem_core::cache::{BLOCK, CacheSize, Usage};
use tandem_core::engine::{Config, EngineLimits, GpuMemory, GpuState, LargestImage, divide_memory, warm_up};
use tandem_core::error::{LoadError, MemoryError, StepError};
use tandem_core::media::{ImageAttention, MediaLimits, Vision, read_processor};
use tandem_core::models::{self, Backend, DeviceMemory, DevicePart, Drawn, KeptRow, ModelShape, SequenceChunk, Tower};
use tandem_core::sampling::{Chosen, RowPlan, Sampling, Slot};
use tandem_images::Limits;
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::served_model::served_model;
use tandem_tests::{default_model, error_texts};
use tandem_tests_full::backend::{self, BackendChoice};
use tandem_tests_full::faulty_model::{FaultyModel, OUT_OF_MEMORY};
use tandem_tests_full::image_model::ImageModel;
use tandem_torch::TorchTarget;

const GIB: u64 = 1 << 30;

fn gpu(free: u64, total: u64, share: f64) -> GpuMemory {
    GpuMemory { device: "cuda:0".to_owned(), share, memory: DeviceMemory { free: free * GIB, total: total * GIB } }
}

#[test]
fn used_memory_counts_against_the_share() {
    assert_eq!(gpu(80, 80, 0.5).left(), 40 * GIB);
    assert_eq!(gpu(60, 80, 0.5).left(), 20 * GIB);
    assert_eq!(gpu(80, 80, 1.0).left(), 80 * GIB);
    assert_eq!(gpu(30, 80, 0.5).left(), 0, "other processes use more than the share");
}

#[test]
fn a_loaded_model_has_the_card_its_memory_and_its_blocks() {
    let state = GpuState {
        device: "cuda:1".to_owned(),
        name: "A card".to_owned(),
        memory: DeviceMemory { free: 3 * GIB, total: 80 * GIB },
        layers: 14,
        kv_bytes: 50 * GIB,
        kv_blocks: Usage { total: 900, held: 70, kept: 20, positions: 256 },
    };
    let expected = pb::Gpu {
        device: "cuda:1".to_owned(),
        name: "A card".to_owned(),
        free_memory_bytes: 3 * GIB,
        memory_bytes: 80 * GIB,
        layers: 14,
        kv_bytes: 50 * GIB,
        kv_blocks: 900,
        held_kv_blocks: 70,
    };
    assert_eq!(grpc::gpu(state), expected);
}

#[test]
fn a_gpu_has_defaults_of_its_own() {
    let sizes = |arguments: &[&str]| {
        let command = ["gen-svc", "serve", "--model", "m"].into_iter().chain(arguments.iter().copied());
        match Args::try_parse_from(command).expect("arguments").command {
            Command::Serve(serve) => {
                let config = Config::from(serve.engine);
                (config.max_running, config.prefill_chunk)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sizes(&[]), (64, 512));
    assert_eq!(sizes(&["--device", "cuda:1"]), (128, 2048));
    assert_eq!(sizes(&["--device", "cuda", "--max-running", "7", "--prefill-chunk", "9"]), (7, 9));
    let help = Args::command().find_subcommand("serve").expect("it exists").clone().render_long_help().to_string();
    let stated: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for default in ["[default: 64, on a GPU 128]", "[default: 512, on a GPU 2048]"] {
        assert!(stated.contains(default), "{default}");
    }
}

const LIMITS: EngineLimits = EngineLimits {
    max_queue: 1,
    max_running: 5,
    prefill_chunk: 40,
    max_decodes: usize::MAX,
    max_beside_interactive: usize::MAX,
    overlaps_steps: false,
    mask_patience: Duration::ZERO,
};

/// The chunks of each step: earlier positions, tokens and rows of logits.
type Steps = Arc<Mutex<Vec<Vec<[usize; 3]>>>>;

/// Returns a model whose steps are logged, and the log. Its memory suffices for steps of up to `most` tokens.
fn logged(most: usize) -> (Box<dyn Backend>, Steps) {
    let steps = Steps::default();
    let log = Arc::clone(&steps);
    let (model, _) = FaultyModel::boxed(&served_model(), move |chunks: &[SequenceChunk<'_>]| {
        let has_room = |chunk: &SequenceChunk<'_>| chunk.past + chunk.tokens.len() <= chunk.blocks.len() * BLOCK;
        assert!(chunks.iter().all(has_room));
        let shape = |chunk: &SequenceChunk<'_>| [chunk.past, chunk.tokens.len(), chunk.logit_rows().len()];
        let shapes: Vec<[usize; 3]> = chunks.iter().map(shape).collect();
        let tokens: usize = shapes.iter().map(|[_, tokens, _]| tokens).sum();
        log.lock().expect("no panic").push(shapes);
        (tokens > most).then_some(OUT_OF_MEMORY)
    });
    (model, steps)
}

/// A prompt has its last chunk, four outputs share the positions of the KV cache, and another prompt has the
/// rows for log-probabilities.
#[test]
fn the_memory_is_measured_after_a_step_of_the_largest_shapes() {
    let first = vec![[0, BLOCK, 1]];
    let largest = |each: usize, before: usize, tokens: usize| {
        let ends = [[before, tokens, 1], [0, 32, 32]];
        [[[each, 1, 1]; 4].as_slice(), &ends].concat()
    };
    let (of_context, of_room, of_little) = (largest(496, 976, 40), largest(64, 272, 40), largest(0, 0, 32));
    for (room, largest) in [(128, &of_context), (20, &of_room), (2, &of_little)] {
        // The rows of an overlapped step are kept while the next one is computed.
        for overlaps_steps in [false, true] {
            let (mut model, steps) = logged(usize::MAX);
            warm_up(model.as_mut(), None, EngineLimits { overlaps_steps, ..LIMITS }, room).expect("it computes");
            let expected = [vec![first.clone()], vec![largest.clone(); 1 + usize::from(overlaps_steps)]].concat();
            assert_eq!(*steps.lock().expect("no panic"), expected, "{room} blocks");
        }
    }
    // The sampler's workspace is part of it.
    let mut on_device: Box<dyn Backend> = FaultyModel::sound(&served_model(), true);
    warm_up(on_device.as_mut(), None, LIMITS, 128).expect("it computes");
}

/// Every position that is read was written: the rows are numbers.
#[test]
fn a_model_computes_the_largest_step() {
    let config = Config::new(default_model());
    let artifacts = Artifacts::load(&config.model).expect("artifacts");
    let file = models::open(&artifacts).expect("weights");
    let backend = BackendChoice::Torch(TorchTarget::REFERENCE);
    let mut model =
        backend::load(&file, models::describe(&file).expect("supported"), backend).expect("it loads").backend;
    warm_up(model.as_mut(), None, LIMITS, 30).expect("it computes");
}

#[test]
fn a_largest_step_without_memory_is_refused_with_the_settings() {
    let (mut model, _) = logged(LIMITS.prefill_chunk);
    let error = warm_up(model.as_mut(), None, LIMITS, 128).expect_err("it does not fit");
    assert_eq!(error.reason(), Reason::MemoryTooSmall);
    assert!(error.chain().contains("Tried to allocate 2.00 GiB"), "{}", error.chain());
    let LoadError::Memory(MemoryError::Step { prefill_chunk: 40, max_running: 5, .. }) = error else {
        panic!("{error:?}")
    };
    error_texts::check("load/step-memory", error);
}

// ---- images ----

/// A model of the suite with images, loaded on the CPU.
struct WithImages {
    tower: Box<dyn Tower>,
    vision: Vision,
    model: Box<dyn Backend>,
}

impl WithImages {
    fn load(model: &ImageModel) -> Self {
        let folder = model.folder();
        let artifacts = Artifacts::load(folder.path()).expect("artifacts");
        let file = models::open(&artifacts).expect("weights");
        let decoder = models::describe(&file).expect("supported");
        let attention = ImageAttention { has_axes: decoder.has_axes(), is_mutual: decoder.has_image_blocks() };
        let processor = read_processor(folder.path()).expect("a processor");
        let limits =
            MediaLimits { image: Limits { max_pixels: 40_000, ..Limits::default() }, ..MediaLimits::default() };
        let vision = Vision::load(&artifacts, processor, attention, limits, Vec::new()).expect("it loads");
        let loaded = backend::load(&file, decoder, BackendChoice::Torch(TorchTarget::REFERENCE)).expect("it loads");
        Self { tower: loaded.tower.expect("a tower"), vision, model: loaded.backend }
    }

    fn largest(&mut self) -> LargestImage {
        let image = self.vision.largest_image(1 << 20).expect("an image");
        LargestImage::compute(self.tower.as_mut(), &image, self.vision.has_mutual_images()).expect("it computes")
    }
}

/// The models compute the rows of the image: the masks of images and the features of all layers.
#[test]
fn the_largest_step_has_the_largest_image() {
    for (name, model) in ImageModel::all() {
        let mut loaded = WithImages::load(&model);
        let largest = loaded.largest();
        warm_up(loaded.model.as_mut(), Some(&largest), LIMITS, 30).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A chunk begins with the image. Where its tokens attend to each other, the chunk has them all.
#[test]
fn a_chunk_has_all_tokens_of_an_image_if_they_attend_to_each_other() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    for model in ImageModel::all().values() {
        let mut loaded = WithImages::load(model);
        let (largest, rows) = (loaded.largest(), loaded.vision.largest_image(1 << 20).expect("an image"));
        let (image, is_mutual) = (rows.plan.expansion.tokens, loaded.vision.has_mutual_images());
        let log = Arc::clone(&sizes);
        let (mut model, _) = FaultyModel::boxed(&served_model(), move |chunks: &[SequenceChunk<'_>]| {
            let rows = chunks.last().expect("a chunk").logit_rows().len();
            let with_image = chunks.iter().find_map(|chunk| Some((chunk.tokens.len(), chunk.images.first()?)));
            let shape = with_image.map(|(tokens, image)| (tokens, image.block.len(), rows));
            log.lock().expect("no panic").push(shape);
            None
        });
        let limits = EngineLimits { prefill_chunk: 3, ..LIMITS };
        warm_up(model.as_mut(), Some(&largest), limits, 128).expect("it computes");
        let found = sizes.lock().expect("no panic").pop().expect("a step");
        let (tokens, rows) = if is_mutual { (image.max(3), 32 + image) } else { (3, 32) };
        assert_eq!(found, Some((tokens, image.min(tokens), rows)));
    }
}

#[test]
fn an_image_beside_which_no_memory_is_left_is_refused_with_its_settings() {
    let model = ImageModel::all().into_values().next().expect("a model");
    let WithImages { mut tower, vision, .. } = WithImages::load(&model);
    let calls = AtomicUsize::new(0);
    let measure = || {
        // The image is computed after the first call.
        let free = if calls.fetch_add(1, Ordering::Relaxed) == 0 { GIB } else { 0 };
        Some(vec![GpuMemory { device: "cuda:0".to_owned(), share: 1.0, memory: DeviceMemory { free, total: GIB } }])
    };
    let (model, steps) = logged(usize::MAX);
    let config = Config::new(default_model());
    let error = divide_memory(&config, &mut OnGpu(model), Some((tower.as_mut(), &vision)), &measure)
        .expect_err("it does not fit");
    assert_eq!((error.reason(), steps.lock().expect("no panic").len()), (Reason::MemoryTooSmall, 0));
    assert!(matches!(error, LoadError::Memory(MemoryError::Image { .. })), "{error:?}");
    error_texts::check("load/image-memory", error);
}

// ---- the division ----

/// A model whose memory is that of a GPU.
#[derive(Debug)]
struct OnGpu(Box<dyn Backend>);

impl Backend for OnGpu {
    fn shape(&self) -> ModelShape {
        self.0.shape()
    }

    fn allocate(&mut self, size: CacheSize) -> Result<(), StepError> {
        self.0.allocate(size)
    }

    fn device_parts(&self) -> Vec<DevicePart> {
        vec![DevicePart { gpu: None, layers: 1, block_bytes: self.shape().block_bytes }]
    }

    fn slot(&mut self, sampling: &Sampling) -> Option<Slot> {
        self.0.slot(sampling)
    }

    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), StepError> {
        self.0.launch(chunks, plans)
    }

    fn draw(&mut self, plans: &[RowPlan<'_>]) -> Result<(), StepError> {
        self.0.draw(plans)
    }

    fn finish(&mut self) -> Result<Vec<Drawn>, StepError> {
        self.0.finish()
    }

    fn draw_kept(&mut self, row: KeptRow, plan: &RowPlan<'_>) -> Result<Chosen, StepError> {
        self.0.draw_kept(row, plan)
    }
}

/// Divides the memory of a GPU, of which `before` bytes are free before the first step and `after` after it.
fn divide(kv_memory: Option<u64>, [before, after]: [u64; 2]) -> (Result<u32, LoadError>, usize) {
    let (model, steps) = logged(usize::MAX);
    let config = Config { kv_memory, max_running: 5, prefill_chunk: 40, ..Config::new(default_model()) };
    let measure = || {
        let free = if steps.lock().expect("no panic").is_empty() { before } else { after };
        let memory = DeviceMemory { free, total: GIB };
        Some(vec![GpuMemory { device: "cuda:0".to_owned(), share: 1.0, memory }])
    };
    let blocks = divide_memory(&config, &mut OnGpu(model), None, &measure).map(|size| size.blocks);
    let count = steps.lock().expect("no panic").len();
    (blocks, count)
}

/// A block has 64 bytes. Five outputs of 1,024 positions have 320 blocks.
#[test]
fn the_kv_cache_is_what_a_step_leaves() {
    let (blocks, steps) = divide(None, [1 << 20, 6400]);
    assert_eq!((blocks.expect("it fits"), steps), (100, 2));
    assert_eq!(divide(None, [1 << 20, 1 << 19]).0.expect("it fits"), 320);
    let (error, _) = divide(None, [1 << 20, 640]);
    assert!(matches!(error, Err(LoadError::Memory(MemoryError::Kv { bytes: 640, least: 1024 }))), "{error:?}");
}

#[test]
fn a_configured_kv_cache_must_fit_beside_a_step() {
    let (blocks, steps) = divide(Some(6400), [1 << 20, 6400]);
    assert_eq!((blocks.expect("it fits"), steps), (100, 2), "the steps are computed all the same");
    let (blocks, _) = divide(Some(1 << 40), [1 << 20, 320 * 64]);
    assert_eq!(blocks.expect("it fits"), 320, "the size for outputs at full length");
    let (error, _) = divide(Some(6400), [1 << 20, 6399]);
    assert!(
        matches!(error, Err(LoadError::Memory(MemoryError::GpuKv { needed: 6400, available: 6399, .. }))),
        "{error:?}"
    );
}
