//! The header of a safetensors file: 8 bytes of length, then JSON with the dtype, shape and offsets
//! of every tensor.

use std::collections::HashMap;
use std::io::Read;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::view::Entry;
use crate::excerpt::excerpt;

/// The maximum length of the JSON: a hundred times the length in the largest known models.
const MAX_HEADER_BYTES: u64 = 64 << 20;
/// The bytes of the length before the JSON.
const PREFIX_BYTES: u64 = 8;
/// The entry that is not a tensor.
const METADATA: &str = "__metadata__";

/// Bytes of one number, by dtype. The size of a tensor with another dtype is not checked, because
/// the format may get new dtypes.
const SIZES: &[(&str, u64)] = &[
    ("BOOL", 1),
    ("U8", 1),
    ("I8", 1),
    ("F8_E5M2", 1),
    ("F8_E4M3", 1),
    ("F8_E8M0", 1),
    ("I16", 2),
    ("U16", 2),
    ("F16", 2),
    ("BF16", 2),
    ("I32", 4),
    ("U32", 4),
    ("F32", 4),
    ("F64", 8),
    ("I64", 8),
    ("U64", 8),
    ("C64", 8),
];

/// Why a header could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The header could not be read.
    #[error("cannot read the header")]
    Read(#[source] std::io::Error),
    /// The file ends inside the header.
    #[error("file truncated: the header needs {needed} bytes, the file has {found}")]
    Truncated { needed: u64, found: u64 },
    /// The header is too long.
    #[error("header has {found} bytes, limit {MAX_HEADER_BYTES}")]
    TooLarge { found: u64 },
    /// The header is not valid JSON of the expected form, or names a tensor twice.
    #[error("invalid header: {}", excerpt(.0))]
    Json(serde_json::Error),
    /// A tensor's shape and size disagree.
    #[error(
        "tensor {:?} has {size} bytes, which does not match {} of shape {}",
        excerpt(tensor), excerpt(dtype), excerpt(format_args!("{shape:?}"))
    )]
    Shape { tensor: String, dtype: String, shape: Vec<u64>, size: u64 },
    /// A tensor's data is outside of the file.
    #[error("tensor {:?} has offsets {begin} to {end}, outside of the {available} bytes of data", excerpt(tensor))]
    Outside { tensor: String, begin: u64, end: u64, available: u64 },
    /// Two tensors share bytes.
    #[error("tensors {:?} and {:?} overlap", excerpt(first), excerpt(second))]
    Overlap { first: String, second: String },
}

/// The tensors of a file and their locations.
#[derive(Debug)]
pub struct Header {
    /// The bytes of the JSON.
    bytes: u64,
    entries: HashMap<String, Entry>,
}

/// The JSON of a tensor.
#[derive(Deserialize)]
struct Described {
    dtype: String,
    shape: Vec<u64>,
    /// Begin and end, relative to the end of the header.
    data_offsets: (u64, u64),
}

impl Header {
    /// Reads and checks the header of a file of `length` bytes.
    ///
    /// # Errors
    /// Fails if the header cannot be read or is invalid.
    pub fn read(file: &mut impl Read, length: u64) -> Result<Self, HeaderError> {
        let json = json(file, length)?;
        let start = PREFIX_BYTES + json.len() as u64;
        let Entries(described) = serde_json::from_slice(&json).map_err(HeaderError::Json)?;
        let available = length - start;
        let locate =
            |(name, described): (String, Described)| Ok((name.clone(), locate(name, described, start, available)?));
        let entries: Vec<_> = described.into_iter().map(locate).collect::<Result<_, _>>()?;
        check_overlaps(&entries)?;
        Ok(Self { bytes: json.len() as u64, entries: entries.into_iter().collect() })
    }

    /// Returns the bytes of the JSON.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the names of all tensors, unordered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Returns the location of a tensor.
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

/// Reads the JSON, whose length precedes it.
fn json(file: &mut impl Read, found: u64) -> Result<Vec<u8>, HeaderError> {
    if found < PREFIX_BYTES {
        return Err(HeaderError::Truncated { needed: PREFIX_BYTES, found });
    }
    let mut prefix = [0; PREFIX_BYTES as usize];
    file.read_exact(&mut prefix).map_err(HeaderError::Read)?;
    let length = u64::from_le_bytes(prefix);
    if length > MAX_HEADER_BYTES {
        return Err(HeaderError::TooLarge { found: length });
    }
    let needed = PREFIX_BYTES + length;
    if needed > found {
        return Err(HeaderError::Truncated { needed, found });
    }
    let mut json = vec![0; length as usize];
    file.read_exact(&mut json).map_err(HeaderError::Read)?;
    Ok(json)
}

fn locate(tensor: String, described: Described, start: u64, available: u64) -> Result<Entry, HeaderError> {
    let Described { dtype, shape, data_offsets: (begin, end) } = described;
    if begin > end || end > available {
        return Err(HeaderError::Outside { tensor, begin, end, available });
    }
    let size = end - begin;
    if bytes(&dtype, &shape).is_none_or(|expected| expected.is_some_and(|expected| expected != size)) {
        return Err(HeaderError::Shape { tensor, dtype, shape, size });
    }
    let shape = shape.into_iter().map(|dim| dim as usize).collect();
    Ok(Entry { dtype, shape, range: start + begin..start + end })
}

/// Returns the size of a tensor in bytes: Some(None) for an unknown dtype, None on overflow.
fn bytes(dtype: &str, shape: &[u64]) -> Option<Option<u64>> {
    let count = shape.iter().try_fold(1_u64, |count, &dim| count.checked_mul(dim))?;
    match SIZES.iter().find(|(known, _)| *known == dtype) {
        Some((_, size)) => count.checked_mul(*size).map(Some),
        None => Some(None),
    }
}

fn check_overlaps(entries: &[(String, Entry)]) -> Result<(), HeaderError> {
    let mut by_place: Vec<_> = entries.iter().filter(|(_, entry)| !entry.range.is_empty()).collect();
    by_place.sort_unstable_by_key(|(_, entry)| entry.range.start);
    match by_place.windows(2).find(|pair| pair[0].1.range.end > pair[1].1.range.start) {
        Some(pair) => Err(HeaderError::Overlap { first: pair[0].0.clone(), second: pair[1].0.clone() }),
        None => Ok(()),
    }
}

/// The entries of an object, without [`METADATA`]. A repeated name is an error.
struct Entries<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(std::marker::PhantomData))
    }
}

struct EntriesVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
        let mut seen = std::collections::HashSet::new();
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
            } else if seen.insert(name.clone()) {
                entries.push((name, map.next_value()?));
            } else {
                return Err(A::Error::custom(format_args!("{name:?} occurs twice")));
            }
        }
        Ok(Entries(entries))
    }
}
