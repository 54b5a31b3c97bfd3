//! The errors of GGUF files.

use std::path::PathBuf;

use crate::excerpt::{excerpt, shown};

/// Why a GGUF file could not be read, or a value of it is missing.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be opened, or it changed while its header was read.
    #[error("cannot open the file")]
    Open(#[source] std::io::Error),
    /// The header could not be read.
    #[error("cannot read the header")]
    Read(#[source] std::io::Error),
    /// A count or a length is larger than in any real file.
    #[error("{}: {found} {what}, limit {limit}", excerpt(part))]
    Limit { part: String, what: &'static str, found: u64, limit: u64 },
    /// The file does not start with `GGUF`.
    #[error("not a GGUF file: starts with \"{}\" instead of \"GGUF\"", found.escape_ascii())]
    Magic { found: [u8; 4] },
    /// The version is neither 2 nor 3, or the file is big-endian.
    #[error("unsupported GGUF version {found}; supported are 2 and 3, little-endian")]
    Version { found: u32 },
    /// The file ends inside a value.
    #[error("file truncated: {what} at byte {offset} needs {needed} bytes, {left} remain")]
    Truncated { what: &'static str, offset: u64, needed: u64, left: u64 },
    /// A count is too large for the rest of the file.
    #[error("{count} {what} at byte {offset} do not fit into the remaining {left} bytes")]
    Count { what: &'static str, offset: u64, count: u64, left: u64 },
    /// A string is not UTF-8.
    #[error("string at byte {offset} is not UTF-8")]
    Utf8 { offset: u64 },
    /// A metadata value has a type that GGUF does not define.
    #[error("unknown metadata type {id} at byte {offset}")]
    ValueType { id: u32, offset: u64 },
    /// Arrays are nested too deeply.
    #[error("array at byte {offset} is nested deeper than {limit}")]
    Depth { limit: u32, offset: u64 },
    /// A key or a tensor name is repeated.
    #[error("{what} {:?} occurs twice", excerpt(name))]
    Duplicate { what: &'static str, name: String },
    /// A required key is missing.
    #[error("metadata key {:?} is missing", excerpt(key))]
    Missing { key: String },
    /// A key's value has the wrong type.
    #[error("metadata key {:?} is {found}, expected {expected}", excerpt(key))]
    WrongType { key: String, expected: &'static str, found: String },
    /// `general.alignment` is invalid.
    #[error("general.alignment is {found}, expected a power of two from 8 to 65536")]
    Alignment { found: u32 },
    /// A tensor has a type that ggml does not define.
    #[error("tensor {:?} has unknown type {id}", excerpt(tensor))]
    TensorType { tensor: String, id: u32 },
    /// A tensor has an invalid shape.
    #[error("tensor {:?} has invalid shape {dims:?} (innermost first): {why}", excerpt(tensor))]
    Shape { tensor: String, dims: Vec<u64>, why: &'static str },
    /// A file is a part of a model, and has another name than that part.
    #[error("{} states to be part {number} of {count}: rename it to NAME-{number:05}-of-{count:05}.gguf", shown(file))]
    PartName { file: PathBuf, number: u64, count: u32 },
    /// A part of the model could not be opened.
    #[error("part {} of the model is not readable: all {count} parts must be in one folder", shown(file))]
    Part {
        file: PathBuf,
        count: u32,
        #[source]
        source: Box<GgufError>,
    },
    /// A file with the name of a part is of another model.
    #[error("{} is a part of another model: {key} is {found}, expected {expected}", shown(file))]
    OtherSplit { file: PathBuf, key: &'static str, found: String, expected: u32 },
    /// The load was cancelled between two parts.
    #[error("cancelled")]
    Cancelled,
    /// A part has a tensor that an earlier part has too.
    #[error("{}: tensor {:?} is in an earlier part too", shown(file), excerpt(name))]
    RepeatedTensor { file: PathBuf, name: String },
    /// The parts have another number of tensors than they state.
    #[error("{}: the parts of the model have {found} tensors, split.tensors.count is {expected}", shown(file))]
    PartTensors { file: PathBuf, found: usize, expected: u32 },
    /// A tensor's data is outside of the file or not aligned.
    #[error(
        "tensor {:?}: {size} bytes at offset {offset} of the data {why} ({available} bytes of data)",
        excerpt(tensor)
    )]
    Data { tensor: String, offset: u64, size: u64, available: u64, why: &'static str },
}
