//! The operations of libtorch that the path of a GPU asks for and the CPU's does not. Each test
//! re-executes itself and counts in the child process.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use tandem_core::cache::{BlockId, CacheSize};
use tandem_core::media::read_processor;
use tandem_core::models::{self, Backend, LogitsFor, SequenceChunk};
use tandem_images::{Limits, PreparedCache};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests_full::backend::BackendChoice;
use tandem_tests_full::flash::EXACT;
use tandem_tests_full::image_model::{ImageModel, bitmap};
use tandem_tests_full::operations::Operations;
use tandem_torch::{FLASH_BLOCK, FlashCall, FlashOperation, TorchTarget, TorchTower, WeightBits};
use tch::{Kind, TchError, Tensor};

use super::operations::{case, counter};
use super::{Setup, TORCH, load};

/// The variable that asks the other process for a number.
const NUMBER: &str = "TANDEM_TEST_NUMBER";

/// Runs the test of this name in another process with each number, and counts.
fn counted<const N: usize>(test: &str, numbers: [usize; N]) -> [Vec<Operations>; N] {
    let counter = counter();
    numbers.map(|number| {
        let mut command = Command::new(env::current_exe().expect("this program"));
        let name = format!("torch::architectures::launches::{test}");
        command.args([name.as_str(), "--exact"]).env(NUMBER, number.to_string());
        counter.count(&mut command).unwrap_or_else(|error| panic!("{test}, {number}: {error:#}"))
    })
}

/// Returns the number, in the other process.
fn number() -> Option<usize> {
    env::var(NUMBER).ok().map(|number| number.parse().expect("a number"))
}

/// Returns what `one` has more of than `other`.
fn difference(one: &Operations, other: &Operations) -> BTreeMap<String, i64> {
    let count = |operations: &Operations, name: &str| operations.get(name).copied().map_or(0, i64::from);
    let all = one.keys().chain(other.keys()).map(|name| (name.clone(), count(one, name) - count(other, name)));
    all.filter(|(_, difference)| *difference != 0).collect()
}

// ---- flash attention ----

/// True once only the number of calls matters.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Computes nothing while calls are counted, so that the emulation's own do not count. Its one call counts as
/// that of the operation.
fn call(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    if !COUNTS.load(Ordering::Relaxed) {
        return (EXACT.call)(call);
    }
    Tensor::f_zeros([call.query.size()[1], call.query.size()[0]], (Kind::Float, call.query.device()))
}

/// A model, as a number for the other process.
struct Decode {
    name: &'static str,
    sequences: usize,
    layers: usize,
}

impl Decode {
    const NAMES: [&str; 2] = ["qwen3", "llama"];

    fn number(&self) -> usize {
        let name = Self::NAMES.iter().position(|name| *name == self.name).expect("a name");
        (name * 100 + self.sequences) * 100 + self.layers
    }

    fn of(number: usize) -> Self {
        Self { name: Self::NAMES[number / 10_000], sequences: number / 100 % 100, layers: number % 100 }
    }
}

/// Computes a token of each sequence, with 100 and with 2,000 positions.
fn decode(Decode { name, sequences, layers }: Decode) {
    let case = case(name);
    let mut config = case.config.clone();
    config["num_hidden_layers"] = layers.into();
    config.as_object_mut().expect("an object").remove("layer_types");
    let folder = case.whole(&config, "F32");
    let mut model = load(folder.path(), Setup { flash: Some(FlashOperation { call, ..EXACT }), ..TORCH });
    assert_eq!(model.shape().block, FLASH_BLOCK, "flash attention is used");
    COUNTS.store(true, Ordering::Relaxed);
    let blocks = allocated(model.as_mut(), sequences, 8);
    for past in [100, 2000] {
        step(model.as_mut(), &blocks, past);
    }
}

/// Allocates as many blocks for each sequence. Returns those of each.
fn allocated(model: &mut dyn Backend, sequences: usize, each: u32) -> Vec<Vec<BlockId>> {
    let count = sequences as u32;
    model.allocate(CacheSize::of_blocks(each * count)).expect("memory");
    (0..count).map(|i| (each * i..each * (i + 1)).map(BlockId).collect()).collect()
}

/// Computes a token of each sequence after `past` others.
fn step(model: &mut dyn Backend, blocks: &[Vec<BlockId>], past: usize) {
    let chunk = |blocks| SequenceChunk {
        tokens: &[1],
        chosen: None,
        drafted: 0,
        past,
        is_long: false,
        blocks,
        copy: None,
        states: None,
        logits: LogitsFor::Last,
        images: &[],
        positions: None,
    };
    let chunks: Vec<_> = blocks.iter().map(|blocks| chunk(blocks)).collect();
    models::logits(model, &chunks).expect("it computes");
}

/// The layers of the 1.7-billion model whose launch floor `gen-svc/GPU.md` states have these operations.
#[test]
fn a_layer_with_flash_attention_asks_for_21_operations_and_for_30_with_pieces() {
    if let Some(number) = number() {
        return decode(Decode::of(number));
    }
    let all = layers("qwen3");
    let test = "a_layer_with_flash_attention_asks_for_21_operations_and_for_30_with_pieces";
    let [more, fewer] = [all, all - 1].map(|layers| Decode { name: "qwen3", sequences: 8, layers }.number());
    let [more, fewer] = counted(test, [more, fewer]);
    let [short, long] = [1, 2].map(|step| difference(&more[step], &fewer[step]));
    let expected = [
        ("aten::add", 2),
        ("aten::addcmul_", 2),
        ("aten::empty_like", 1),
        ("aten::index_copy_", 2),
        ("aten::linear", 4),
        ("aten::mul", 3),
        ("aten::rms_norm", 3),
        ("aten::silu", 1),
        ("aten::zeros", 1), // in place of flash attention
        ("copy", 2),
    ];
    assert_eq!(short, expected.map(|(name, count)| (name.to_owned(), count)).into());
    let pieces = [
        ("aten::add", 1),
        ("aten::index_select", 3),
        ("aten::mul", 1),
        ("aten::softmax", 1),
        ("aten::sum", 1),
        ("aten::to", 1),
        ("copy", 1),
    ];
    let sum = |operations: &BTreeMap<String, i64>| operations.values().sum::<i64>();
    assert_eq!([sum(&short), sum(&long)], [21, 30], "{long:?}");
    for (name, count) in pieces {
        assert_eq!(long[name] - short.get(name).copied().unwrap_or(0), count, "{name}");
    }
}

