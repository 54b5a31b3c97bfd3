//! The measured decoder: an example of combining the kernels, with synthetic weights.
//!
//! The sizes are those of the default model, SmolLM2-135M.

use tandem_kernels::{
    Activation, Angles, Attention, Epilogue, Error, Format, Heads, Input, Int8Rows, IsaLevel, Kernels, KeysValues,
    KvFormat, KvRun, KvShape, KvStore, Linear, Matrix, Norm, Product, Projection, Rows, Scratch, Target, vocab,
};

const LAYERS: usize = 30;
const WIDTH: usize = 576;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD: usize = 64;
const MIDDLE: usize = 1_536;
const WORDS: usize = 49_152;
/// The maximum number of positions of a sequence.
pub(super) const CONTEXT: usize = 4_096;

struct Weights {
    norms: [Vec<f32>; 2],
    qkv: [Matrix; 3],
    o: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

pub(super) struct Decoder {
    pub(super) kernels: Kernels,
    layers: Vec<Weights>,
    embedding: Matrix,
    store: KvStore,
    angles: Angles,
    integers: Int8Rows,
    scratch: Scratch,
}

impl Decoder {
    /// Creates a decoder whose weights have this format, with a KV cache of this many blocks. Its kernels are measured.
    pub(super) fn new(target: Target, level: IsaLevel, threads: usize, blocks: usize) -> Result<Self, Error> {
        let mut kernels = Kernels::new(threads, level);
        kernels.start_clock();
        let head = if target == Target::Int4 { Target::Int8 } else { target };
        let format = match target {
            Target::F32 => KvFormat::F32,
            Target::Bf16 => KvFormat::Bf16,
            _ => KvFormat::F16,
        };
        let shape = KvShape { layers: LAYERS, blocks, heads: KV_HEADS, head_dim: HEAD, format };
        Ok(Self {
            layers: (0..LAYERS).map(|_| Weights::new(&kernels, target)).collect::<Result<_, _>>()?,
            embedding: matrix(&kernels, WORDS, WIDTH, head)?,
            store: KvStore::new(shape)?,
            kernels,
            angles: Angles::default(),
            integers: Int8Rows::default(),
            scratch: Scratch::default(),
        })
    }

    /// Returns the bytes of all matrices, which a step reads.
    pub(super) fn bytes(&self) -> usize {
        let matrices = |weights: &Weights| {
            let Weights { qkv, o, gate, up, down, .. } = weights;
            qkv.iter().chain([o, gate, up, down]).map(Matrix::bytes).sum::<usize>()
        };
        self.layers.iter().map(matrices).sum::<usize>() + self.embedding.bytes()
    }

