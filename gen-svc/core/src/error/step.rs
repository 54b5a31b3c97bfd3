//! Why a model cannot compute.

use tandem_common::status::{Reason, chain};

use super::device::DeviceFault;

/// An error of a step, or of another computation of the model.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The model computed logits that are not finite.
    #[error("logits are not finite: the weights have NaN or infinity, or exceed the range of --dtype f16")]
    NotFinite,
    /// The kernels rejected a call.
    #[error("the kernels failed")]
    Kernels(#[from] tandem_kernels::Error),
    /// A step came before the KV cache was allocated.
    #[error("KV cache is not allocated")]
    NoKvMemory,
    /// libtorch reported an error.
    #[error("libtorch failed")]
    Library {
        /// The failure of the device, if the error reports one.
        fault: Option<DeviceFault>,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The backend broke a rule of the port.
    #[error("engine failed")]
    Broken,
}

impl StepError {
    /// Returns the failure of the device that the error reports, if it does.
    #[must_use]
    pub fn device_fault(&self) -> Option<DeviceFault> {
        match self {
            Self::Library { fault, .. } => *fault,
            _ => None,
        }
    }

    /// Returns true if the device has too little memory for a call.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.device_fault() == Some(DeviceFault::OutOfMemory)
    }

    /// Returns true if the device has failed for good.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        self.device_fault() == Some(DeviceFault::Lost)
    }

    /// Returns the stable reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotFinite | Self::Library { .. } | Self::Kernels(_) | Self::NoKvMemory => Reason::ModelFailed,
            Self::Broken => Reason::EngineFailed,
        }
    }

    /// Returns this error and its causes in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}
