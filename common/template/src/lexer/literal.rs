//! Numbers and quoted strings.

use num_bigint::BigInt;

use super::fold_newlines;
use crate::ast::Const;
use crate::error::CompileError;

/// Returns the number at the start of a text, and its length.
pub(super) fn number(text: &str, after_dot: bool) -> Option<(Const, usize)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let float = if after_dot { None } else { float_len(text) };
    match float {
        Some(len) => Some((Const::Float(without_underscores(&text[..len]).parse().ok()?), len)),
        None => integer(text),
    }
}

fn without_underscores(text: &str) -> String {
    text.replace('_', "")
}

/// Returns the length of a float: digits, then a fraction, an exponent, or both.
fn float_len(text: &str) -> Option<usize> {
    let whole = digits_len(text, 10)?;
    let fraction = fraction_len(&text[whole..]).unwrap_or(0);
    let exponent = exponent_len(&text[whole + fraction..]).unwrap_or(0);
    (fraction + exponent > 0).then_some(whole + fraction + exponent)
}

fn fraction_len(text: &str) -> Option<usize> {
    Some(1 + digits_len(text.strip_prefix('.')?, 10)?)
}

fn exponent_len(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(['e', 'E'])?;
    let unsigned = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    Some(text.len() - unsigned.len() + digits_len(unsigned, 10)?)
}

/// Returns the length of digits with single underscores between them.
fn digits_len(text: &str, radix: u32) -> Option<usize> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(|&byte| char::from(byte).is_digit(radix));
    if !digit(0) {
        return None;
    }
    let mut len = 1;
    loop {
        if digit(len) {
            len += 1;
        } else if bytes.get(len) == Some(&b'_') && digit(len + 1) {
            len += 2;
        } else {
            return Some(len);
        }
    }
}

fn integer(text: &str) -> Option<(Const, usize)> {
    for (prefix, radix) in [("0b", 2), ("0o", 8), ("0x", 16)] {
        if text.len() > 2 && text.is_char_boundary(2) && text[..2].eq_ignore_ascii_case(prefix) {
            let rest = text[2..].strip_prefix('_').unwrap_or(&text[2..]);
            if let Some(len) = digits_len(rest, radix) {
                return Some((int(&rest[..len], radix)?, text.len() - rest.len() + len));
            }
        }
    }
    let len = digits_len(text, 10)?;
    let len = if text.starts_with('0') { zeros_len(&text[..len]) } else { len };
    Some((int(&text[..len], 10)?, len))
}

/// Returns the length of a number that starts with 0: only zeros belong to it.
fn zeros_len(digits: &str) -> usize {
    let zeros = digits.find(|c| c != '0' && c != '_').unwrap_or(digits.len());
    digits[..zeros].trim_end_matches('_').len()
}

/// The most digits that CPython reads.
const MAX_DIGITS: usize = 4300;

fn int(digits: &str, radix: u32) -> Option<Const> {
    let digits = without_underscores(digits);
    if digits.len() > MAX_DIGITS {
        return None;
    }
    match i128::from_str_radix(&digits, radix) {
        Ok(int) => Some(Const::Int(int)),
        Err(_) => Some(Const::BigInt(BigInt::parse_bytes(digits.as_bytes(), radix)?)),
    }
}

/// Why a quoted string is invalid.
pub(super) enum Problem {
    Malformed(&'static str),
    Unsupported(&'static str),
}

impl Problem {
    pub(super) fn at(self, line: u32) -> CompileError {
        match self {
            Self::Malformed(message) => CompileError::Syntax { line, message: message.to_owned() },
            Self::Unsupported(construct) => CompileError::Unsupported { line, construct: construct.to_owned() },
        }
    }
}

/// Returns the length and content of the quoted string at the start of a text.
pub(super) fn string(text: &str) -> Option<(usize, Result<String, Problem>)> {
    let bytes = text.as_bytes();
    let quote = *bytes.first()?;
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            byte if byte == quote => break,
            b'\\' => at += 1 + text[at + 1..].chars().next()?.len_utf8(),
            _ => at += 1,
        }
    }
    Some((at + 1, unescape(&fold_newlines(&text[1..at]))))
}

/// Resolves escapes as Python's `unicode-escape` does.
fn unescape(text: &str) -> Result<String, Problem> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], &mut out)?;
    }
    out.push_str(rest);
    Ok(out)
}

/// Resolves the escape behind a backslash; returns the rest of the text.
fn escape<'t>(text: &'t str, out: &mut String) -> Result<&'t str, Problem> {
    let mut chars = text.chars();
    let Some(c) = chars.next() else {
        return Err(Problem::Malformed("\\ at end of string"));
    };
    let simple = match c {
        '\n' => return Ok(chars.as_str()),
        '\\' | '\'' | '"' => c,
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        'x' => return hex(chars.as_str(), 2, "a \\x escape has two digits", out),
        'u' => return hex(chars.as_str(), 4, "a \\u escape has four digits", out),
        'U' => return hex(chars.as_str(), 8, "a \\U escape has eight digits", out),
        'N' => return Err(Problem::Unsupported("a \\N{...} escape")),
        '0'..='7' => return octal(text, out),
        c if c.is_ascii() => {
            out.extend(['\\', c]);
            return Ok(chars.as_str());
        }
        c => {
            out.push_str(&backslash_replaced(c));
            return Ok(chars.as_str());
        }
    };
    out.push(simple);
    Ok(chars.as_str())
}

/// Jinja2 first writes other characters as escapes, so a backslash before one escapes the backslash
/// of that escape.
fn backslash_replaced(c: char) -> String {
    match u32::from(c) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

fn hex<'t>(text: &'t str, len: usize, problem: &'static str, out: &mut String) -> Result<&'t str, Problem> {
    let digits = text.get(..len).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or(Problem::Malformed(problem))?;
    push_code(code, out)?;
    Ok(&text[len..])
}

fn octal<'t>(text: &'t str, out: &mut String) -> Result<&'t str, Problem> {
    let len = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    push_code(u32::from_str_radix(&text[..len], 8).unwrap_or_default(), out)?;
    Ok(&text[len..])
}

fn push_code(code: u32, out: &mut String) -> Result<(), Problem> {
    match char::from_u32(code) {
        Some(c) => out.push(c),
        None if code > 0x0010_ffff => return Err(Problem::Malformed("illegal Unicode character")),
        None => return Err(Problem::Unsupported("an escape for half a surrogate pair")),
    }
    Ok(())
}
