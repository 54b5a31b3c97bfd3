//! Places among the calls of a GPU, which the host can wait for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use tch::{Device, TchError};

use crate::error::Error;

/// The bytes of an error's text, with the zero at its end.
const PROBLEM_BYTES: usize = 512;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn tandem_cuda_record(device: c_int, problem: *mut c_char, bytes: c_int) -> *mut c_void;
    fn tandem_cuda_wait(event: *mut c_void, problem: *mut c_char, bytes: c_int) -> bool;
    fn tandem_cuda_forget(event: *mut c_void);
}

/// A place among the calls of a GPU.
#[derive(Debug)]
pub(crate) struct Event(NonNull<c_void>);

#[allow(unsafe_code)]
// SAFETY: an event can be waited for and destroyed on any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event behind all calls so far. Returns None on the CPU, which ends a call before the next
    /// one.
    pub(crate) fn record(device: Device) -> Result<Option<Self>, Error> {
        let Device::Cuda(device) = device else { return Ok(None) };
        let mut problem = [0_u8; PROBLEM_BYTES];
        let device = c_int::try_from(device).unwrap_or_default();
        #[allow(unsafe_code)]
        // SAFETY: the function writes at most as many bytes as it is given, and catches exceptions.
        let event = unsafe { tandem_cuda_record(device, problem.as_mut_ptr().cast(), PROBLEM_BYTES as c_int) };
        NonNull::new(event).map(|event| Some(Self(event))).ok_or_else(|| failed(&problem))
    }

    /// Waits until the device reaches the event.
    pub(crate) fn wait(self) -> Result<(), Error> {
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
    TchError::Torch(problem.into_owned()).into()
}