    /// Returns the products of a step: of matrices, and of attention.
    pub(super) fn products(runs: &[KvRun<'_>]) -> [usize; 2] {
        let tokens: usize = runs.iter().map(|run| run.length).sum();
        let layer = WIDTH * HEAD * (2 * HEADS + 2 * KV_HEADS) + 3 * WIDTH * MIDDLE;
        let visible = |run: &KvRun<'_>| run.length * run.past + run.length * (run.length + 1) / 2;
        let attention = 2 * HEADS * HEAD * runs.iter().map(visible).sum::<usize>();
        [tokens * LAYERS * layer + runs.len() * WORDS * WIDTH, LAYERS * attention]
    }

    /// Returns the most likely token after each run.
    pub(super) fn step(&mut self, ids: &[u32], runs: &[KvRun<'_>]) -> Result<Vec<usize>, Error> {
        let frequencies: Vec<f32> = (0..HEAD / 2).map(|i| 1e5_f32.powf(-2.0 * i as f32 / HEAD as f32)).collect();
        self.angles.fill(&frequencies, 1.0, runs.iter().flat_map(|run| run.past..run.past + run.length));
        let mut x = vec![0.0; ids.len() * WIDTH];
        self.kernels.embed(&self.embedding, ids, 1.0, &mut x)?;
        for layer in 0..LAYERS {
            self.attend(layer, runs, &mut x)?;
            self.feed_forward(layer, &mut x)?;
        }
        self.best_words(runs, &x)
    }

    fn attend(&mut self, layer: usize, runs: &[KvRun<'_>], x: &mut [f32]) -> Result<(), Error> {
        let (kernels, weights, tokens) = (&self.kernels, &self.layers[layer], x.len() / WIDTH);
        let mut normal = vec![0.0; x.len()];
        kernels.norm(x, norm(&weights.norms[0]), &mut normal)?;
        kernels.quantize(&normal, WIDTH, &mut self.integers)?;
        let mut queries = vec![0.0; tokens * HEADS * HEAD];
        let [mut keys, mut values] = [0, 1].map(|_| vec![0.0; tokens * KV_HEADS * HEAD]);
        let outs = [&mut queries, &mut keys, &mut values];
        let product = |(matrix, out)| Product { projection: linear(matrix), epilogue: Epilogue::Store, out };
        let mut products: Vec<Product<'_>> =
            weights.qkv.iter().zip(outs.map(|out| out.as_mut_slice())).map(product).collect();
        kernels.multiply(Input { floats: &normal, columns: WIDTH, integers: Some(&self.integers) }, &mut products)?;
        let heads = Heads { head_dim: HEAD, norm: None, angles: Some(&self.angles) };
        kernels.rotate(&mut queries, tokens, heads)?;
        kernels.rotate(&mut keys, tokens, heads)?;
        kernels.write(&mut self.store, runs, KeysValues { layer, keys: &keys, values: &values })?;
        let attention = Attention {
            layer,
            heads: HEADS,
            scale: 0.125,
            soft_cap: None,
            window: None,
            ends: None,
            runs,
            queries: &queries,
        };
        kernels.attend(&self.store, &attention, &mut self.scratch, &mut normal)?;
        add(kernels, &normal, &weights.o, &mut self.integers, x)
    }

    fn feed_forward(&mut self, layer: usize, x: &mut [f32]) -> Result<(), Error> {
        let (kernels, weights, tokens) = (&self.kernels, &self.layers[layer], x.len() / WIDTH);
        let mut normal = vec![0.0; x.len()];
        kernels.norm(x, norm(&weights.norms[1]), &mut normal)?;
        kernels.quantize(&normal, WIDTH, &mut self.integers)?;
        let mut middle = vec![0.0; tokens * MIDDLE];
        let [gate, up] = [&weights.gate, &weights.up].map(|matrix| Linear { matrix, bias: None });
        let projection = Projection::Gated { gate, up, activation: Activation::Silu };
        let product = Product { projection, epilogue: Epilogue::Store, out: &mut middle };
        kernels.multiply(Input { floats: &normal, columns: WIDTH, integers: Some(&self.integers) }, &mut [product])?;
        add(kernels, &middle, &weights.down, &mut self.integers, x)
    }

    fn best_words(&mut self, runs: &[KvRun<'_>], x: &[f32]) -> Result<Vec<usize>, Error> {
        let (kernels, mut rows, mut end) = (&self.kernels, Vec::new(), 0);
        for run in runs {
            end += run.length;
            rows.extend_from_slice(&x[(end - 1) * WIDTH..end * WIDTH]);
        }
        let (mut normal, mut logits) = (vec![0.0; rows.len()], vec![0.0; runs.len() * WORDS]);
        kernels.norm(&rows, norm(&self.layers[0].norms[0]), &mut normal)?;
        kernels.quantize(&normal, WIDTH, &mut self.integers)?;
        let product = Product { projection: linear(&self.embedding), epilogue: Epilogue::Store, out: &mut logits };
        kernels.multiply(Input { floats: &normal, columns: WIDTH, integers: Some(&self.integers) }, &mut [product])?;
        Ok(logits.chunks_exact(WORDS).map(|row| vocab::argmax(kernels.level(), row)).collect())
    }
}

impl Weights {
    fn new(kernels: &Kernels, target: Target) -> Result<Self, Error> {
        let new = |rows, columns| matrix(kernels, rows, columns, target);
        Ok(Self {
            norms: [vec![1.0; WIDTH], vec![1.0; WIDTH]],
            qkv: [new(HEADS * HEAD, WIDTH)?, new(KV_HEADS * HEAD, WIDTH)?, new(KV_HEADS * HEAD, WIDTH)?],
            o: new(WIDTH, HEADS * HEAD)?,
            gate: new(MIDDLE, WIDTH)?,
            up: new(MIDDLE, WIDTH)?,
            down: new(WIDTH, MIDDLE)?,
        })
    }
}

/// Packs a matrix of small, different numbers.
fn matrix(kernels: &Kernels, rows: usize, columns: usize, target: Target) -> Result<Matrix, Error> {
    let value = |i: usize| ((i.wrapping_mul(0x9e37_79b9) >> 8) % 201) as f32 / 2_000.0 - 0.05;
    let bytes: Vec<u8> = (0..rows * columns).flat_map(|i| value(i).to_le_bytes()).collect();
    kernels.pack(&Rows { format: Format::F32, columns, bytes: &bytes }, target)
}

fn linear(matrix: &Matrix) -> Projection<'_> {
    Projection::Linear(Linear { matrix, bias: None })
}

fn norm(weight: &[f32]) -> Norm<'_> {
    Norm { weight, epsilon: 1e-5, offset: 0.0 }
}

/// Adds the product of `rows` to the residual stream.
fn add(kernels: &Kernels, rows: &[f32], matrix: &Matrix, integers: &mut Int8Rows, x: &mut [f32]) -> Result<(), Error> {
    kernels.quantize(rows, matrix.columns(), integers)?;
    let product = Product { projection: linear(matrix), epilogue: Epilogue::Add { scale: 1.0 }, out: x };
    kernels.multiply(Input { floats: rows, columns: matrix.columns(), integers: Some(integers) }, &mut [product])
}
