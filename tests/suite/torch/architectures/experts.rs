//! Models whose experts have separate products, as on GPUs for which libtorch has no kernel for all experts.

use tandem_tests_full::backend::BackendChoice;
use tandem_torch::{TorchTarget, WeightBits};
use tch::Kind;

use super::{Case, Setup, TORCH, load, logits, of_torch};

/// The tokens of a call, of which the first has fewer rows than the model has experts, and some experts have no
/// rows.
const TOKENS: [usize; 4] = [1, 3, 16, 50];

fn mixtures() -> impl Iterator<Item = &'static Case> {
    of_torch().filter(|case| case.tensors.keys().any(|name| name.contains("experts")))
}

#[test]
fn separate_products_have_the_logits_of_grouped_ones() {
    assert!(mixtures().count() > 0, "the test needs mixtures");
    for case in mixtures() {
        let folder = case.whole(&case.config, "F32");
        for bits in [WeightBits::Full, WeightBits::Int8, WeightBits::Int4] {
            for (dtype, batch_invariant) in [(Kind::Float, false), (Kind::Float, true), (Kind::BFloat16, false)] {
                let [mut grouped, mut separate] = [false, true].map(|separate_experts| {
                    let target =
                        TorchTarget { dtype, bits, batch_invariant, separate_experts, ..TorchTarget::REFERENCE };
                    load(folder.path(), Setup { backend: BackendChoice::Torch(target), ..TORCH })
                });
                for prompt in TOKENS.map(|tokens| &case.prompts[3][..tokens]) {
                    let found = logits(separate.as_mut(), prompt);
                    assert_eq!(found, logits(grouped.as_mut(), prompt), "{}, {bits:?}, {dtype:?}", case.name);
                }
            }
        }
    }
}
