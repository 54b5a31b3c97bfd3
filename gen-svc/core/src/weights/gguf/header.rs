//! The settings in a GGUF header, under the keys of its architecture.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tandem_model_files::excerpt;
use tandem_model_files::gguf::{Array, FromValue, Gguf, GgufError, TensorInfo, Value};

use crate::error::LoadError;

/// A GGUF file and the name of its architecture. Records the keys and tensors that are read, so that
/// the others can be refused.
#[derive(Debug)]
pub struct GgufHeader {
    gguf: Arc<Gguf>,
    architecture: String,
    read: Mutex<HashSet<String>>,
}

impl GgufHeader {
    /// Reads the architecture's name.
    ///
    /// # Errors
    /// The file names no architecture.
    pub fn new(gguf: Arc<Gguf>) -> Result<Self, LoadError> {
        let architecture = gguf.get::<&str>("general.architecture").map_err(unreadable)?.to_owned();
        Ok(Self { gguf, architecture, read: Mutex::default() })
    }

    /// Returns the architecture's name in GGUF, such as `qwen3moe`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &Gguf {
        &self.gguf
    }

    /// Returns the bytes of all tensors.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        self.gguf.tensors().map(|tensor| tensor.data.len() as u64).sum()
    }

    /// Returns an optional setting. `key` is the part of its key after the architecture's name.
    ///
    /// # Errors
    /// The value has another type.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, LoadError> {
        let key = format!("{}.{key}", self.architecture);
        let found = self.gguf.find(&key).map_err(unreadable);
        self.record(key);
        found
    }

    /// Returns a setting that the file must have.
    ///
    /// # Errors
    /// The setting is missing, or has another type.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, LoadError> {
        let missing = || unreadable(GgufError::Missing { key: format!("{}.{key}", self.architecture) });
        self.find(key)?.ok_or_else(missing)
    }

    /// Returns an optional whole number that is the same for all layers. The file has it once, or
    /// once for each layer.
    ///
    /// # Errors
    /// The value has another type, or the layers have different numbers.
    pub fn find_of_layers(&self, key: &str) -> Result<Option<u32>, LoadError> {
        let Some(Value::Array(array)) = self.value(key) else { return self.find(key) };
        let layers = self.find::<u32>("block_count")?.unwrap_or(0) as usize;
        match whole_numbers(array) {
            Some(numbers) if numbers.len() == layers && numbers.windows(2).all(|pair| pair[0] == pair[1]) => {
                self.record(format!("{}.{key}", self.architecture));
                Ok(numbers.first().copied())
            }
            Some(numbers) => Err(self.refused(key, format_args!("{numbers:?} in {layers} layers"))),
            None => self.find(key),
        }
    }

    /// Returns a tensor that is a setting.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'_>> {
        let found = self.gguf.tensor(name);
        self.record(name.to_owned());
        found
    }

    /// Returns the value of a key, which is not recorded as read.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.gguf.metadata(&format!("{}.{key}", self.architecture))
    }

    /// Returns the keys of the architecture that were not read, sorted, without the architecture's
    /// name.
    #[must_use]
    pub fn unread_keys(&self) -> Vec<&str> {
        let read = self.read.lock();
        let prefix = format!("{}.", self.architecture);
        let unread = self.gguf.keys().filter(|key| !read.contains(*key));
        let mut unread: Vec<&str> = unread.filter_map(|key| key.strip_prefix(prefix.as_str())).collect();
        unread.sort_unstable();
        unread
    }

    /// Returns true if the tensor was read as a setting.
    #[must_use]
    pub fn is_setting(&self, tensor: &str) -> bool {
        self.read.lock().contains(tensor)
    }

    /// Returns the error of a key whose value is not supported.
    pub fn refused(&self, key: &str, value: impl std::fmt::Display) -> LoadError {
        LoadError::HeaderSetting { key: format!("{}.{key}", self.architecture), value: excerpt(value).to_string() }
    }

    /// Returns the number of layers, without those of drafts if a file of the architecture may have
    /// such layers.
    ///
    /// # Errors
    /// A value is missing or no number, or all layers draft.
    pub fn layers(&self, may_draft: bool) -> Result<u32, LoadError> {
        const DRAFTING: &str = "nextn_predict_layers";
        let all = self.require::<u32>("block_count")?;
        let drafting = if may_draft { self.find::<u32>(DRAFTING)?.unwrap_or(0) } else { 0 };
        all.checked_sub(drafting)
            .filter(|layers| drafting == 0 || *layers > 0)
            .ok_or_else(|| self.refused(DRAFTING, format_args!("{drafting} of {all} layers")))
    }

    /// Returns the sliding window, if the file has one.
    ///
    /// # Errors
    /// The value is not a number.
    pub fn window(&self) -> Result<Option<u32>, LoadError> {
        Ok(self.find("attention.sliding_window")?.filter(|window| *window > 0))
    }

    /// Returns the size of a head.
    ///
    /// # Errors
    /// A value is not a number.
    pub fn head_size(&self) -> Result<u32, LoadError> {
        self.find("attention.key_length")?.map_or_else(|| self.hidden_size_per_head(), Ok)
    }

    /// Returns the hidden size divided by the number of heads.
    ///
    /// # Errors
    /// A value is not a number.
    pub fn hidden_size_per_head(&self) -> Result<u32, LoadError> {
        let heads = self.find_of_layers("attention.head_count")?.unwrap_or(0);
        let hidden = self.find::<u32>("embedding_length")?.unwrap_or(0);
        Ok(hidden.checked_div(heads).unwrap_or(0))
    }

    fn record(&self, name: String) {
        self.read.lock().insert(name);
    }
}

/// Returns the numbers of an array of the types that writers use for sizes.
fn whole_numbers(array: &Array) -> Option<Vec<u32>> {
    match array {
        Array::U32(numbers) => Some(numbers.clone()),
        Array::I32(numbers) => numbers.iter().map(|number| u32::try_from(*number).ok()).collect(),
        _ => None,
    }
}

fn unreadable(error: GgufError) -> LoadError {
    LoadError::Header(Box::new(error))
}
