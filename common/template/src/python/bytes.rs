//! Text to bytes and back, in UTF-8, UTF-16, UTF-32, Latin-1 and ASCII.

use minijinja::Value;

use crate::arguments::Args;
use crate::budget;
use crate::error::{Error, Fallible, fail};
use crate::python::convert::text_arg;
use crate::taint::{self, Taint};
use crate::value::{Bytes, PyValue, char_of, push_bytes, py_value, text, type_name};

/// The most bytes of a character as bytes: four bytes, each a tainted character.
const MAX_CHAR_BYTES: usize = 16;
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The order of the bytes in a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
    /// A mark at the start decides; little without one.
    Marked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// True with a mark at the start.
    Utf8(bool),
    Utf16(Order),
    Utf32(Order),
    Latin1,
    Ascii,
}

impl Encoding {
    fn of(name: Option<&Value>) -> Fallible<Self> {
        let Some(name) = name else {
            return Ok(Self::Utf8(false));
        };
        let name = taint::strip(text_arg(name, "encoding")?);
        let known: String = name.to_lowercase().chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect();
        Ok(match known.as_str() {
            "utf8" | "u8" | "utf" | "cp65001" => Self::Utf8(false),
            "utf8sig" => Self::Utf8(true),
            "utf16" | "u16" => Self::Utf16(Order::Marked),
            "utf16le" => Self::Utf16(Order::Little),
            "utf16be" => Self::Utf16(Order::Big),
            "utf32" | "u32" => Self::Utf32(Order::Marked),
            "utf32le" => Self::Utf32(Order::Little),
            "utf32be" => Self::Utf32(Order::Big),
            "latin1" | "latin" | "l1" | "iso88591" | "8859" | "cp819" => Self::Latin1,
            "ascii" | "usascii" | "646" => Self::Ascii,
            _ => return Err(fail(format!("the encoding '{name}' is not supported"))),
        })
    }

    /// Returns the bytes of a character, if the encoding has it.
    fn bytes(self, c: char) -> Option<Vec<u8>> {
        let code = u32::from(c);
        match self {
            Self::Utf8(_) => Some(c.encode_utf8(&mut [0; 4]).as_bytes().to_vec()),
            Self::Utf16(Order::Big) => {
                Some(c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_be_bytes()).collect())
            }
            Self::Utf16(_) => Some(c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_le_bytes()).collect()),
            Self::Utf32(Order::Big) => Some(code.to_be_bytes().to_vec()),
            Self::Utf32(_) => Some(code.to_le_bytes().to_vec()),
            Self::Latin1 => u8::try_from(code).ok().map(|byte| vec![byte]),
            Self::Ascii => u8::try_from(code).ok().filter(u8::is_ascii).map(|byte| vec![byte]),
        }
    }

    /// Returns true if the encoding has a byte order mark at the start.
    fn is_marked(self) -> bool {
        matches!(self, Self::Utf8(true) | Self::Utf16(Order::Marked) | Self::Utf32(Order::Marked))
    }

    /// Returns the first character and its length in bytes, or the length of bytes that are
    /// invalid.
    fn character(self, bytes: &[u8]) -> Result<(char, usize), usize> {
        match self {
            Self::Utf8(_) => utf8_char(bytes),
            Self::Utf16(order) => utf16_char(bytes, order),
            Self::Utf32(order) => utf32_char(bytes, order),
            Self::Latin1 => bytes.first().map(|&byte| (char::from(byte), 1)).ok_or(1),
            Self::Ascii => bytes.first().filter(|byte| byte.is_ascii()).map(|&byte| (char::from(byte), 1)).ok_or(1),
        }
    }

    /// Returns the encoding without its mark, and the length of the mark.
    fn without_mark(self, bytes: &[u8]) -> (Self, usize) {
        match (self, bytes) {
            (Self::Utf8(true), [0xef, 0xbb, 0xbf, ..]) => (Self::Utf8(false), 3),
            (Self::Utf16(Order::Marked), [0xff, 0xfe, ..]) => (Self::Utf16(Order::Little), 2),
            (Self::Utf16(Order::Marked), [0xfe, 0xff, ..]) => (Self::Utf16(Order::Big), 2),
            (Self::Utf32(Order::Marked), [0xff, 0xfe, 0, 0, ..]) => (Self::Utf32(Order::Little), 4),
            (Self::Utf32(Order::Marked), [0, 0, 0xfe, 0xff, ..]) => (Self::Utf32(Order::Big), 4),
            _ => (self, 0),
        }
    }
}

fn utf8_char(bytes: &[u8]) -> Result<(char, usize), usize> {
    let start = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(start) {
        Ok(valid) => valid,
        Err(error) if error.valid_up_to() == 0 => return Err(error.error_len().unwrap_or(start.len())),
        Err(error) => std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next().map(|c| (c, c.len_utf8())).ok_or(1)
}

fn utf16_char(bytes: &[u8], order: Order) -> Result<(char, usize), usize> {
    let unit = |at: usize| {
        let pair = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(if order == Order::Big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) })
    };
    let units = [unit(0), unit(2)].into_iter().flatten();
    match char::decode_utf16(units).next() {
        Some(Ok(c)) => Ok((c, 2 * c.len_utf16())),
        _ => Err(bytes.len().min(2)),
    }
}

