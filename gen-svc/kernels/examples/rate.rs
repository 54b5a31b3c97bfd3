//! Measures the kernels: bytes of weights and products per second. For comparison, it measures the
//! rate of a memory read.
//!
//! `cargo run --release -p tandem-kernels --example rate` on an idle machine.
//! TANDEM_CPU_LEVEL=portable|avx2|avx512|amx selects one level. Each round measures every row once.
//! Each row prints its fastest round, because other load can only slow a round down.

#![allow(clippy::print_stdout)] // prints its measurements

use std::hint::black_box;
use std::time::Instant;

use tandem_kernels::{
    Attention, BlockFormat, Epilogue, Format, Input, Int8Rows, IsaLevel, Kernels, KeysValues, KvFormat, KvRun, KvShape,
    KvStore, Linear, Matrix, POSITIONS, Product, Projection, Rows, Scratch, Target,
};

const ROUNDS: usize = 7;
/// Rows and columns of two matrices. The large matrix exceeds every cache and is multiplied by one
/// token. The small matrix fits into the caches and is multiplied by many tokens.
const LARGE: [usize; 2] = [16_384, 4_096];
const SMALL: [usize; 2] = [1_536, 576];

/// A call to measure, with the bytes that it reads and the products that it computes.
struct Row {
    name: String,
    bytes: usize,
    products: usize,
    call: Box<dyn FnMut()>,
    /// Seconds of the fastest call.
    best: f64,
}

impl Row {
    fn new(name: String, bytes: usize, products: usize, call: impl FnMut() + 'static) -> Self {
        Self { name, bytes, products, call: Box::new(call), best: f64::INFINITY }
    }

    fn time(&mut self) {
        let start = Instant::now();
        (self.call)();
        self.best = self.best.min(start.elapsed().as_secs_f64());
    }

    fn print(&self) {
        let rate = |count: usize| count as f64 / self.best / 1e9;
        println!("{:<34}{:>10.1}{:>10.1}{:>12.1}", self.name, rate(self.bytes), rate(self.products), self.best * 1e6);
    }
}

fn main() {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let one =
        std::env::var("TANDEM_CPU_LEVEL").ok().map(|name| IsaLevel::named(&name).expect("a level of this processor"));
    println!("{threads} threads, load average {}", load());
    println!("{:<34}{:>10}{:>10}{:>12}", "", "GB/s", "GMAC/s", "µs");
    run(vec![read(threads)]);
    for level in one.map_or_else(IsaLevel::available, |level| vec![level]) {
        let kernels: &'static Kernels = Box::leak(Box::new(Kernels::new(threads, level)));
        for (name, format, target) in FORMATS {
            let mut rows = vec![read(threads)];
            rows.push(product(kernels, name, format, target, LARGE, 1));
            rows.extend([1, 8, 64, 512].map(|tokens| product(kernels, name, format, target, SMALL, tokens)));
            run(rows);
        }
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Bf16] {
            run(vec![read(threads), attention(kernels, format, 8, 1), attention(kernels, format, 1, 512)]);
        }
    }
    println!("load average {}", load());
}

/// The measured formats, with their source and target.
const FORMATS: [(&str, Format, Target); 9] = [
    ("f32", Format::F32, Target::Keep),
    ("bf16", Format::F32, Target::Bf16),
    ("q4_0", Format::Block(BlockFormat::Q4_0), Target::Keep),
    ("q4_1", Format::Block(BlockFormat::Q4_1), Target::Keep),
    ("q4_k", Format::Block(BlockFormat::Q4_K), Target::Keep),
    ("q5_1", Format::Block(BlockFormat::Q5_1), Target::Keep),
    ("q5_k", Format::Block(BlockFormat::Q5_K), Target::Keep),
    ("q6_k", Format::Block(BlockFormat::Q6_K), Target::Keep),
    ("q8_0", Format::Block(BlockFormat::Q8_0), Target::Keep),
];

fn run(mut rows: Vec<Row>) {
    for _ in 0..ROUNDS {
        rows.iter_mut().for_each(Row::time);
    }
    rows.iter().for_each(Row::print);
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_else(|_| "unknown".to_owned()).trim().to_owned()
}

