//! The configuration of the engine. Every default is stated here, once.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tandem_common::timing::READER_PATIENCE;

use crate::media::{ImageHost, MediaLimits};

/// The least capacity of an event channel: `Accepted`, a delta, and a slot for the summary.
const MIN_EVENT_BUFFER: usize = 3;

/// The configuration of an engine.
#[derive(Debug, Clone)]
pub struct Config {
    /// A `.gguf` file, or a Hugging Face folder with safetensors.
    pub model: PathBuf,
    /// The `mmproj` file of a GGUF model. None: the one beside the model that fits it, if any.
    pub mmproj: Option<PathBuf>,
    /// The model's id in requests. None: the file's stem, or the folder's name.
    pub model_id: Option<String>,
    /// The devices that compute. Several have a part of the layers each.
    pub devices: DeviceList,
    /// The dtype of weights and activations.
    pub dtype: DtypeChoice,
    /// The quantization of the weights. None: the blocks of a GGUF are kept, unless a dtype is set.
    pub quantize: Option<Quantize>,
    /// Compute threads. 0: one per core.
    pub threads: usize,
    /// Requests that may wait in the queue.
    pub max_queue: usize,
    /// Outputs that are generated at once.
    pub max_running: usize,
    /// Tokens that a prompt may have. None: as many as the context.
    pub max_prompt_tokens: Option<usize>,
    /// Tokens that an output may have. None: as many as the context.
    pub max_output_tokens: Option<usize>,
    /// Prompt tokens computed in one step, for all requests together.
    pub prefill_chunk: usize,
    /// The size of the KV cache in bytes. None: a share of the free memory, or on a GPU the rest of
    /// `gpu_memory`.
    pub kv_memory: Option<u64>,
    /// The share of a GPU's memory for weights, KV cache and workspace, above 0 and at most 1.
    pub gpu_memory: f64,
    /// True if a step may be launched on the device before the tokens of the last one are known on the
    /// host. None: on a GPU.
    pub overlap_steps: Option<bool>,
    /// True if the results of a token must not depend on the other sequences of its step, as far as libtorch
    /// allows.
    pub batch_invariant: bool,
    /// The limits of images.
    pub media: MediaLimits,
    /// The hosts of images at URLs. Empty: no image is fetched.
    pub image_hosts: Vec<ImageHost>,
    /// Events that may wait in a request's channel. At least 3.
    pub event_buffer: usize,
    /// The time after which a request is cancelled whose channel stays full.
    pub reader_patience: Duration,
    /// How long a step waits for the tokens that grammars allow, after the model. The other outputs wait
    /// as long.
    pub mask_patience: Duration,
    /// The program gen-svc, which tries costly grammars in another process. None: they are not tried.
    pub grammar_trials: Option<PathBuf>,
}
/// [`EngineLimits::max_beside_interactive`] on a CPU. More outputs keep it busier, but a first token would wait longer.
const CPU_BESIDE_INTERACTIVE: usize = 8;
/// The same on a GPU, which computes 256 rows in about twice the time in which it reads a matrix. Calculated, not
/// measured.
const GPU_BESIDE_INTERACTIVE: usize = 256;

impl Default for Config {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            mmproj: None,
            model_id: None,
            devices: DeviceList::default(),
            dtype: DtypeChoice::Auto,
            quantize: None,
            threads: 0,
            max_queue: 256,
            max_running: DeviceList::default().default_max_running(),
            max_prompt_tokens: None,
            max_output_tokens: None,
            prefill_chunk: DeviceList::default().default_prefill_chunk(),
            kv_memory: None,
            gpu_memory: 0.9,
            overlap_steps: None,
            batch_invariant: false,
            media: MediaLimits::default(),
            image_hosts: Vec::new(),
            event_buffer: 64,
            reader_patience: READER_PATIENCE,
            mask_patience: Duration::from_millis(10),
            grammar_trials: None,
        }
    }
}

impl Config {
    /// Returns the default configuration for the model at `model`.
    #[must_use]
    pub fn new(model: PathBuf) -> Self {
        Self { model, ..Self::default() }
    }

    /// Returns the limits of the engine. Each is at least 1.
    pub fn limits(&self) -> EngineLimits {
        let on_cpu = self.devices.is_cpu();
        EngineLimits {
            max_queue: self.max_queue.max(1),
            max_running: self.max_running.max(1),
            prefill_chunk: self.prefill_chunk.max(1),
            max_decodes: usize::MAX,
            max_beside_interactive: if on_cpu { CPU_BESIDE_INTERACTIVE } else { GPU_BESIDE_INTERACTIVE },
            overlaps_steps: self.overlap_steps.unwrap_or(!on_cpu),
            mask_patience: self.mask_patience,
        }
    }

