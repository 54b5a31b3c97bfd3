//! Matrix products.

use super::blocks::{BLOCKS, float_matrix, random_matrix, random_rows, values};
use super::{KERNELS, Random, bits, check_close};
use tandem_kernels::{
    Activation, BlockFormat, Epilogue, Error, Format, Input, Int8Rows, Kernels, Linear, Matrix, Product, Projection,
    Target,
};
use tandem_tests::error_texts;

/// Multiplies `x` by one matrix.
fn multiply(kernels: &Kernels, x: &[f32], matrix: &Matrix) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / matrix.columns() * matrix.rows()];
    let projection = Projection::Linear(Linear { matrix, bias: None });
    multiply_projection(kernels, x, matrix.columns(), projection, Epilogue::Store, &mut out);
    out
}

fn multiply_projection(
    kernels: &Kernels,
    x: &[f32],
    columns: usize,
    projection: Projection<'_>,
    epilogue: Epilogue<'_>,
    out: &mut [f32],
) {
    let mut integers = Int8Rows::default();
    if columns.is_multiple_of(32) {
        kernels.quantize(x, columns, &mut integers).expect("whole blocks");
    }
    let input = Input { floats: x, columns, integers: columns.is_multiple_of(32).then_some(&integers) };
    kernels.multiply(input, &mut [Product { projection, epilogue, out }]).expect("shapes are right");
}

/// Returns the values of quantized input: per 32 numbers the unit is the largest magnitude over
/// 127.
fn as_quantized(x: &[f32]) -> Vec<f64> {
    let mut values = Vec::new();
    for block in x.chunks_exact(32) {
        let greatest = block.iter().fold(0.0_f32, |greatest, value| greatest.max(value.abs()));
        let (scale, inverse) = (greatest / 127.0, 127.0 / greatest);
        let value = |x: &f32| if greatest == 0.0 { 0.0 } else { f64::from((x * inverse).round_ties_even() * scale) };
        values.extend(block.iter().map(value));
    }
    values
}

/// Returns a finite number rounded to bf16: to nearest, ties to even.
fn as_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Returns every product's sum, and the sum of its terms' magnitudes: [tokens][rows].
fn reference(x: &[f64], weights: &[f32], columns: usize) -> (Vec<f64>, Vec<f64>) {
    let pairs = x.chunks_exact(columns).flat_map(|x| weights.chunks_exact(columns).map(move |row| (x, row)));
    pairs
        .map(|(x, row)| {
            let terms = x.iter().zip(row).map(|(x, weight)| x * f64::from(*weight));
            terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
        })
        .unzip()
}

#[track_caller]
fn check_floats(target: Target, tokens: usize, rows: usize, columns: usize) {
    let mut random = Random((tokens * 31 + rows * 7 + columns) as u64);
    let (x, weights) = (random.floats(tokens * columns), random.floats(rows * columns));
    let matrix = float_matrix(&KERNELS[0], &weights, columns, target);
    let x64: Vec<f64> = x.iter().map(|x| f64::from(if target == Target::Bf16 { as_bf16(*x) } else { *x })).collect();
    let (expected, magnitudes) = reference(&x64, &values(&matrix), columns);
    let found: Vec<Vec<f32>> = KERNELS.iter().map(|kernels| multiply(kernels, &x, &matrix)).collect();
    for found in &found {
        check_close(found, &expected, &format!("{target:?} {tokens} x {rows} x {columns}"), |i| {
            magnitudes[i] * 1e-6 + 1e-12
        });
        assert_eq!(bits(found), bits(&multiply(&KERNELS[0], &x, &matrix)), "ISA levels differ");
    }
}

#[test]
fn float_matmul_matches_the_reference() {
    for target in [Target::Keep, Target::Bf16] {
        let sizes = [(1, 1, 1), (1, 40, 33), (2, 9, 64), (5, 17, 7), (7, 64, 31), (13, 100, 65), (40, 24, 66)];
        for (tokens, rows, columns) in sizes {
            check_floats(target, tokens, rows, columns);
        }
    }
}

#[test]
fn f16_matmul_matches_the_reference() {
    let numbers: Vec<u16> = (0..24 * 40).map(|i| 0x3000 + i * 7).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let rows = tandem_kernels::Rows { format: Format::F16, columns: 40, bytes: &bytes };
    let matrix = KERNELS[0].pack(&rows, Target::Keep).expect("whole rows");
    let x = Random(1).floats(3 * 40);
    let (expected, magnitudes) = reference(&x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), &values(&matrix), 40);
    for kernels in KERNELS.iter() {
        check_close(&multiply(kernels, &x, &matrix), &expected, "f16", |i| magnitudes[i] * 1e-6);
    }
}

