//! Numbers that travel from the device to the host, while the device computes later
//! calls.

use tch::{Device, Kind, Tensor};

use super::event::Event;
use crate::error::Error;

/// Numbers on their way to the host.
#[derive(Debug)]
pub(crate) struct Download {
    /// On the host. The copy ends before the event.
    numbers: Tensor,
    copied: Option<Event>,
}

impl Download {
    /// Starts to copy 64-bit floats, once they are computed. The host does not wait.
    pub(crate) fn start(numbers: &Tensor) -> Result<Self, Error> {
        // With this flag, libtorch copies into pinned memory.
        let on_host = numbers.f_to_device_(Device::Cpu, Kind::Double, true, false)?;
        Ok(Self { numbers: on_host, copied: Event::record(numbers.device())? })
    }

    /// Waits for the copy, and returns the numbers.
    pub(crate) fn finish(self) -> Result<Vec<f64>, Error> {
        self.copied.map_or(Ok(()), Event::wait)?;
        let mut numbers = vec![0.0; self.numbers.numel()];
        self.numbers.f_copy_data(&mut numbers, self.numbers.numel())?;
        Ok(numbers)
    }
}
