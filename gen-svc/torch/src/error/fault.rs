//! Failures of devices, recognized in the texts of libtorch's errors.

use tandem_core::error::DeviceFault;

/// Parts of the first line that mean too little memory: of libtorch's allocator for a GPU and of the
/// driver, of cuBLAS and cuDNN, and of libtorch's allocator for the CPU. cuBLAS and cuDNN report that they
/// are not initialized if they find no memory for themselves.
const OUT_OF_MEMORY: [&str; 4] =
    ["out of memory", "_status_alloc_failed", "_status_not_initialized", "defaultcpuallocator: can't allocate memory"];
/// Parts of the first line that mean a call which cuBLAS or cuDNN refuse. Later calls work.
const REFUSED: [&str; 3] = ["_status_not_supported", "_status_invalid_value", "_status_bad_param"];
/// Parts of the first line of the other errors of CUDA and of its libraries.
const LOST: [&str; 5] = ["cuda error", "cuda driver error", "cublas_status_", "cudnn_status_", "cudnn error"];

/// Returns the fault that an error of libtorch reports. tch passes only the error's text. The first line
/// has the message; the stack below it names CUDA's libraries in every error.
pub(super) fn device_fault(text: &str) -> Option<DeviceFault> {
    let line = text.lines().next().unwrap_or_default().to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| line.contains(part));
    if has(&OUT_OF_MEMORY) {
        return Some(DeviceFault::OutOfMemory);
    }
    (has(&LOST) && !has(&REFUSED)).then_some(DeviceFault::Lost)
}
