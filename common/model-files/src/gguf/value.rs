//! Metadata values and their conversion.

use std::collections::HashMap;

use super::cursor::Cursor;
use super::error::GgufError;
use super::limits::MAX_STRINGS;

/// The maximum nesting depth of arrays. Known files have at most two levels.
const MAX_DEPTH: u32 = 4;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A metadata array. Its elements have one type, so they need about as many bytes in memory as in
/// the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Array(Vec<Array>),
}

/// Reads `$len` elements of a fixed-size type.
macro_rules! numbers {
    ($cursor:expr, $len:expr, $number:ty) => {{
        $cursor.check_count("array elements", $len, size_of::<$number>() as u64)?;
        $cursor.elements($len, <$number>::from_le_bytes)?
    }};
}

impl Value {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        let offset = cursor.offset();
        let id = cursor.u32("metadata type")?;
        Ok(match id {
            0 => Self::U8(u8::from_le_bytes(cursor.bytes("value")?)),
            1 => Self::I8(i8::from_le_bytes(cursor.bytes("value")?)),
            2 => Self::U16(u16::from_le_bytes(cursor.bytes("value")?)),
            3 => Self::I16(i16::from_le_bytes(cursor.bytes("value")?)),
            4 => Self::U32(u32::from_le_bytes(cursor.bytes("value")?)),
            5 => Self::I32(i32::from_le_bytes(cursor.bytes("value")?)),
            6 => Self::F32(f32::from_le_bytes(cursor.bytes("value")?)),
            7 => Self::Bool(u8::from_le_bytes(cursor.bytes("value")?) != 0),
            8 => Self::String(cursor.string("value")?),
            9 => Self::Array(Array::read(cursor, 1)?),
            10 => Self::U64(u64::from_le_bytes(cursor.bytes("value")?)),
            11 => Self::I64(i64::from_le_bytes(cursor.bytes("value")?)),
            12 => Self::F64(f64::from_le_bytes(cursor.bytes("value")?)),
            _ => return Err(GgufError::ValueType { id, offset }),
        })
    }

    /// Returns the type and, if it is short, the value, for error messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::String(text) if text.len() > 40 => format!("a string of {} bytes", text.len()),
            Self::Array(array) => format!("an array of {} {}", array.len(), array.element()),
            short => format!("{short:?}"),
        }
    }

    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(n) => n.into(),
            Self::I8(n) => n.into(),
            Self::U16(n) => n.into(),
            Self::I16(n) => n.into(),
            Self::U32(n) => n.into(),
            Self::I32(n) => n.into(),
            Self::U64(n) => n.into(),
            Self::I64(n) => n.into(),
            _ => return None,
        })
    }
}

impl Array {
    fn read(cursor: &mut Cursor<'_>, depth: u32) -> Result<Self, GgufError> {
        let offset = cursor.offset();
        if depth > MAX_DEPTH {
            return Err(GgufError::Depth { limit: MAX_DEPTH, offset });
        }
        let id = cursor.u32("array type")?;
        let len = cursor.u64("array length")?;
        Ok(match id {
            0 => Self::U8(numbers!(cursor, len, u8)),
            1 => Self::I8(numbers!(cursor, len, i8)),
            2 => Self::U16(numbers!(cursor, len, u16)),
            3 => Self::I16(numbers!(cursor, len, i16)),
            4 => Self::U32(numbers!(cursor, len, u32)),
            5 => Self::I32(numbers!(cursor, len, i32)),
            6 => Self::F32(numbers!(cursor, len, f32)),
            7 => Self::Bool(cursor.elements(len, |[byte]| byte != 0)?),
            8 => Self::String(read_strings(cursor, len)?),
            9 => Self::Array(read_arrays(cursor, len, depth)?),
            10 => Self::U64(numbers!(cursor, len, u64)),
            11 => Self::I64(numbers!(cursor, len, i64)),
            12 => Self::F64(numbers!(cursor, len, f64)),
            _ => return Err(GgufError::ValueType { id, offset }),
        })
    }

    /// Returns the count of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(all) => all.len(),
            Self::I8(all) => all.len(),
            Self::U16(all) => all.len(),
            Self::I16(all) => all.len(),
            Self::U32(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::U64(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::F64(all) => all.len(),
            Self::Bool(all) => all.len(),
            Self::String(all) => all.len(),
            Self::Array(all) => all.len(),
        }
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn element(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "strings",
            Self::Array(_) => "arrays",
        }
    }
}

fn read_strings(cursor: &mut Cursor<'_>, len: u64) -> Result<Vec<String>, GgufError> {
    cursor.check_count("strings", len, size_of::<u64>() as u64)?;
    cursor.check_limit("strings", len, MAX_STRINGS)?;
    cursor.count_elements(len)?;
    (0..len).map(|_| cursor.element()).collect()
}

fn read_arrays(cursor: &mut Cursor<'_>, len: u64, depth: u32) -> Result<Vec<Array>, GgufError> {
    cursor.check_count("arrays", len, (size_of::<u32>() + size_of::<u64>()) as u64)?;
    cursor.check_limit("arrays", len, MAX_STRINGS)?;
    cursor.count_elements(len)?;
    (0..len).map(|_| Array::read(cursor, depth + 1)).collect()
}

/// Returns an optional metadata value as `T`.
///
/// # Errors
/// The value has another type.
pub(super) fn find<'a, T: FromValue<'a>>(
    metadata: &'a HashMap<String, Value>,
    key: &str,
) -> Result<Option<T>, GgufError> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    match T::from_value(value) {
        Some(found) => Ok(Some(found)),
        None => Err(GgufError::WrongType { key: key.to_owned(), expected: T::EXPECTED, found: value.describe() }),
    }
}

/// A type that a metadata value can be converted to.
pub trait FromValue<'a>: Sized {
    /// The type's name in error messages.
    const EXPECTED: &'static str;

    /// Converts the value. Returns None if it has another type or is out of range.
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl<'a> FromValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const EXPECTED: &'static str = "a bool";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }
}

/// Accepts all integer types whose value fits, because writers choose different widths.
impl FromValue<'_> for u32 {
    const EXPECTED: &'static str = "an integer from 0 to 4294967295";

    fn from_value(value: &Value) -> Option<Self> {
        value.integer()?.try_into().ok()
    }
}

/// Rejects NaN and infinity, and doubles beyond the range of `f32`.
impl FromValue<'_> for f32 {
    const EXPECTED: &'static str = "a finite float";

    fn from_value(value: &Value) -> Option<Self> {
        let number = match value {
            Value::F32(number) => *number,
            Value::F64(number) => *number as f32,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }
}

impl<'a> FromValue<'a> for &'a [String] {
    const EXPECTED: &'static str = "an array of strings";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::String(all)) => Some(all),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [i32] {
    const EXPECTED: &'static str = "an array of i32";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::I32(all)) => Some(all),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [bool] {
    const EXPECTED: &'static str = "an array of bool";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::Bool(all)) => Some(all),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a [f32] {
    const EXPECTED: &'static str = "an array of f32";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::F32(all)) => Some(all),
            _ => None,
        }
    }
}
