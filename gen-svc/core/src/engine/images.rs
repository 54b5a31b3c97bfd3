//! Computes the features of images in slices, between the steps of running sequences.

use std::sync::Arc;
use std::time::Instant;

use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use super::pace::Pace;
use super::schedule::{Scheduler, Wanted};
use crate::cache::Digest;
use crate::error::StepError;
use crate::models::{Features, Tower};

/// The bytes of features that are kept for later requests.
const KEPT_BYTES: u64 = 256 << 20;
/// The number of images that usually have that many bytes. The cache makes room for it at the start.
const KEPT_IMAGES: usize = 64;

/// Computes images, one after another.
#[derive(Debug)]
pub(super) struct ImageEncoder {
    /// `None`: the model supports text only.
    tower: Option<Box<dyn Tower>>,
    /// The image that the tower has started.
    current: Option<Digest>,
    kept: Kept,
}

impl ImageEncoder {
    pub(super) fn new(tower: Option<Box<dyn Tower>>) -> Self {
        Self { tower, current: None, kept: Kept::new() }
    }

    /// Computes slices for the sequences that wait for images, up to `budget` tokens, and at least
    /// one. Returns the tokens that the slices count: as many as take as long, and not fewer than a
    /// slice's share of the image's patches. Before `pace` is known, a slice counts the whole budget.
    /// Requests whose image fails end with an error.
    ///
    /// # Errors
    /// The device has failed for good.
    pub(super) fn advance(&mut self, scheduler: &mut Scheduler, budget: usize, pace: Pace) -> Result<usize, StepError> {
        let (mut spent, mut last) = (0, 0);
        // The next slice takes about as long as the last one.
        while (spent == 0 || spent + last <= budget)
            && let Some(wanted) = scheduler.wanted_image()
        {
            if let Some(features) = self.kept.find(&wanted.digest) {
                scheduler.requests.get_mut(wanted.request).set_features(wanted.index, features);
                continue;
            }
            let start = Instant::now();
            match self.attempt(&wanted) {
                Ok(tokens) => {
                    last = pace.tokens(start.elapsed()).unwrap_or(budget).max(tokens).max(1);
                    spent += last;
                }
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) => {
                    self.current = None;
                    scheduler.fail(wanted.request, &error);
                }
            }
        }
        Ok(spent)
    }

    /// Computes a slice. If the device has too little memory, frees the backend's unused memory and
    /// starts the image a second time.
    fn attempt(&mut self, wanted: &Wanted) -> Result<usize, StepError> {
        match self.slice(wanted) {
            Err(error) if error.is_out_of_memory() => {
                tracing::warn!(error = error.chain(), "image exceeds the device's memory, computing it again");
                self.tower.iter_mut().for_each(|tower| tower.free_cache());
                self.slice(wanted)
            }
            done => done,
        }
    }

    /// Computes a slice of the current image, or else the first of the wanted one. Returns the tokens
    /// that it counts.
    fn slice(&mut self, wanted: &Wanted) -> Result<usize, StepError> {
        let tower = self.tower.as_mut().ok_or(StepError::Broken)?;
        let digest = match self.current.take() {
            Some(current) => current,
            None => {
                tower.start(&wanted.image)?;
                wanted.digest
            }
        };
        let tokens = tower.slice_tokens();
        match tower.advance()? {
            Some(features) => self.kept.insert(digest, Arc::new(features)),
            None => self.current = Some(digest),
        }
        Ok(tokens)
    }
}

/// The features of recent images.
#[derive(Debug)]
struct Kept {
    /// The last image, for which sequences wait, even if it has more than [`KEPT_BYTES`].
    last: Option<(Digest, Arc<Features>)>,
    recent: Cache<Digest, Arc<Features>, Bytes>,
}

/// Measures features.
#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Digest, Arc<Features>> for Bytes {
    fn weight(&self, _: &Digest, features: &Arc<Features>) -> u64 {
        features.bytes() as u64
    }
}

impl Kept {
    fn new() -> Self {
        Self { last: None, recent: Cache::with_weighter(KEPT_IMAGES, KEPT_BYTES, Bytes) }
    }

    fn find(&self, digest: &Digest) -> Option<Arc<Features>> {
        let last = self.last.as_ref().filter(|(last, _)| last == digest);
        last.map(|(_, features)| features).or_else(|| self.recent.get(digest)).cloned()
    }

    fn insert(&mut self, digest: Digest, features: Arc<Features>) {
        self.recent.insert(digest, Arc::clone(&features));
        self.last = Some((digest, features));
    }
}