/// Reads 256 MiB on all threads.
fn read(threads: usize) -> Row {
    let data = vec![1_u64; 32 << 20];
    Row::new("read memory".to_owned(), 8 * data.len(), 0, move || {
        std::thread::scope(|scope| {
            for part in data.chunks(data.len() / threads) {
                scope.spawn(|| black_box(part.iter().sum::<u64>()));
            }
        });
    })
}

/// Multiplies a matrix by tokens. Columns are rounded up to the block length of the format.
fn product(
    kernels: &'static Kernels,
    name: &str,
    format: Format,
    target: Target,
    size: [usize; 2],
    tokens: usize,
) -> Row {
    let [rows, columns] = [size[0], size[1].next_multiple_of(if name.ends_with("_k") { 256 } else { 32 })];
    let matrix = matrix(kernels, format, target, rows, columns);
    let x = vec![0.5; tokens * columns];
    let (mut integers, mut out) = (Int8Rows::default(), vec![0.0; tokens * rows]);
    let name = format!("{} {name} {rows}x{columns} x{tokens}", kernels.level().name());
    Row::new(name, matrix.bytes(), tokens * rows * columns, move || {
        kernels.quantize(&x, columns, &mut integers).expect("whole blocks");
        let input = Input { floats: &x, columns, integers: Some(&integers) };
        let projection = Projection::Linear(Linear { matrix: &matrix, bias: None });
        kernels
            .multiply(input, &mut [Product { projection, epilogue: Epilogue::Store, out: &mut out }])
            .expect("right shapes");
    })
}

/// Attends with the last tokens of some sequences over a context of 1,024, with 9 query heads and 3
/// key heads of 64.
///
/// The bytes of keys and values, and the products at visible positions are counted.
fn attention(kernels: &'static Kernels, format: KvFormat, sequences: usize, length: usize) -> Row {
    let (context, heads, kv_heads, head_dim) = (1_024, 9, 3, 64);
    let per_sequence = context / POSITIONS;
    let shape = KvShape { layers: 1, blocks: sequences * per_sequence, heads: kv_heads, head_dim, format };
    let mut store = KvStore::new(shape).expect("memory");
    let blocks: Vec<u32> = (0..shape.blocks as u32).collect();
    // Memory that was never written is one page of zeros, in the cache.
    let written = vec![0.5; sequences * context * kv_heads * head_dim];
    let runs: Vec<KvRun<'_>> =
        blocks.chunks(per_sequence).map(|blocks| KvRun { past: 0, length: context, blocks }).collect();
    kernels.write(&mut store, &runs, KeysValues { layer: 0, keys: &written, values: &written }).expect("right shapes");
    let queries = vec![0.5; sequences * length * heads * head_dim];
    let (mut scratch, mut out) = (Scratch::default(), vec![0.0; queries.len()]);
    let bytes = shape.blocks * shape.block_bytes().expect("a small shape");
    let products = 2 * queries.len() * (context - length / 2);
    let name = format!("{} attention {format:?} {sequences}x{length}", kernels.level().name());
    Row::new(name, bytes, products, move || {
        let runs: Vec<KvRun<'_>> =
            blocks.chunks(per_sequence).map(|blocks| KvRun { past: context - length, length, blocks }).collect();
        let (scale, queries) = (0.125, &queries);
        let call = Attention { layer: 0, heads, scale, soft_cap: None, window: None, ends: None, runs: &runs, queries };
        kernels.attend(&store, &call, &mut scratch, &mut out).expect("right shapes");
    })
}

fn matrix(kernels: &Kernels, format: Format, target: Target, rows: usize, columns: usize) -> Matrix {
    let row_bytes = format.row_bytes(columns).expect("whole blocks");
    let bytes: Vec<u8> = (0..rows * row_bytes).map(|i| (i % 61) as u8).collect();
    kernels.pack(&Rows { format, columns, bytes: &bytes }, target).expect("whole rows")
}
