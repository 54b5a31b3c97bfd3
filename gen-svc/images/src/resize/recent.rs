//! The weights of recent resizes. Many images have the same sides, and sines take long.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use quick_cache::sync::Cache;

use super::filter::Kernel;
use super::weights::Weights;

/// How many weights are kept. Those of the longest side take 3 MB.
const MOST: usize = 8;

/// The length of a side before and after, and the kernel.
type Key = (usize, usize, Kernel);

static RECENT: LazyLock<Cache<Key, Arc<Weights>>> = LazyLock::new(|| Cache::new(MOST));

/// Returns the weights to resize a side from `from` to `to` pixels.
pub(super) fn weights(from: usize, to: usize, kernel: Kernel) -> Arc<Weights> {
    let new = || Ok::<_, Infallible>(Arc::new(Weights::new(from, to, kernel)));
    let Ok(weights) = RECENT.get_or_insert_with(&(from, to, kernel), new);
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_weights_and_few_are_kept() {
        for kernel in [Kernel::Bicubic, Kernel::Lanczos] {
            for to in 1..2 * MOST {
                let first = weights(10, to, kernel);
                assert_eq!(first.len(), to);
                assert!(Arc::ptr_eq(&first, &weights(10, to, kernel)));
            }
        }
        assert!(!Arc::ptr_eq(&weights(10, 1, Kernel::Bicubic), &weights(10, 1, Kernel::Lanczos)));
        assert!(RECENT.len() <= MOST);
    }
}
