//! A model without weights whose steps fail as a test decides.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tandem_core::cache::{BLOCK, CacheSize};
use tandem_core::error::StepError;
use tandem_core::models::{Backend, HostBackend, Logits, Model, ModelShape, SequenceChunk};
use tandem_core::request::ServedModel;
use tandem_tests::scramble;
use tandem_torch::device::upload::Upload;
use tandem_torch::{DeviceRows, DeviceSampler, SamplerCall, TorchBackend, TorchModel};
use tch::{Device, TchError, Tensor};

use tandem_tests::served_model::CONTEXT;

/// The text of libtorch for a GPU without memory, with the start of its stack.
pub const OUT_OF_MEMORY: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB \
                                 of which 1.12 GiB is free.\nException raised from malloc at CUDACachingAllocator.cpp";
/// The text of libtorch for a kernel that failed.
pub const DEVICE_LOST: &str = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be \
                               asynchronously reported at some other API call.";

/// Returns the text of a step's error, or None if the step succeeds.
type Fault = Box<dyn FnMut(&[SequenceChunk<'_>]) -> Option<&'static str> + Send>;

/// Returns the text of the error of a sampler's call with a number of rows, or None if the call succeeds.
type SamplerFault = Box<dyn FnMut(SamplerCall, usize) -> Option<&'static str> + Send>;

/// The model. Its logits depend on the last token and on its position.
pub struct FaultyModel {
    vocabulary: usize,
    fault: Fault,
    freed: Arc<AtomicUsize>,
    rows_stay: bool,
    sampler_fault: Arc<Mutex<SamplerFault>>,
}

impl FaultyModel {
    /// Creates a model without failures whose rows stay where libtorch keeps them, or do not.
    #[must_use]
    pub fn sound(served: &ServedModel, rows_stay: bool) -> Box<dyn Backend> {
        Self { rows_stay, ..Self::new(served, Box::new(|_| None)) }.into_backend()
    }

    /// Creates a model whose rows stay where libtorch keeps them, and whose steps `watch` sees.
    #[must_use]
    pub fn watched(
        served: &ServedModel,
        watch: impl FnMut(&[SequenceChunk<'_>]) -> Option<&'static str> + Send + 'static,
    ) -> Box<dyn Backend> {
        Self { rows_stay: true, ..Self::new(served, Box::new(watch)) }.into_backend()
    }

    /// Creates a model for a served model's vocabulary. The number is how often its cache was freed.
    #[must_use]
    pub fn boxed(
        served: &ServedModel,
        fault: impl FnMut(&[SequenceChunk<'_>]) -> Option<&'static str> + Send + 'static,
    ) -> (Box<dyn Backend>, Arc<AtomicUsize>) {
        let model = Self::new(served, Box::new(fault));
        let freed = Arc::clone(&model.freed);
        (model.into_backend(), freed)
    }

    /// Creates a model whose rows stay where libtorch keeps them, and whose sampler's calls fail as `fault`
    /// decides. The number is how often its cache was freed.
    #[must_use]
    pub fn sampling(
        served: &ServedModel,
        fault: impl FnMut(SamplerCall, usize) -> Option<&'static str> + Send + 'static,
    ) -> (Box<dyn Backend>, Arc<AtomicUsize>) {
        let sampler_fault: Arc<Mutex<SamplerFault>> = Arc::new(Mutex::new(Box::new(fault)));
        let model = Self { rows_stay: true, sampler_fault, ..Self::new(served, Box::new(|_| None)) };
        let freed = Arc::clone(&model.freed);
        (model.into_backend(), freed)
    }

    fn into_backend(self) -> Box<dyn Backend> {
        if self.rows_stay {
            Box::new(TorchBackend::new(Box::new(self)))
        } else {
            Box::new(HostBackend::new(Box::new(self)))
        }
    }

    fn new(served: &ServedModel, fault: Fault) -> Self {
        let sampler_fault: Arc<Mutex<SamplerFault>> = Arc::new(Mutex::new(Box::new(|_, _| None)));
        Self { vocabulary: served.vocabulary_size, fault, freed: Arc::default(), rows_stay: false, sampler_fault }
    }
}

impl fmt::Debug for FaultyModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyModel").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

impl FaultyModel {
    /// Computes the requested rows. A token of `chosen`, which the last step chose, replaces that of the host.
    fn rows(
        &mut self,
        chunks: &[SequenceChunk<'_>],
        chosen: Option<&Tensor>,
        logits: &mut Logits,
    ) -> Result<(), tandem_torch::Error> {
        if let Some(text) = (self.fault)(chunks) {
            return Err(tandem_torch::Error::from(TchError::Torch(text.to_owned())));
        }
        let rows: usize = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
        logits.resize(rows, self.vocabulary);
        let token = |chunk: &SequenceChunk<'_>, i: usize| match (chosen, chunk.chosen) {
            (Some(chosen), Some(index)) => chosen.int64_value(&[index as i64, 0]) as u32,
            _ => chunk.tokens[i],
        };
        let rows_of = |chunk: &'_ SequenceChunk<'_>| -> Vec<(u32, usize)> {
            chunk.logit_rows().map(|i| (token(chunk, i), chunk.past + i)).collect()
        };
        let wanted: Vec<_> = chunks.iter().flat_map(rows_of).collect();
        for (row, (token, position)) in logits.rows().zip(wanted) {
            let hash = scramble(u64::from(token) << 32 | position as u64);
            for (id, logit) in (0..).zip(row) {
                *logit = (scramble(hash ^ id) % 4096) as f32 / 1024.0;
            }
        }
        Ok(())
    }

    fn free_cache(&mut self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    fn shape(&self) -> ModelShape {
        ModelShape { vocabulary: self.vocabulary, context: CONTEXT, block: BLOCK, block_bytes: 64, state_bytes: 0 }
    }
}

impl Model for FaultyModel {
    fn shape(&self) -> ModelShape {
        self.shape()
    }

    fn allocate(&mut self, _size: CacheSize) -> Result<(), StepError> {
        Ok(())
    }

    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), StepError> {
        Ok(self.rows(chunks, None, logits)?)
    }

    fn free_cache(&mut self) {
        self.free_cache();
    }
}

impl TorchModel for FaultyModel {
    fn shape(&self) -> ModelShape {
        self.shape()
    }

    fn allocate(&mut self, _blocks: u32) -> Result<(), tandem_torch::Error> {
        Ok(())
    }

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn sampler(&self) -> DeviceSampler {
        let fault = Arc::clone(&self.sampler_fault);
        let sampler = DeviceSampler::new(self.vocabulary, Device::Cpu);
        sampler.failing(move |call, rows| match fault.lock().expect("no panic")(call, rows) {
            Some(text) => Err(tandem_torch::Error::from(TchError::Torch(text.to_owned()))),
            None => Ok(()),
        })
    }

    fn forward(
        &mut self,
        chunks: &[SequenceChunk<'_>],
        upload: Upload,
        chosen: Option<&Tensor>,
    ) -> Result<Option<DeviceRows>, tandem_torch::Error> {
        let mut logits = Logits::default();
        self.rows(chunks, chosen, &mut logits)?;
        let numbers: Vec<f32> = logits.rows().flat_map(|row| row.to_vec()).collect();
        let rows = (numbers.len() / self.vocabulary) as i64;
        if rows == 0 {
            return Ok(None);
        }
        DeviceRows::new(Tensor::f_from_slice(&numbers)?.f_view([rows, -1])?, upload).map(Some)
    }

    fn free_cache(&mut self) {
        self.free_cache();
    }
}