#[test]
fn quantized_matmul_matches_the_reference() {
    for (format, length, ..) in BLOCKS {
        let wide = 896_usize.next_multiple_of(length);
        for (tokens, rows, columns) in [(1, 70, 2 * length), (3, 9, 3 * length), (6, 32, length), (37, 24, wide)] {
            let matrix = random_matrix(&KERNELS[0], 3, format, rows, columns);
            let x = Random(4).floats(tokens * columns);
            let (expected, magnitudes) = reference(&as_quantized(&x), &values(&matrix), columns);
            for kernels in KERNELS.iter() {
                let found = multiply(kernels, &x, &matrix);
                let label = format!("{format:?} {tokens} x {rows} x {columns} {}", kernels.level().name());
                check_close(&found, &expected, &label, |i| magnitudes[i] * 2e-6);
                assert_eq!(bits(&found), bits(&multiply(&KERNELS[0], &x, &matrix)), "{label}: ISA levels differ");
            }
        }
    }
}

#[test]
fn quantized_matmul_is_close_to_float_matmul() {
    for (format, length, ..) in BLOCKS {
        let columns = 1024 / length * length;
        let matrix = random_matrix(&KERNELS[0], 5, format, 64, columns);
        let x = Random(6).floats(4 * columns);
        let (exact, _) = reference(&x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), &values(&matrix), columns);
        let found = multiply(&KERNELS[KERNELS.len() - 1], &x, &matrix);
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let error = norm(&mut found.iter().zip(&exact).map(|(found, exact)| f64::from(*found) - exact));
        let share = error / norm(&mut exact.iter().copied());
        assert!(share < 0.01, "{format:?}: {share}");
    }
}

/// Returns a matrix of every format, of sizes that are no multiple of a tile.
fn matrices() -> Vec<Matrix> {
    let blocks = BLOCKS.map(|(format, length, ..)| random_matrix(&KERNELS[0], 7, format, 44, 2 * length));
    let numbers = Random(8).floats(44 * 50);
    let floats = [Target::F32, Target::Bf16].map(|target| float_matrix(&KERNELS[0], &numbers, 50, target));
    blocks.into_iter().chain(floats).collect()
}

#[test]
fn a_tokens_result_does_not_depend_on_other_tokens() {
    for matrix in matrices() {
        let x = Random(9).floats(273 * matrix.columns());
        for kernels in KERNELS.iter() {
            let alone: Vec<f32> =
                x.chunks_exact(matrix.columns()).flat_map(|x| multiply(kernels, x, &matrix)).collect();
            for tokens in [2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 64, 65, 131, 255, 256, 257, 273] {
                let found = multiply(kernels, &x[..tokens * matrix.columns()], &matrix);
                assert_eq!(bits(&found), bits(&alone[..found.len()]), "{:?}, {tokens} tokens", matrix.format());
            }
        }
    }
}

#[test]
fn the_largest_codes_do_not_overflow() {
    for (format, length, size, halves) in BLOCKS {
        for fill in [0xff, 0x80, 0x7f, 0x00] {
            let mut block = vec![fill; size];
            halves.iter().for_each(|half| block[*half..half + 2].copy_from_slice(&[0, 0x3c]));
            let rows = block.repeat(8);
            let rows = tandem_kernels::Rows { format: Format::Block(format), columns: length, bytes: &rows };
            let matrix = KERNELS[0].pack(&rows, Target::Keep).expect("whole rows");
            for sign in [1.0, -1.0] {
                let x = vec![sign; 16 * length];
                let (expected, magnitudes) = reference(&as_quantized(&x), &values(&matrix), length);
                for kernels in KERNELS.iter() {
                    let label = format!("{format:?} of {fill:x}");
                    check_close(&multiply(kernels, &x, &matrix), &expected, &label, |i| magnitudes[i] * 1e-5 + 1e-6);
                }
            }
        }
    }
}

#[test]
fn a_non_finite_input_affects_only_its_token() {
    for matrix in matrices() {
        let columns = matrix.columns();
        let good = Random(10).floats(20 * columns);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = good.clone();
            x[columns + 5] = bad;
            for kernels in KERNELS.iter() {
                let (expected, found) = (multiply(kernels, &good, &matrix), multiply(kernels, &x, &matrix));
                let rows = matrix.rows();
                assert!(found[rows..2 * rows].iter().all(|value| !value.is_finite()), "{:?}", matrix.format());
                assert_eq!(bits(&found[..rows]), bits(&expected[..rows]));
                assert_eq!(bits(&found[2 * rows..]), bits(&expected[2 * rows..]), "{:?}", matrix.format());
            }
        }
    }
}

