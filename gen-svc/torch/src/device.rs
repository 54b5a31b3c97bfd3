//! GPUs: their memory, uploads and downloads. `device/calls.cpp` makes the calls of libtorch that tch does
//! not bind.

pub(crate) mod download;
pub(crate) mod event;
pub(crate) mod in_flight;
pub mod upload;

use std::ffi::{CStr, c_char, c_int};

use tandem_core::models::{DeviceMemory, Gpu};
use tch::{Device, Tensor};

use crate::error::Error;

/// The bytes of a GPU's name, with the zero at its end.
const NAME_BYTES: usize = 256;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn tandem_cuda_empty_cache() -> bool;
    fn tandem_cuda_name(device: c_int, name: *mut c_char, bytes: c_int) -> bool;
    fn tandem_cuda_major(device: c_int, major: *mut c_int) -> bool;
    fn tandem_cuda_memory(device: c_int, free: *mut u64, total: *mut u64) -> bool;
    fn tandem_sum_precisely();
}

/// Copies a tensor to another device. Between GPUs, the host does not wait for the copy.
pub(crate) fn copied(tensor: &Tensor, device: Device) -> Result<Tensor, Error> {
    let (non_blocking, copy) = (true, true);
    Ok(tensor.f_to_device_(device, tensor.f_kind()?, non_blocking, copy)?)
}

/// Returns the unused memory that libtorch keeps to all GPUs. Has no effect on the CPU.
pub(crate) fn free_cache(device: Device) {
    #[allow(unsafe_code)]
    // SAFETY: the function has no preconditions, and catches exceptions.
    if device.is_cuda() && !unsafe { tandem_cuda_empty_cache() } {
        tracing::warn!("libtorch's unused memory of the GPUs cannot be freed");
    }
}

/// Lets products of 16-bit numbers add their parts in 32 bits, in the whole process.
pub(crate) fn sum_precisely() {
    #[allow(unsafe_code)]
    // SAFETY: the function has no preconditions.
    unsafe {
        tandem_sum_precisely();
    }
}

/// Returns a GPU. None for the CPU.
#[must_use]
pub fn gpu(device: Device) -> Option<Gpu> {
    let Device::Cuda(index) = device else { return None };
    let memory = |index| memory(Device::Cuda(index));
    Some(Gpu { index, name: name(device).unwrap_or_default(), memory })
}

/// Returns the memory of a GPU. None for the CPU, or if CUDA does not report it.
#[must_use]
pub fn memory(device: Device) -> Option<DeviceMemory> {
    let Device::Cuda(index) = device else { return None };
    let (mut free, mut total) = (0, 0);
    #[allow(unsafe_code)]
    // SAFETY: both pointers are valid for one number, and the function catches exceptions.
    let is_known = unsafe { tandem_cuda_memory(c_int::try_from(index).ok()?, &raw mut free, &raw mut total) };
    is_known.then_some(DeviceMemory { free, total })
}

/// Returns the name of a GPU, such as "NVIDIA H100 80GB HBM3". None for the CPU, or if the driver does not
/// report it.
#[must_use]
pub fn name(device: Device) -> Option<String> {
    let Device::Cuda(index) = device else { return None };
    let (mut name, index) = ([0_u8; NAME_BYTES], c_int::try_from(index).ok()?);
    #[allow(unsafe_code)]
    // SAFETY: the function writes at most as many bytes as it is given.
    let is_known = unsafe { tandem_cuda_name(index, name.as_mut_ptr().cast(), NAME_BYTES as c_int) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| is_known)?;
    Some(name.to_string_lossy().into_owned())
}

/// Returns the major number of a GPU's compute capability. None for the CPU, or if the driver does not report
/// it.
pub(crate) fn compute_capability(device: Device) -> Option<i32> {
    let Device::Cuda(index) = device else { return None };
    let mut major = 0;
    #[allow(unsafe_code)]
    // SAFETY: the pointer is valid for one number, and the function throws no exception.
    let is_known = unsafe { tandem_cuda_major(c_int::try_from(index).ok()?, &raw mut major) };
    is_known.then_some(major)
}
