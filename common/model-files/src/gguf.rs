//! GGUF files (versions 2 and 3, little-endian): metadata, and tensors in the file's own bytes. The
//! header is read at once, tensors on request.
//!
//! A file is untrusted. Every count, length, offset and shape is checked against the file's size
//! and against fixed limits before any allocation.

mod cursor;
mod error;
mod ggml_type;
mod limits;
pub(crate) mod split;
mod value;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use crate::cancel::CancelScope;
use crate::source_file::{FileBytes, SourceFile};
use cursor::Cursor;
pub use error::GgufError;
pub use ggml_type::GgmlType;
use limits::{MAX_ENTRIES, MAX_TENSORS};
use split::Declared;
pub use value::{Array, FromValue, Value};

const MAGIC: &[u8; 4] = b"GGUF";
/// ggml's limit of a tensor's dimensions.
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: u32 = 32;
/// The minimum size of a metadata entry: key length, type, a one-byte value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// The minimum size of a tensor's description: name length, dimension count, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// A GGUF file whose header is read, or all files of a model.
pub struct Gguf {
    files: Vec<SourceFile>,
    version: u32,
    metadata: HashMap<String, Value>,
    /// In the order of the file.
    tensors: Vec<Entry>,
    by_name: HashMap<String, usize>,
}

/// A tensor in the file.
#[derive(Debug, Clone)]
pub struct TensorInfo<'a> {
    pub name: &'a str,
    /// The dimensions, outermost first; GGUF itself stores the innermost first.
    pub dims: &'a [usize],
    pub dtype: GgmlType,
    /// The raw blocks. Their length matches `dims` and `dtype`.
    pub data: FileBytes<'a>,
}

struct Entry {
    name: String,
    dims: Vec<usize>,
    dtype: GgmlType,
    /// The index of the file.
    file: usize,
    /// Byte range in the file.
    range: Range<u64>,
}

/// A tensor's description, before its data has been located.
struct Header {
    name: String,
    dims: Vec<u64>,
    dtype: GgmlType,
    /// Relative to the start of the data section.
    offset: u64,
}

impl Gguf {
    /// Reads and checks the whole header.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let read = |file: &File, length| Parts::read(&mut Cursor::new(file, length), length);
        let (file, Parts { version, metadata, tensors }) = SourceFile::open(path, GgufError::Open, read)?;
        let by_name = index(&tensors)?;
        Ok(Self { files: vec![file], version, metadata, tensors, by_name })
    }

    /// Opens the model that is in the file, or of which the file is a part. The other parts are in the
    /// same folder. The metadata is that of the first part.
    pub fn open_all(path: &Path) -> Result<Self, GgufError> {
        let given = Self::open(path)?;
        let Some(declared) = Declared::read(&given.metadata)? else { return Ok(given) };
        let name = declared.name(path)?;
        let first = name.part(path, 1);
        let mut given = Some(given);
        let mut open = |file: &Path, number: u32| -> Result<Self, GgufError> {
            let failed =
                |source| GgufError::Part { file: file.to_owned(), count: name.count, source: Box::new(source) };
            let given = given.take_if(|_| number == name.number);
            let part = given.map_or_else(|| Self::open(file), Ok).map_err(failed)?;
            declared.check(file, Declared::read(&part.metadata).map_err(failed)?, number)?;
            Ok(part)
        };
        let mut whole = open(&first, 1)?;
        for number in 2..=name.count {
            if CancelScope::is_cancelled() {
                return Err(GgufError::Cancelled);
            }
            let file = name.part(path, number);
            whole.append(&file, open(&file, number)?)?;
            declared.check_most(&first, whole.tensors.len())?;
        }
        declared.check_tensors(&first, whole.tensors.len())?;
        Ok(whole)
    }

    /// Adds the tensors of another part.
    fn append(&mut self, file: &Path, part: Self) -> Result<(), GgufError> {
        let first = self.files.len();
        self.files.extend(part.files);
        for entry in part.tensors {
            if self.by_name.insert(entry.name.clone(), self.tensors.len()).is_some() {
                return Err(GgufError::RepeatedTensor { file: file.to_owned(), name: entry.name });
            }
            self.tensors.push(Entry { file: first + entry.file, ..entry });
        }
        Ok(())
    }

    /// Returns the version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns a metadata value.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Returns all metadata keys, unordered.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.keys().map(String::as_str)
    }

    /// Returns a required metadata value as `T`. Fails if the key is missing or its value has
    /// another type.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, GgufError> {
        self.find(key)?.ok_or_else(|| GgufError::Missing { key: key.to_owned() })
    }

    /// Returns an optional metadata value as `T`. Fails if its value has another type.
    pub fn find<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, GgufError> {
        value::find(&self.metadata, key)
    }

    /// Returns a tensor by name.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.by_name.get(name).map(|&at| self.view(&self.tensors[at]))
    }

    /// Returns all tensors, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.tensors.iter().map(|entry| self.view(entry))
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> TensorInfo<'a> {
        let data = self.files[entry.file].bytes(entry.range.clone());
        TensorInfo { name: &entry.name, dims: &entry.dims, dtype: entry.dtype, data }
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version)
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The parts of a header.
struct Parts {
    version: u32,
    metadata: HashMap<String, Value>,
    tensors: Vec<Entry>,
}

