//! Models whose matrices libtorch computes in 8 or 4 bits.
//!
//! The weights of these models are numbers that 8 or 4 bits express exactly. Their logits are those of
//! the same weights in f32.

use tandem_core::models::Backend;
use tandem_tests_full::backend::BackendChoice;
use tandem_torch::{TorchTarget, WeightBits};
use tempfile::TempDir;

use super::{Case, KERNELS, Setup, TORCH, load, logits, of_torch, write};

/// The tokens of a call whose products stay packed.
const FEW: usize = 16;
/// The tokens of a call whose rows are fewer than the experts of a model.
const FEWER_THAN_EXPERTS: usize = 2;

fn setup(bits: WeightBits) -> Setup {
    Setup { backend: BackendChoice::Torch(TorchTarget { bits, ..TorchTarget::REFERENCE }), ..TORCH }
}

/// Rounds a row to integers from -127 to 127 times a scale.
fn to_8_bits(row: &mut [f32]) {
    let scale = row.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
    row.iter_mut().for_each(|x| *x = (*x / scale).round() * scale);
}

/// Rounds each 32 numbers to 16 values between the least and the most of them.
fn to_4_bits(row: &mut [f32]) {
    for group in row.chunks_mut(32) {
        let (least, most) = group.iter().fold((f32::MAX, f32::MIN), |(a, b), &x| (a.min(x), b.max(x)));
        let scale = (most - least) / 15.0;
        group.iter_mut().for_each(|x| *x = ((*x - least) / scale).round() * scale + least);
    }
}

/// Makes a folder of a case whose matrices have numbers that these bits express.
fn rounded(case: &Case, bits: WeightBits) -> TempDir {
    let folder = case.folder(&case.config);
    let weights = |name: &str| {
        let mut weights = case.weights(name);
        if let ([rows, columns], false) = (case.tensors[name].as_slice(), name.contains("embed_tokens")) {
            let suits_4_bits = rows % 16 == 0 && columns % 32 == 0 && !name.contains("lm_head");
            let round = if bits == WeightBits::Int4 && suits_4_bits { to_4_bits } else { to_8_bits };
            weights.chunks_mut(*columns).for_each(round);
        }
        weights
    };
    write(folder.path(), "model.safetensors", case.file_of(case.tensors.keys(), "F32", str::to_owned, weights));
    folder
}

fn greatest_difference(one: &[Vec<f32>], other: &[Vec<f32>]) -> f32 {
    let pairs = one.iter().flatten().zip(other.iter().flatten());
    pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

fn first_logits(model: &mut dyn Backend, case: &Case, tokens: usize) -> Vec<Vec<f32>> {
    logits(model, &case.prompts[3][..tokens])
}

#[test]
fn packed_weights_have_the_logits_of_the_numbers_that_they_express() {
    for case in of_torch() {
        for bits in [WeightBits::Int8, WeightBits::Int4] {
            let folder = rounded(case, bits);
            for tokens in [FEWER_THAN_EXPERTS, FEW, case.prompts[3].len()] {
                let expected = first_logits(load(folder.path(), KERNELS).as_mut(), case, tokens);
                let found = first_logits(load(folder.path(), setup(bits)).as_mut(), case, tokens);
                let difference = greatest_difference(&found, &expected);
                assert!(difference < 1e-3, "{}, {bits:?}, {tokens} tokens: {difference}", case.name);
            }
        }
    }
}

#[test]
fn packed_weights_round_other_numbers() {
    for case in of_torch() {
        let folder = case.whole(&case.config, "F32");
        let full = first_logits(load(folder.path(), TORCH).as_mut(), case, FEW);
        let [eight, four] = [WeightBits::Int8, WeightBits::Int4].map(|bits| {
            greatest_difference(&first_logits(load(folder.path(), setup(bits)).as_mut(), case, FEW), &full)
        });
        assert!(1e-4 < eight && eight < four, "{}: 8 bits differ by {eight}, 4 bits by {four}", case.name);
    }
}