fn layers(name: &str) -> usize {
    case(name).config["num_hidden_layers"].as_u64().expect("a number") as usize
}

#[test]
fn flash_attention_asks_for_the_same_operations_for_2_sequences_and_for_64() {
    if let Some(number) = number() {
        return decode(Decode::of(number));
    }
    let test = "flash_attention_asks_for_the_same_operations_for_2_sequences_and_for_64";
    for name in Decode::NAMES {
        let all = layers(name);
        let numbers = [(1, all), (2, all), (64, all), (64, all - 1)];
        let numbers = numbers.map(|(sequences, layers)| Decode { name, sequences, layers }.number());
        let [one, two, many, fewer] = counted(test, numbers);
        // A step with short sequences, and one with long ones.
        for step in [1, 2] {
            assert_eq!(difference(&two[step], &many[step]), BTreeMap::new(), "{name}, step {step}");
            // The heads of one token are packed as they are.
            let copies = difference(&many[step], &one[step]);
            assert!(copies.keys().all(|operation| operation == "copy"), "{name}, step {step}: {copies:?}");
        }
        if name == "llama" {
            let calls = [1, 2].map(|step| difference(&many[step], &fewer[step]).values().sum::<i64>());
            assert_eq!(calls, [19, 28]);
        }
    }
}

// ---- experts ----

/// The dtypes and bits of experts.
const EXPERTS: [WeightBits; 3] = [WeightBits::Full, WeightBits::Int8, WeightBits::Int4];
/// Sequences whose rows are fewer than the experts of the model, and sequences of more rows.
const SEQUENCES: [usize; 2] = [1, 7];

/// Computes steps of a model whose experts have separate products.
fn compute_experts(layers: usize) {
    let case = case("qwen3_moe");
    let mut config = case.config.clone();
    config["num_hidden_layers"] = layers.into();
    let folder = case.whole(&config, "F32");
    let models = EXPERTS.map(|bits| {
        let target = TorchTarget { bits, separate_experts: true, ..TorchTarget::REFERENCE };
        let mut model = load(folder.path(), Setup { backend: BackendChoice::Torch(target), ..TORCH });
        let blocks = allocated(model.as_mut(), SEQUENCES[1], 1);
        (model, blocks)
    });
    for (mut model, blocks) in models {
        SEQUENCES.into_iter().for_each(|sequences| step(model.as_mut(), &blocks[..sequences], 5));
    }
}

/// Two products of a layer share one read. Packed experts of few rows are unpacked for these rows, without any.
#[test]
fn separate_experts_are_read_once_per_layer() {
    if let Some(layers) = number() {
        return compute_experts(layers);
    }
    let all = layers("qwen3_moe");
    let [more, fewer] = counted("separate_experts_are_read_once_per_layer", [all, all - 1]);
    let steps = EXPERTS.into_iter().flat_map(|bits| SEQUENCES.map(|sequences| (bits, sequences)));
    for (at, (bits, sequences)) in steps.enumerate() {
        let layer = difference(&more[at + 1], &fewer[at + 1]);
        let is_read = bits == WeightBits::Full || sequences > 1;
        let count = |name: &str| layer.get(name).copied().unwrap_or(0);
        assert_eq!(count("download"), i64::from(is_read), "{bits:?}, {sequences} sequences: {layer:?}");
        // Each expert with rows has a product, and their number depends on the rows.
        let products = more[at + 1].get("aten::mm").copied().unwrap_or(0);
        assert_eq!(products > 0, is_read, "{bits:?}, {sequences} sequences: {products} products");
        assert_eq!(count("aten::_grouped_mm"), 0, "{bits:?}, {sequences} sequences: {layer:?}");
    }
}

// ---- images ----

/// Computes the features of the same image some times with each tower.
fn compute_images(count: usize) {
    for model in ImageModel::all().values() {
        let folder = model.folder();
        let processor = read_processor(folder.path()).expect("a processor");
        let image = PreparedCache::new(0).prepare(&processor, &bitmap(120, 70, 5), &Limits::default());
        let image = image.expect("prepared").0;
        let artifacts = Artifacts::load(folder.path()).expect("artifacts");
        let file = models::open(&artifacts).expect("weights");
        let tower = TorchTower::open(&file, TorchTarget::REFERENCE).expect("it loads").expect("a tower");
        for _ in 0..count {
            let mut run = tower.start(&image).expect("it starts");
            while run.advance(&tower).expect("it computes").is_none() {}
        }
    }
}

/// An image of tiles, and others with tables, windows or angles of positions.
#[test]
fn an_image_has_one_upload() {
    if let Some(count) = number() {
        return compute_images(count);
    }
    let [two, one] = counted("an_image_has_one_upload", [2, 1]);
    let uploads = |steps: &[Operations]| steps.iter().filter_map(|step| step.get("upload")).sum::<u32>();
    assert_eq!(uploads(&two) - uploads(&one), ImageModel::all().len() as u32);
}
