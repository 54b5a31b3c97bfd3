//! Why a model cannot be loaded as configured. Operators see it; no caller of a request does.

use std::path::PathBuf;

use tandem_common::status::{Reason, chain};
use tandem_images::ProcessorError;
use tandem_model_files::artifacts::ArtifactsError;
use tandem_model_files::artifacts::safetensors::SafetensorsError;
use tandem_model_files::gguf::GgufError;
use tandem_model_files::tokenizer::TokenizerError;
use tandem_model_files::{excerpt, shown};
use tandem_template::CompileError;

use super::config::ConfigError;
use super::memory::MemoryError;
use super::step::StepError;

/// An error of a load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load was cancelled, because the server is shutting down.
    #[error("load cancelled: server is shutting down")]
    Cancelled,
    /// The model's files cannot be read.
    #[error("the model cannot be read")]
    Artifacts(#[from] ArtifactsError),
    /// The model's tokenizer cannot be built.
    #[error("the model's tokenizer cannot be built")]
    Tokenizer(#[from] TokenizerError),
    /// The model's safetensors files are missing or malformed.
    #[error("the model's weights are not readable")]
    Safetensors(#[source] Box<SafetensorsError>),
    /// The header of the model's file is malformed.
    #[error("the model's header is not readable")]
    Header(#[source] Box<GgufError>),
    /// The model's image processor cannot be used.
    #[error("the model's image processor cannot be used")]
    Processor(#[from] ProcessorError),
    /// The model with images has no chat template.
    #[error("the model has no chat template, which places images")]
    NoTemplate,
    /// The model's chat template does not compile.
    #[error("the model's chat template does not compile")]
    TemplateSource(#[from] CompileError),
    /// The control tokens of the model are too many or too long to be found in prompts.
    #[error("the model's control tokens cannot be found in prompts")]
    ControlTokens,
    /// The token of images is not in the vocabulary.
    #[error("the vocabulary has no image token {:?}", excerpt(token))]
    ImageToken { token: String },
    /// The projector of an `mmproj` file is not supported.
    #[error("{}: projector {:?} is not supported; these are: {supported}", shown(file), excerpt(found))]
    UnsupportedProjector {
        file: PathBuf,
        /// The value of `clip.projector_type`.
        found: String,
        /// The names of the supported projectors.
        supported: String,
    },
    /// The projector of an `mmproj` file is for other language models.
    #[error("{}: projector {projector:?} needs a language model of {expected}, the model is {found}", shown(file))]
    ProjectorOfOthers {
        file: PathBuf,
        projector: &'static str,
        /// The names of its language models.
        expected: String,
        /// The name of the language model.
        found: String,
    },
    /// The rows of an `mmproj` file do not have the language model's hidden size.
    #[error("{}: projector has rows of {found} numbers, the model's hidden size is {expected}", shown(file))]
    ProjectorRows {
        file: PathBuf,
        /// The value of `clip.vision.projection_dim`.
        found: u32,
        /// The hidden size.
        expected: u32,
    },
    /// The image processor's settings do not suit the vision tower.
    #[error("the settings of the image processor do not fit the model's config: {problem}")]
    ProcessorOfOthers {
        /// What does not fit.
        problem: String,
    },
    /// A setting of the `mmproj` file is not supported.
    #[error("the mmproj file has {} = {value}, which is not supported", excerpt(key))]
    MmprojSetting { key: String, value: String },
    /// Several `mmproj` files beside the model fit it.
    #[error("several mmproj files beside the model fit it: {}; name one with --mmproj", shown(names))]
    SeveralMmproj {
        /// Their names.
        names: String,
    },
    /// An `mmproj` file is given for a folder with safetensors.
    #[error("--mmproj needs a GGUF file as the model, {} is a folder with its own tower", shown(model))]
    MmprojOfFolder {
        /// The folder.
        model: PathBuf,
    },
    /// The folder has no config.
    #[error("{} contains no config.json, which names the architecture{remedy}", shown(path))]
    NoConfig {
        path: PathBuf,
        /// Empty, or the remedy after a semicolon.
        remedy: &'static str,
    },
    /// The config names no architecture.
    #[error("{} has no model_type, the name of the architecture", shown(path))]
    NoModelType { path: PathBuf },
    /// The architecture is not supported.
    #[error(
        "architecture {:?} is not supported; these are: {supported}; render-svc renders the prompts of every \
         architecture: serve the weights of this one with another engine",
        excerpt(found)
    )]
    UnsupportedArchitecture {
        /// The architecture in the model's config.
        found: String,
        /// The names of the supported architectures.
        supported: String,
    },
    /// A setting of the model's config is missing or has the wrong type.
    #[error("the model's config is not readable")]
    Config(#[source] ConfigError),
    /// A setting of the model's config is not supported.
    #[error(
        "the model's config has {setting} = {value}, which is not supported: correct it, take a version of the model \
         without it, or serve the weights with another engine"
    )]
    UnsupportedSetting {
        /// The name in `config.json`.
        setting: &'static str,
        value: String,
    },
    /// A key of the GGUF header, or its value, is not supported.
    #[error("the model's header has {} = {value}, which is not supported: use a file without it", excerpt(key))]
    HeaderSetting { key: String, value: String },
    /// A sampling default of the model is out of range.
    #[error("{}: {parameter} {problem}", shown(file))]
    SamplingDefault {
        /// The file that has the value.
        file: PathBuf,
        /// The name of the parameter.
        parameter: String,
        /// The range and the value.
        problem: String,
    },
    /// The weights are quantized in a format of another engine.
    #[error(
        "the weights are quantized with {format}, which is not supported: take the unquantized folder with \
         --quantize {remedy}, or a GGUF file"
    )]
    Quantized {
        /// The method, and the bits of a weight.
        format: String,
        /// The value of `--quantize` with about the same size.
        remedy: &'static str,
        /// The error of the tensor, or of the files.
        #[source]
        problem: Box<LoadError>,
    },
    /// A tensor of the architecture is missing in the file.
    #[error("tensor {} is missing", excerpt(name))]
    TensorMissing {
        /// The name in the file.
        name: String,
    },
    /// A tensor of the file is not in the model.
    #[error(
        "tensor {} is not part of the model that its settings describe, and answers without it would be \
         wrong: correct the settings, or take other files",
        excerpt(name)
    )]
    TensorUnused {
        /// The name in the file.
        name: String,
    },
    /// The data of a tensor cannot be read, or the file was changed.
    #[error("tensor {} cannot be read", excerpt(name))]
    TensorRead {
        /// The name in the file.
        name: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A tensor has a value that is NaN or infinite.
    #[error("tensor {} has the value {found}, expected finite numbers: take other files", excerpt(name))]
    TensorNotFinite {
        /// The name in the file.
        name: String,
        /// The value.
        found: f32,
    },
    /// A tensor has another shape than the config implies.
    #[error("tensor {} has shape {}, expected {expected:?}", excerpt(name), excerpt(format_args!("{found:?}")))]
    TensorShape {
        /// The name in the file.
        name: String,
        /// The shape that the config implies.
        expected: Vec<i64>,
        /// The shape in the file.
        found: Vec<i64>,
    },
    /// A tensor has a storage type that is not supported.
    #[error("tensor {} has type {}, which is not supported; {remedy}", excerpt(name), excerpt(found))]
    TensorType {
        /// The name in the file.
        name: String,
        /// The storage type.
        found: String,
        /// Supported types, and where to find them.
        remedy: &'static str,
    },
    /// The device is not available.
    #[error("device {device} is not available: {problem}")]
    Device {
        /// The configured device.
        device: String,
        problem: String,
    },
    /// The program is built without libtorch.
    #[error(
        "{needed_by} needs libtorch, without which this gen-svc is built: use the image whose tag does not end with -text, or build with the feature `torch`"
    )]
    WithoutTorch {
        /// The option or the model.
        needed_by: String,
    },
    /// A GPU is configured, and this program is built without libtorch.
    #[error(
        "--device {devices} needs libtorch, without which this gen-svc is built: use the image whose tag ends with -cuda, or build with the feature `torch`"
    )]
    WithoutGpu {
        /// The configured devices.
        devices: String,
    },
    /// The backend does not compute a part of the model.
    #[error("{backend} does not compute {part}, which the model has{remedy}")]
    PartOfModel {
        /// The backend's name.
        backend: &'static str,
        /// The part's name.
        part: &'static str,
        /// Empty, or the remedy after a colon.
        remedy: &'static str,
    },
    /// The model has fewer parts than there are devices.
    #[error(
        "--device names {devices} devices, limit {limit}: the parts into which the layers of this model can be divided"
    )]
    TooManyDevices {
        /// The number of configured devices.
        devices: usize,
        /// The number of parts.
        limit: usize,
    },
    /// libtorch computes, which does not support the quantization.
    #[error("--quantize {quantize} needs --device cpu, without --dtype f16")]
    QuantizeDevice {
        /// The configured quantization.
        quantize: &'static str,
    },
    /// A GPU computes 4 bits, which needs bf16.
    #[error("--quantize int4 on a GPU needs --dtype bf16")]
    QuantizeGpuDtype,
    /// The quantization and the dtype exclude each other.
    #[error("--quantize {quantize} is computed in f32; leave out --dtype bf16, or --quantize")]
    QuantizeDtype {
        /// The configured quantization.
        quantize: &'static str,
    },
    /// The engine behind the bridge cannot be used.
    #[error("the engine at {url} cannot be used: {problem}")]
    Engine {
        /// Its address.
        url: String,
        /// The problem, and the remedy of an operator.
        problem: String,
    },
    /// The engine's thread could not be started.
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
    /// The thread that loads the model panicked.
    #[error("engine failed")]
    Panicked,
    /// The memory does not suffice.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A first step, or a copy of the weights to a device, failed.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl LoadError {
    /// Returns the stable reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Cancelled => Reason::Draining,
            Self::Panicked => Reason::EngineFailed,
            Self::Artifacts(_)
            | Self::Tokenizer(_)
            | Self::Safetensors(_)
            | Self::Header(_)
            | Self::Config(_)
            | Self::NoConfig { .. }
            | Self::NoModelType { .. }
            | Self::SamplingDefault { .. }
            | Self::TemplateSource(_)
            | Self::TensorRead { .. }
            | Self::TensorNotFinite { .. } => Reason::ModelUnreadable,
            Self::UnsupportedArchitecture { .. }
            | Self::UnsupportedProjector { .. }
            | Self::MmprojSetting { .. }
            | Self::UnsupportedSetting { .. }
            | Self::HeaderSetting { .. }
            | Self::Processor(_)
            | Self::ControlTokens
            | Self::Quantized { .. }
            | Self::TensorType { .. }
            | Self::TensorUnused { .. } => Reason::ModelUnsupported,
            Self::TensorMissing { .. } | Self::TensorShape { .. } | Self::NoTemplate | Self::ImageToken { .. } => {
                Reason::ModelIncomplete
            }
            Self::QuantizeDevice { .. }
            | Self::PartOfModel { .. }
            | Self::WithoutTorch { .. }
            | Self::WithoutGpu { .. } => Reason::DeviceUnsupported,
            Self::QuantizeDtype { .. }
            | Self::QuantizeGpuDtype
            | Self::TooManyDevices { .. }
            | Self::ProjectorOfOthers { .. }
            | Self::ProjectorRows { .. }
            | Self::ProcessorOfOthers { .. }
            | Self::SeveralMmproj { .. }
            | Self::MmprojOfFolder { .. } => Reason::SettingsConflict,
            Self::Engine { .. } => Reason::EngineUnusable,
            Self::Device { .. } => Reason::DeviceUnavailable,
            Self::Thread(_) => Reason::ThreadFailed,
            Self::Memory(error) => error.reason(),
            Self::Step(error) => error.reason(),
        }
    }

    /// Returns this error and its causes in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

impl From<tandem_kernels::Error> for LoadError {
    fn from(error: tandem_kernels::Error) -> Self {
        Self::Step(error.into())
    }
}

impl From<ConfigError> for LoadError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unsupported { name, value } => Self::UnsupportedSetting { setting: name, value },
            error => Self::Config(error),
        }
    }
}