#[test]
fn a_nan_scale_affects_only_its_row() {
    for (format, length, _, halves) in BLOCKS {
        let mut bytes = random_rows(&mut Random(11), format, 16, length);
        let size = bytes.len() / 16;
        bytes[5 * size + halves[0]..][..2].copy_from_slice(&0x7e00_u16.to_le_bytes());
        let rows = tandem_kernels::Rows { format: Format::Block(format), columns: length, bytes: &bytes };
        let matrix = KERNELS[0].pack(&rows, Target::Keep).expect("whole rows");
        for kernels in KERNELS.iter() {
            let found = multiply(kernels, &Random(12).floats(length), &matrix);
            let bad: Vec<usize> = (0..16).filter(|row| !found[*row].is_finite()).collect();
            assert_eq!(bad, [5], "{format:?}");
        }
    }
}

#[test]
fn the_smallest_and_the_largest_inputs_are_quantized() {
    let matrix = float_matrix(&KERNELS[0], &[1.0; 32 * 8], 32, Target::Int8);
    for magnitude in [0.0, 1e-45, 1e-38, 1e-37, 1e30] {
        for kernels in KERNELS.iter() {
            let found = multiply(kernels, &[magnitude; 32], &matrix);
            let expected = 32.0 * f64::from(magnitude);
            check_close(&found, &[expected; 8], "constant input", |_| expected * 1e-3 + 4e-36);
        }
    }
}

fn linear(matrix: &Matrix) -> Linear<'_> {
    Linear { matrix, bias: None }
}

#[test]
fn several_products_share_one_quantized_input() {
    let (q, k) = (
        random_matrix(&KERNELS[0], 1, BlockFormat::Q4_K, 90, 256),
        random_matrix(&KERNELS[0], 2, BlockFormat::Q6_K, 33, 256),
    );
    let v = float_matrix(&KERNELS[0], &Random(3).floats(12 * 256), 256, Target::Bf16);
    let x = Random(4).floats(5 * 256);
    for kernels in KERNELS.iter() {
        let mut integers = Int8Rows::default();
        kernels.quantize(&x, 256, &mut integers).expect("whole blocks");
        let mut outs = [&q, &k, &v].map(|matrix| vec![0.0; 5 * matrix.rows()]);
        let mut products = Vec::new();
        for (out, matrix) in outs.iter_mut().zip([&q, &k, &v]) {
            products.push(Product { projection: Projection::Linear(linear(matrix)), epilogue: Epilogue::Store, out });
        }
        kernels
            .multiply(Input { floats: &x, columns: 256, integers: Some(&integers) }, &mut products)
            .expect("right shapes");
        for (out, matrix) in outs.iter().zip([&q, &k, &v]) {
            assert_eq!(bits(out), bits(&multiply(kernels, &x, matrix)));
        }
    }
}

#[test]
fn add_epilogue_applies_bias_scale_and_residual() {
    let matrix = float_matrix(&KERNELS[0], &Random(1).floats(13 * 20), 20, Target::Keep);
    let (x, bias, residual) = (Random(2).floats(3 * 20), Random(3).floats(13), Random(4).floats(3 * 13));
    for kernels in KERNELS.iter() {
        let mut out = residual.clone();
        let projection = Projection::Linear(Linear { matrix: &matrix, bias: Some(&bias) });
        multiply_projection(kernels, &x, 20, projection, Epilogue::Add { scale: 0.22 }, &mut out);
        let plain = multiply(kernels, &x, &matrix);
        let expected = (0..39).map(|i| residual[i] + (plain[i] + bias[i % 13]) * 0.22);
        assert_eq!(bits(&out), bits(&expected.collect::<Vec<_>>()));
    }
}

