//! The pixels that are decoded at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// The most pixels of all images in decoding together. A pixel takes up to 16 bytes meanwhile.
const MOST: u64 = 48 << 20;

/// The pixels of images in decoding.
#[derive(Debug, Default)]
pub(crate) struct Decoding {
    pixels: Mutex<u64>,
    ended: Condvar,
}

/// An image in decoding. Dropping it lets others begin.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    decoding: &'a Decoding,
    pixels: u64,
}

impl Decoding {
    /// Waits until an image of this size may be decoded. One of more than [`MOST`] pixels is decoded alone.
    pub(crate) fn start(&self, pixels: u64) -> Share<'_> {
        let pixels = pixels.min(MOST);
        let taken = self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |taken: &mut u64| *taken + pixels > MOST;
        let mut taken = self.ended.wait_while(taken, is_full).unwrap_or_else(PoisonError::into_inner);
        *taken += pixels;
        Share { decoding: self, pixels }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.decoding.pixels.lock().unwrap_or_else(PoisonError::into_inner) -= self.pixels;
        self.decoding.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn an_image_waits_for_others_if_they_have_too_many_pixels_together() {
        let decoding = Decoding::default();
        let first = decoding.start(MOST - 10);
        let small = decoding.start(10);
        let (sender, started) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _second = decoding.start(u64::MAX);
                sender.send(*decoding.pixels.lock().expect("no panic")).expect("the test waits");
            });
            assert_eq!(*decoding.pixels.lock().expect("no panic"), MOST);
            drop(small);
            drop(first);
            assert_eq!(started.recv().expect("it starts"), MOST);
        });
    }
}
