//! The weights of recent resizes. Many images have the same sides, and sines take long.

use std::sync::{Arc, Mutex, PoisonError};

use super::filter::Kernel;
use super::weights::Weights;

/// How many weights are kept. Those of the longest side take 3 MB.
const MOST: usize = 8;

/// The length of a side before and after, and the kernel.
type Key = (usize, usize, Kernel);

static RECENT: Recent = Recent(Mutex::new(Vec::new()));

/// Returns the weights to resize a side from `from` to `to` pixels.
pub(super) fn weights(from: usize, to: usize, kernel: Kernel) -> Arc<Weights> {
    RECENT.weights((from, to, kernel))
}

/// Weights, the most recent last.
struct Recent(Mutex<Vec<(Key, Arc<Weights>)>>);

impl Recent {
    fn weights(&self, key: Key) -> Arc<Weights> {
        self.find(key).unwrap_or_else(|| {
            let (from, to, kernel) = key;
            let weights = Arc::new(Weights::new(from, to, kernel));
            self.keep(key, Arc::clone(&weights));
            weights
        })
    }

    fn find(&self, key: Key) -> Option<Arc<Weights>> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = recent.iter().position(|(other, _)| *other == key)?;
        recent[index..].rotate_left(1);
        recent.last().map(|(_, weights)| Arc::clone(weights))
    }

    fn keep(&self, key: Key, weights: Arc<Weights>) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|(other, _)| *other != key);
        if recent.len() == MOST {
            recent.remove(0);
        }
        recent.push((key, weights));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_weights_are_kept() {
        let recent = Recent(Mutex::new(Vec::new()));
        let weights = |to, kernel| recent.weights((10, to, kernel));
        let first = weights(1, Kernel::Bicubic);
        assert!(!Arc::ptr_eq(&first, &weights(1, Kernel::Lanczos)));
        for to in 2..MOST {
            assert_eq!(weights(to, Kernel::Bicubic).len(), to);
            assert!(Arc::ptr_eq(&first, &weights(1, Kernel::Bicubic)));
        }
        for to in MOST..2 * MOST {
            weights(to, Kernel::Bicubic);
        }
        assert!(!Arc::ptr_eq(&first, &weights(1, Kernel::Bicubic)));
        assert_eq!(recent.0.lock().expect("a list").len(), MOST);
    }
}
