//! Numbers that travel from the device to the host, while the device computes later
//! calls.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use tch::{Device, Kind, TchError, Tensor};

use crate::error::Error;

/// The bytes of an error's text, with the zero at its end.
const PROBLEM_BYTES: usize = 512;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn tandem_cuda_record(device: c_int, problem: *mut c_char, bytes: c_int) -> *mut c_void;
    fn tandem_cuda_wait(event: *mut c_void, problem: *mut c_char, bytes: c_int) -> bool;
    fn tandem_cuda_forget(event: *mut c_void);
}

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
        // libtorch copies to pinned memory then.
        let on_host = numbers.f_to_device_(Device::Cpu, Kind::Double, true, false)?;
        let copied = match numbers.device() {
            Device::Cuda(index) => Some(Event::record(index)?),
            _ => None,
        };
        Ok(Self { numbers: on_host, copied })
    }

    /// Waits for the copy, and returns the numbers.
    pub(crate) fn finish(self) -> Result<Vec<f64>, Error> {
        self.copied.map_or(Ok(()), Event::wait)?;
        let mut numbers = vec![0.0; self.numbers.numel()];
        self.numbers.f_copy_data(&mut numbers, self.numbers.numel())?;
        Ok(numbers)
    }
}

/// A place among the calls of a GPU.
#[derive(Debug)]
struct Event(NonNull<c_void>);

#[allow(unsafe_code)]
// SAFETY: an event can be waited for and destroyed on any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event behind all calls so far.
    fn record(device: usize) -> Result<Self, Error> {
        let mut problem = [0_u8; PROBLEM_BYTES];
        let device = c_int::try_from(device).unwrap_or_default();
        #[allow(unsafe_code)]
        // SAFETY: the function writes at most as many bytes as it is given, and catches exceptions.
        let event = unsafe { tandem_cuda_record(device, problem.as_mut_ptr().cast(), PROBLEM_BYTES as c_int) };
        NonNull::new(event).map(Self).ok_or_else(|| failed(&problem))
    }

    /// Waits until the device reaches the event.
    fn wait(self) -> Result<(), Error> {
        let mut problem = [0_u8; PROBLEM_BYTES];
        #[allow(unsafe_code)]
        // SAFETY: the event exists until it is dropped, the function writes at most as many bytes as it is
        // given, and catches exceptions.
        let is_reached =
            unsafe { tandem_cuda_wait(self.0.as_ptr(), problem.as_mut_ptr().cast(), PROBLEM_BYTES as c_int) };
        if is_reached { Ok(()) } else { Err(failed(&problem)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        #[allow(unsafe_code)]
        // SAFETY: nothing uses the event afterwards.
        unsafe {
            tandem_cuda_forget(self.0.as_ptr());
        }
    }
}

fn failed(problem: &[u8]) -> Error {
    let problem = CStr::from_bytes_until_nul(problem).map(CStr::to_string_lossy).unwrap_or_default();
    Error::Torch(TchError::Torch(problem.into_owned()))
}
