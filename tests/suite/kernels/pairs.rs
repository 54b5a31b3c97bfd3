//! Products with bf16 weights: pairs of columns, as the instruction `vdpbf16ps` adds them.

use super::{KERNELS, Random};
use tandem_kernels::{Epilogue, Format, Input, Linear, Product, Projection, Rows, Target};

fn number(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn flushed(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0_f32.copysign(value) } else { value }
}

/// Adds one product. A result is denormal if it is so when rounded with an unbounded exponent.
fn add_product(sum: f32, weight: f32, x: f32) -> f32 {
    let (weight, x) = (flushed(weight), flushed(x));
    let result = weight.mul_add(x, sum);
    if result.abs() != f32::MIN_POSITIVE {
        return flushed(result);
    }
    // Twice the result is exact where the result may have been rounded up from a denormal number.
    let (weight, x) = if weight.abs() < 1.0 { (2.0 * weight, x) } else { (weight, 2.0 * x) };
    let is_normal = weight.mul_add(x, 2.0 * sum).abs() >= 2.0 * f32::MIN_POSITIVE;
    if is_normal { result } else { 0.0_f32.copysign(result) }
}

/// Returns the sum of a row's products: in each pair of columns, the second comes first.
fn defined(weights: &[f32], x: &[f32]) -> f32 {
    let pairs = weights.chunks(2).zip(x.chunks(2));
    pairs.fold(0.0, |sum, (weights, x)| {
        let second = |pair: &[f32]| pair.get(1).copied().unwrap_or(0.0);
        add_product(add_product(flushed(sum), second(weights), second(x)), weights[0], x[0])
    })
}

/// Returns the bits of a number: about one, with tiny and with huge products, and any.
fn bits(random: &mut Random, kind: usize) -> u16 {
    let any = (random.bits() >> 32) as u32;
    let exponent = [120, 58, 184][kind.min(2)] + (any >> 16) % 14;
    if kind == 3 { any as u16 } else { (any & 0x807f | exponent << 7) as u16 }
}

/// Source of the definition: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS.
#[test]
fn pairs_are_added_as_the_instruction_adds_them() {
    for (kind, (tokens, rows, columns)) in (0..4).flat_map(|kind| {
        [(1, 40, 34), (3, 24, 65), (8, 16, 40), (19, 33, 21), (37, 72, 64)].map(move |sizes| (kind, sizes))
    }) {
        let mut random = Random((kind * 1_000 + tokens) as u64);
        let mut numbers = |count: usize| -> Vec<f32> { (0..count).map(|_| number(bits(&mut random, kind))).collect() };
        let (weights, x) = (numbers(rows * columns), numbers(tokens * columns));
        let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        let source = Rows { format: Format::F32, columns, bytes: &bytes };
        let expected: Vec<f32> = x
            .chunks_exact(columns)
            .flat_map(|x| weights.chunks_exact(columns).map(move |weights| defined(weights, x)))
            .collect();
        for kernels in KERNELS.iter() {
            let matrix = kernels.pack(&source, Target::Bf16).expect("whole rows");
            let mut out = vec![0.0; tokens * rows];
            let projection = Projection::Linear(Linear { matrix: &matrix, bias: None });
            let product = Product { projection, epilogue: Epilogue::Store, out: &mut out };
            kernels.multiply(Input { floats: &x, columns, integers: None }, &mut [product]).expect("shapes are right");
            for (i, (found, expected)) in out.iter().zip(&expected).enumerate() {
                let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                let level = kernels.level().name();
                assert!(is_same, "{level} {kind} {tokens} x {rows} x {columns}: {i} is {found:e}, not {expected:e}");
            }
        }
    }
}