    /// Returns true if libtorch computes on a CPU whatever the model is.
    pub fn asks_for_torch(&self) -> bool {
        self.devices.devices().contains(&DeviceChoice::CpuTorch) || self.dtype == DtypeChoice::F16
    }

    /// Returns the capacity of a request's event channel, without the slots for the last events.
    pub(super) fn event_capacity(&self) -> usize {
        self.event_buffer.max(MIN_EVENT_BUFFER)
    }
}

/// The limits of an engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineLimits {
    /// Requests that may wait in the queue.
    pub max_queue: usize,
    /// Outputs that are generated at once.
    pub max_running: usize,
    /// Prompt tokens computed in one step, for all requests together.
    pub prefill_chunk: usize,
    /// Outputs of which one step computes a token. The others take turns.
    pub max_decodes: usize,
    /// The outputs and the prompt tokens of other callers in one step, next to an interactive caller: one with at most
    /// a quarter of the running outputs of another.
    pub max_beside_interactive: usize,
    /// True if a step may be launched before the tokens of the last one are known.
    pub overlaps_steps: bool,
    /// How long a step waits for the tokens that grammars allow, after the model.
    pub mask_patience: Duration,
}

/// A configured device: `cpu`, `cpu-torch`, `cuda` or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The processor: the kernels of this project, and libtorch for models that they do not support.
    Cpu,
    /// The processor: libtorch, as on a GPU.
    CpuTorch,
    /// The GPU of this index.
    Cuda(usize),
}

impl DeviceChoice {
    /// The devices that every machine has.
    pub const PROCESSORS: [Self; 2] = [Self::Cpu, Self::CpuTorch];
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let index = match text {
            "cpu" => return Ok(Self::Cpu),
            "cpu-torch" => return Ok(Self::CpuTorch),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|index| index.parse().ok()),
        };
        index
            .map(Self::Cuda)
            .ok_or_else(|| format!("must be cpu, cpu-torch, cuda or cuda:N, or a list of them, is {text:?}"))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::CpuTorch => f.write_str("cpu-torch"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Configured devices, in the order of computation, such as `cuda:0,cuda:1`. At least one. Several are
/// different GPUs, or all `cpu-torch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceList(Vec<DeviceChoice>);

impl DeviceList {
    /// Returns the devices.
    #[must_use]
    pub fn devices(&self) -> &[DeviceChoice] {
        &self.0
    }

    /// Returns true if the processor computes.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        !matches!(self.0[..], [DeviceChoice::Cuda(_), ..])
    }

    /// Returns the default of [`Config::max_running`]. A GPU reads a matrix in about the time that it computes
    /// 128 rows.
    #[must_use]
    pub fn default_max_running(&self) -> usize {
        if self.is_cpu() { 64 } else { 128 }
    }

    /// Returns the default of [`Config::prefill_chunk`]. A GPU needs more rows to compute at its full rate, and
    /// computes them in less time.
    #[must_use]
    pub fn default_prefill_chunk(&self) -> usize {
        if self.is_cpu() { 512 } else { 2048 }
    }
}

impl Default for DeviceList {
    fn default() -> Self {
        DeviceChoice::Cpu.into()
    }
}

impl From<DeviceChoice> for DeviceList {
    fn from(device: DeviceChoice) -> Self {
        Self(vec![device])
    }
}

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let devices = text.split(',').map(str::parse).collect::<Result<Vec<DeviceChoice>, String>>()?;
        let is_gpu = |device: &DeviceChoice| matches!(device, DeviceChoice::Cuda(_));
        if devices.len() > 1 && !devices.iter().all(is_gpu) && devices.iter().any(|it| *it != DeviceChoice::CpuTorch) {
            return Err(format!("must be cpu alone, GPUs only or cpu-torch only, is {text:?}"));
        }
        match devices.iter().enumerate().find(|(i, gpu)| is_gpu(gpu) && devices[..*i].contains(gpu)) {
            Some((_, gpu)) => Err(format!("names {gpu} twice")),
            None => Ok(Self(devices)),
        }
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))
    }
}

/// A configured dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DtypeChoice {
    /// On the CPU f32, with quantized blocks as stored and keys and values in 16 bits; bf16 on a GPU.
    Auto,
    /// 32-bit floats everywhere, the reference.
    F32,
    /// bfloat16: half the memory, coarser rounding.
    Bf16,
    /// 16-bit floats: finer rounding than bf16, up to 65,504. libtorch computes.
    F16,
}

/// A configured quantization of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantize {
    /// No quantization: all weights have the dtype.
    None,
    /// 8 bits.
    Int8,
    /// 4 bits; 8 bits for the first and the last matrix.
    Int4,
    /// The blocks of a GGUF as stored, on the CPU.
    Keep,
}

impl DtypeChoice {
    /// Returns the value of `--dtype`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

impl Quantize {
    /// Returns the value of `--quantize`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Keep => "keep",
        }
    }
}
