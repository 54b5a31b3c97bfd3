//! The limits of one render.

/// Limits on the resources of one render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Computing steps: one per operation, loop round and 32 bytes of text copied or searched.
    /// Every byte of the conversation adds 16.
    pub steps: u64,
    /// Bytes of values that the template creates. Lists and long texts are credited when they are
    /// dropped. Every byte of the conversation adds 8.
    pub bytes: u64,
    /// Bytes of the prompt.
    pub output: u64,
}

impl Default for Limits {
    /// Far more than any real template needs. A hostile template is stopped within two seconds and
    /// half a gigabyte; a conversation of tens of megabytes still renders.
    fn default() -> Self {
        Self { steps: 30_000_000, bytes: 256 * 1024 * 1024, output: 128 * 1024 * 1024 }
    }
}
