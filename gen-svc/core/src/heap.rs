//! Freed memory that the C library keeps.

/// Returns freed memory to the system.
///
/// While a model loads, small numbers that stay are allocated between large buffers that are freed. glibc keeps
/// the room of these buffers, into which larger ones do not fit. The memory of the process would grow with the
/// size of the model.
pub fn return_freed() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code)]
        unsafe extern "C" {
            fn malloc_trim(keep: usize) -> std::ffi::c_int;
        }
        #[allow(unsafe_code)]
        // SAFETY: the function has no preconditions.
        unsafe {
            malloc_trim(0);
        }
    }
}