fn utf32_char(bytes: &[u8], order: Order) -> Result<(char, usize), usize> {
    let unit = bytes
        .first_chunk()
        .map(|&unit| if order == Order::Big { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) });
    unit.and_then(char::from_u32).map(|c| (c, 4)).ok_or(bytes.len().min(4))
}

/// Returns the name of the error handler.
fn handler(value: Option<&Value>) -> Fallible<String> {
    value.map_or(Ok("strict".to_owned()), |value| Ok(taint::strip(text_arg(value, "errors")?).into_owned()))
}

fn unknown_handler(name: &str) -> Error {
    fail(format!("the error handler '{name}' is not supported"))
}

/// Evaluates `text.encode(encoding, errors)`.
pub(crate) fn encode(content: &str, args: &Args<'_>) -> Fallible<Value> {
    let [encoding, errors] = args.bind("encode", ["encoding", "errors"])?;
    let (encoding, errors) = (Encoding::of(encoding.as_ref())?, handler(errors.as_ref())?);
    budget::walk(content.len())?;
    budget::room(content.len().saturating_add(1).saturating_mul(MAX_CHAR_BYTES))?;
    let mut chars = String::new();
    if encoding.is_marked() {
        push_bytes(&mut chars, &encoding.bytes(BYTE_ORDER_MARK).unwrap_or_default(), None);
    }
    let in_use = taint::of(content);
    for c in content.chars() {
        let character = taint::strip_char(c);
        let taint = in_use.filter(|_| character != c);
        match encoding.bytes(character) {
            Some(bytes) => push_bytes(&mut chars, &bytes, taint),
            None => push_bytes(&mut chars, unencodable(character, &errors)?.as_bytes(), taint),
        }
    }
    Bytes::value(chars)
}

/// Returns the replacement of a character that the encoding does not have.
fn unencodable(c: char, errors: &str) -> Fallible<String> {
    let code = u32::from(c);
    match errors {
        "strict" => Err(fail(format!("the encoding cannot encode U+{code:04X}"))),
        "ignore" => Ok(String::new()),
        "replace" => Ok("?".to_owned()),
        "xmlcharrefreplace" => Ok(format!("&#{code};")),
        "backslashreplace" => Ok(match code {
            ..=0xff => format!("\\x{code:02x}"),
            0x100..=0xffff => format!("\\u{code:04x}"),
            _ => format!("\\U{code:08x}"),
        }),
        _ => Err(unknown_handler(errors)),
    }
}

/// Evaluates `bytes.decode(encoding, errors)`. A character is tainted if one of its bytes is.
pub(super) fn decode(bytes: &Bytes, args: &Args<'_>) -> Fallible<Value> {
    let [encoding, errors] = args.bind("decode", ["encoding", "errors"])?;
    let (encoding, errors) = (Encoding::of(encoding.as_ref())?, handler(errors.as_ref())?);
    budget::walk(bytes.as_text().len())?;
    budget::room(bytes.as_text().len().saturating_mul(MAX_CHAR_BYTES))?;
    let in_use = taint::of(bytes.as_text());
    let is_tainted: Vec<bool> = bytes.as_text().chars().map(|c| taint::strip_char(c) != c).collect();
    let bytes: Vec<u8> = bytes.iter().collect();
    let (encoding, mut at) = encoding.without_mark(&bytes);
    let mut decoded = String::new();
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (chars, len) = match encoding.character(rest) {
            Ok((c, len)) => (c.to_string(), len),
            Err(len) => (undecodable(&rest[..len], &errors)?, len),
        };
        push_tainted(&mut decoded, &chars, in_use.filter(|_| is_tainted[at..at + len].contains(&true)));
        at += len;
    }
    text(decoded)
}

fn push_tainted(out: &mut String, chars: &str, taint: Option<Taint>) {
    out.extend(chars.chars().map(|c| taint.map_or(c, |taint| taint.taint_char(c))));
}

/// Returns the replacement of invalid bytes.
fn undecodable(bytes: &[u8], errors: &str) -> Fallible<String> {
    match errors {
        "strict" => Err(fail(format!("the encoding cannot decode the bytes {bytes:02x?}"))),
        "ignore" => Ok(String::new()),
        "replace" => Ok(char::REPLACEMENT_CHARACTER.to_string()),
        "backslashreplace" => Ok(bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()),
        _ => Err(unknown_handler(errors)),
    }
}

/// Returns the character that represents a byte, given as an integer.
pub(super) fn byte_arg(value: &Value) -> Fallible<char> {
    match py_value(value) {
        PyValue::Int(int) => u8::try_from(int).map(char_of).map_err(|_| fail("byte must be in range(0, 256)")),
        PyValue::Bool(flag) => Ok(char_of(flag.into())),
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => Err(fail(format!("a bytes-like object is required, not '{}'", type_name(value)))),
    }
}