#[test]
fn scatter_epilogue_adds_scaled_rows() {
    let matrix = random_matrix(&KERNELS[0], 1, BlockFormat::Q8_0, 21, 32);
    let x = Random(2).floats(18 * 32);
    let (rows, scales): (Vec<u32>, Vec<f32>) = (0..18).map(|i| (i * 5 % 6, 0.25 * (i % 5) as f32)).unzip();
    for kernels in KERNELS.iter() {
        let mut out = vec![1.0; 6 * 21];
        let projection = Projection::Linear(linear(&matrix));
        multiply_projection(kernels, &x, 32, projection, Epilogue::Scatter { rows: &rows, scales: &scales }, &mut out);
        let mut expected = vec![1.0; 6 * 21];
        for (token, plain) in multiply(kernels, &x, &matrix).chunks_exact(21).enumerate() {
            let row = &mut expected[rows[token] as usize * 21..][..21];
            row.iter_mut().zip(plain).for_each(|(out, plain)| *out += plain * scales[token]);
        }
        assert_eq!(bits(&out), bits(&expected));
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

#[test]
fn gated_layer_multiplies_gate_activation_and_up_projection() {
    let gate = random_matrix(&KERNELS[0], 1, BlockFormat::Q4_1, 50, 64);
    let up = random_matrix(&KERNELS[0], 2, BlockFormat::Q8_0, 50, 64);
    let (x, bias) = (Random(3).floats(70 * 64), Random(4).floats(50));
    for (activation, of) in [(Activation::Silu, silu as fn(f64) -> f64), (Activation::GeluTanh, gelu_tanh)] {
        for kernels in KERNELS.iter() {
            let mut out = vec![0.0; 70 * 50];
            let gate_layer = Linear { matrix: &gate, bias: Some(&bias) };
            let projection = Projection::Gated { gate: gate_layer, up: linear(&up), activation };
            multiply_projection(kernels, &x, 64, projection, Epilogue::Store, &mut out);
            let (gates, ups) = (multiply(kernels, &x, &gate), multiply(kernels, &x, &up));
            let gates = gates.iter().enumerate().map(|(i, gate)| f64::from(gate + bias[i % 50]));
            let expected: Vec<f64> = gates.zip(&ups).map(|(gate, up)| of(gate) * f64::from(*up)).collect();
            check_close(&out, &expected, "gated", |i| expected[i].abs() * 2e-6 + 1e-7 * f64::from(ups[i].abs()));
        }
    }
}

#[test]
fn mismatched_shapes_are_rejected_before_output_is_written() {
    let kernels = &KERNELS[0];
    let matrix = random_matrix(kernels, 1, BlockFormat::Q4_0, 8, 32);
    let other = random_matrix(kernels, 1, BlockFormat::Q4_0, 16, 32);
    let floats = [0.0; 64];
    let mut integers = Int8Rows::default();
    kernels.quantize(&floats, 32, &mut integers).expect("whole blocks");
    let refused = |length: usize, columns: usize, integers, projection: Projection<'_>, outputs: usize| {
        let mut out = vec![7.0; outputs];
        let input = Input { floats: &floats[..length], columns, integers };
        let error = kernels
            .multiply(input, &mut [Product { projection, epilogue: Epilogue::Store, out: &mut out }])
            .expect_err("the shapes do not fit");
        assert!(out.iter().all(|value| *value == 7.0));
        error
    };
    let projection = Projection::Linear(linear(&matrix));
    assert_eq!(refused(64, 32, None, projection, 16), Error::NotQuantized);
    error_texts::check("kernels/not-quantized", Error::NotQuantized);
    let x = Some(&integers);
    assert_eq!(refused(64, 32, x, projection, 15), Error::Shape { subject: "output", expected: 16, found: 15 });
    assert_eq!(
        refused(32, 32, x, projection, 8),
        Error::Shape { subject: "rows of quantized input", expected: 1, found: 2 }
    );
    assert_eq!(refused(63, 32, x, projection, 8), Error::Multiple { subject: "input", of: 32, found: 63 });
    assert_eq!(
        refused(64, 64, x, projection, 8),
        Error::Shape { subject: "columns of quantized input", expected: 64, found: 32 }
    );
    error_texts::check("kernels/no-columns", refused(64, 0, x, projection, 8));
    error_texts::check("kernels/columns", refused(64, 64, None, projection, 8));
    let biased = Projection::Linear(Linear { matrix: &matrix, bias: Some(&[0.0; 7]) });
    assert_eq!(refused(64, 32, x, biased, 16), Error::Shape { subject: "bias", expected: 8, found: 7 });
    let gated = Projection::Gated { gate: linear(&matrix), up: linear(&other), activation: Activation::Silu };
    error_texts::check("kernels/gate", refused(64, 32, x, gated, 16));
    let scattered = |rows: &[u32], scales: &[f32], outputs: usize| {
        let mut out = vec![7.0; outputs];
        let product = Product { projection, epilogue: Epilogue::Scatter { rows, scales }, out: &mut out };
        let input = Input { floats: &floats, columns: 32, integers: Some(&integers) };
        kernels.multiply(input, &mut [product]).expect_err("the shapes do not fit")
    };
    let errors = [
        scattered(&[0, 1], &[1.0], 16),
        scattered(&[0], &[1.0], 16),
        scattered(&[0, 2], &[1.0; 2], 16),
        scattered(&[0, 1], &[1.0; 2], 17),
    ];
    error_texts::check_rows("kernels/scatter", errors);
}
