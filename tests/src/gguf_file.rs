//! GGUF files made in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tandem_model_files::gguf::{Gguf, GgufError};

use crate::files::scratch;

/// Metadata type ids.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;

/// A builder of GGUF files. Counts and contents are set separately, so that they can disagree.
#[derive(Debug, Clone)]
pub struct File {
    pub version: u32,
    pub tensor_count: u64,
    pub entry_count: u64,
    pub entries: Vec<u8>,
    pub tensors: Vec<u8>,
    pub alignment: usize,
    pub data: Vec<u8>,
}

impl Default for File {
    fn default() -> Self {
        Self::new()
    }
}

impl File {
    /// Returns an empty file of version 3.
    #[must_use]
    pub fn new() -> Self {
        let (entries, tensors, data) = (Vec::new(), Vec::new(), Vec::new());
        Self { version: 3, tensor_count: 0, entry_count: 0, entries, tensors, alignment: 32, data }
    }

    pub fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.extend([&string(key)[..], &kind.to_le_bytes(), value].concat());
        self.entry_count += 1;
        self
    }

    pub fn text(self, key: &str, text: &str) -> Self {
        self.entry(key, STRING, &string(text))
    }

    pub fn u32(self, key: &str, number: u32) -> Self {
        self.entry(key, U32, &number.to_le_bytes())
    }

    pub fn f32(self, key: &str, number: f32) -> Self {
        self.entry(key, F32, &number.to_le_bytes())
    }

    pub fn bool(self, key: &str, flag: bool) -> Self {
        self.entry(key, BOOL, &[u8::from(flag)])
    }

    pub fn strings(self, key: &str, all: &[&str]) -> Self {
        let elements: Vec<u8> = all.iter().flat_map(|text| string(text)).collect();
        self.entry(key, ARRAY, &array(STRING, all.len() as u64, &elements))
    }

    pub fn bools(self, key: &str, all: &[bool]) -> Self {
        let elements: Vec<u8> = all.iter().map(|flag| u8::from(*flag)).collect();
        self.entry(key, ARRAY, &array(BOOL, all.len() as u64, &elements))
    }

    pub fn i32s(self, key: &str, all: &[i32]) -> Self {
        let elements: Vec<u8> = all.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.entry(key, ARRAY, &array(I32, all.len() as u64, &elements))
    }

    pub fn f32s(self, key: &str, all: &[f32]) -> Self {
        let elements: Vec<u8> = all.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.entry(key, ARRAY, &array(F32, all.len() as u64, &elements))
    }

    /// Adds a tensor of f32 after the existing tensors. `number` returns each element from its
    /// index. `dims` is innermost first, as in the file.
    pub fn weights(self, name: &str, dims: &[u64], number: impl Fn(u64) -> f32) -> Self {
        let offset = self.data.len();
        let mut file = self.tensor(name, dims, 0, offset as u64);
        file.data.extend((0..dims.iter().product()).flat_map(|place| number(place).to_le_bytes()));
        file.data.resize(file.data.len().next_multiple_of(file.alignment), 0);
        file
    }

    /// Adds a tensor. `dims` is innermost first, as in the file.
    pub fn tensor(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        self.tensors.extend(string(name));
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| self.tensors.extend(dim.to_le_bytes()));
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self
    }

    pub fn data(mut self, len: usize) -> Self {
        self.data = (0..len).map(|at| at as u8).collect();
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [&b"GGUF"[..], &self.version.to_le_bytes()].concat();
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.entry_count.to_le_bytes());
        bytes.extend([&self.entries[..], &self.tensors].concat());
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend(&self.data);
        bytes
    }

    /// Writes the file into the suite's own folder and returns its path.
    pub fn write(&self) -> PathBuf {
        write(&self.bytes())
    }

    /// Writes the file to a path.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write_to(&self, path: &Path) {
        std::fs::write(path, self.bytes()).expect("the test's folder can be written");
    }

    pub fn open(&self) -> Result<Gguf, GgufError> {
        open(&self.bytes())
    }
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

pub fn array(kind: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

pub fn write(bytes: &[u8]) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{}-{}.gguf", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = scratch().join(name);
    std::fs::write(&path, bytes).expect("the test's folder can be written");
    path
}

/// Writes bytes to a file, opens it and removes it.
pub fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
    let path = write(bytes);
    let opened = Gguf::open(&path);
    std::fs::remove_file(path).expect("the file is there");
    opened
}