impl Parts {
    fn read(cursor: &mut Cursor<'_>, file_length: u64) -> Result<Self, GgufError> {
        let version = read_version(cursor)?;
        let tensor_count = cursor.u64("tensor count")?;
        let entry_count = cursor.u64("metadata count")?;
        let metadata = read_metadata(cursor, entry_count)?;
        let headers = read_headers(cursor, tensor_count)?;
        let alignment = alignment(&metadata)?;
        let tensors = locate(headers, cursor.offset(), alignment, file_length)?;
        Ok(Self { version, metadata, tensors })
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let found = cursor.bytes::<4>("magic")?;
    if &found != MAGIC {
        return Err(GgufError::Magic { found });
    }
    match cursor.u32("version")? {
        version @ (2 | 3) => Ok(version),
        found => Err(GgufError::Version { found }),
    }
}

fn read_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<HashMap<String, Value>, GgufError> {
    cursor.check_count("metadata entries", count, MIN_ENTRY_BYTES)?;
    cursor.check_limit("metadata entries", count, MAX_ENTRIES)?;
    let mut metadata = HashMap::new();
    for _ in 0..count {
        cursor.enter("metadata".to_owned());
        let key = cursor.string("metadata key")?;
        cursor.enter(format!("metadata key {key:?}"));
        let value = Value::read(cursor)?;
        if metadata.contains_key(&key) {
            return Err(GgufError::Duplicate { what: "metadata key", name: key });
        }
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn read_headers(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Header>, GgufError> {
    cursor.check_count("tensors", count, MIN_TENSOR_BYTES)?;
    cursor.enter("header".to_owned());
    cursor.check_limit("tensors", count, MAX_TENSORS)?;
    (0..count).map(|_| read_header(cursor)).collect()
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Header, GgufError> {
    let name = cursor.string("tensor name")?;
    let rank = cursor.u32("dimension count")?;
    if rank > MAX_DIMS {
        return Err(GgufError::Shape { tensor: name, dims: Vec::new(), why: "more than 4 dimensions" });
    }
    let dims = (0..rank).map(|_| cursor.u64("dimension")).collect::<Result<Vec<_>, _>>()?;
    let id = cursor.u32("tensor type")?;
    let offset = cursor.u64("tensor offset")?;
    match GgmlType::from_id(id) {
        Some(dtype) => Ok(Header { name, dims, dtype, offset }),
        None => Err(GgufError::TensorType { tensor: name, id }),
    }
}

fn alignment(metadata: &HashMap<String, Value>) -> Result<u64, GgufError> {
    const KEY: &str = "general.alignment";
    let found = match metadata.get(KEY) {
        None => DEFAULT_ALIGNMENT,
        Some(value) => u32::from_value(value).ok_or_else(|| GgufError::WrongType {
            key: KEY.to_owned(),
            expected: u32::EXPECTED,
            found: value.describe(),
        })?,
    };
    if found.is_power_of_two() && (8..=65_536).contains(&found) {
        Ok(u64::from(found))
    } else {
        Err(GgufError::Alignment { found })
    }
}

/// Converts offsets into ranges of the file. The data section starts at the first aligned byte
/// after the header.
fn locate(headers: Vec<Header>, header_end: u64, alignment: u64, file: u64) -> Result<Vec<Entry>, GgufError> {
    let start = header_end.next_multiple_of(alignment);
    let available = file.saturating_sub(start);
    headers.into_iter().map(|header| locate_one(header, start, alignment, available)).collect()
}

fn locate_one(header: Header, start: u64, alignment: u64, available: u64) -> Result<Entry, GgufError> {
    let Header { name, dims, dtype, offset } = header;
    let size = match byte_size(&dims, dtype) {
        Ok(size) => size,
        Err(why) => return Err(GgufError::Shape { tensor: name, dims, why }),
    };
    let outside = |why| GgufError::Data { tensor: name.clone(), offset, size, available, why };
    if !offset.is_multiple_of(alignment) {
        return Err(outside("are not aligned"));
    }
    match offset.checked_add(size) {
        Some(end) if end <= available => {}
        _ => return Err(outside("are outside of the file")),
    }
    let at = start + offset; // no overflow: the sum is below the size of the file
    let dims = dims.iter().rev().map(|&dim| dim as usize).collect();
    Ok(Entry { name, dims, dtype, file: 0, range: at..at + size })
}

/// Returns the size of a tensor in bytes. `dims` is innermost first; rows consist of whole blocks.
fn byte_size(dims: &[u64], dtype: GgmlType) -> Result<u64, &'static str> {
    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_len()) {
        return Err("a row is not a whole number of blocks");
    }
    let row_bytes = (row / dtype.block_len()).checked_mul(dtype.block_bytes());
    let size = dims.iter().skip(1).try_fold(row_bytes.ok_or("too large")?, |size, &dim| size.checked_mul(dim));
    size.ok_or("too large")
}

fn index(tensors: &[Entry]) -> Result<HashMap<String, usize>, GgufError> {
    let mut by_name = HashMap::with_capacity(tensors.len());
    for (at, tensor) in tensors.iter().enumerate() {
        if by_name.insert(tensor.name.clone(), at).is_some() {
            return Err(GgufError::Duplicate { what: "tensor", name: tensor.name.clone() });
        }
    }
    Ok(by_name)
}
