//! Format specifications: the part behind the colon in `'{:>10.2f}'`.

use std::borrow::Cow;

use minijinja::Value;
use num_bigint::BigInt as Digits;

use super::number;
use super::text::{self, Side};
use crate::budget;
use crate::error::{Error, Fallible, Limit, fail, limit};
use crate::python::number::as_float;
use crate::value::{PyValue, as_digits, py_value, type_name};

/// More digits than any float has.
const MAX_PRECISION: usize = 10_000;

/// A parsed specification.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) fill: char,
    /// `<`, `>`, `^` or `=`.
    pub(crate) align: Option<char>,
    /// `+`, `-` or space.
    pub(crate) sign: Option<char>,
    pub(crate) alternate: bool,
    /// `z`: a value that rounds to zero has no sign.
    pub(crate) positive_zero: bool,
    /// `0` before the width: a number is filled with zeros after its sign, a text with zeros at its
    /// end.
    pub(crate) zeros: bool,
    pub(crate) width: usize,
    /// `,` or `_` between groups of digits.
    pub(crate) grouping: Option<char>,
    pub(crate) precision: Option<usize>,
    pub(crate) kind: Option<char>,
}

/// The cost, in steps of the budget, to write a number in a field.
const FORMAT_STEPS: usize = 12;

impl Spec {
    /// Parses a specification.
    pub(crate) fn parse(text: &str) -> Fallible<Self> {
        let mut spec = Self {
            fill: ' ',
            align: None,
            sign: None,
            alternate: false,
            positive_zero: false,
            zeros: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        };
        let (mut rest, fill_given) = spec.read_align(text);
        if let Some(sign) = rest.chars().next().filter(|c| matches!(c, '+' | '-' | ' ')) {
            spec.sign = Some(sign);
            rest = &rest[1..];
        }
        if let Some(after) = rest.strip_prefix('z') {
            spec.positive_zero = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('#') {
            spec.alternate = true;
            rest = after;
        }
        if let Some(after) = rest.strip_prefix('0').filter(|_| !fill_given) {
            (spec.fill, spec.zeros) = ('0', spec.align.is_none());
            spec.align = spec.align.or(Some('='));
            rest = after;
        }
        rest = read_number(rest, &mut spec.width)?;
        if let Some(grouping) = rest.chars().next().filter(|c| matches!(c, ',' | '_')) {
            spec.grouping = Some(grouping);
            rest = &rest[1..];
        }
        spec.read_end(rest)
    }

    /// Reads the alignment. Returns the rest of the text, and true if it has a fill character.
    fn read_align<'t>(&mut self, text: &'t str) -> (&'t str, bool) {
        let is_align = |c: &char| matches!(c, '<' | '>' | '^' | '=');
        let mut chars = text.chars();
        let (first, second) = (chars.next(), chars.next());
        if let Some(align) = second.filter(is_align) {
            (self.fill, self.align) = (first.unwrap_or(' '), Some(align));
            return (chars.as_str(), true);
        }
        if let Some(align) = first.filter(is_align) {
            self.align = Some(align);
            return (&text[1..], false);
        }
        (text, false)
    }

    fn read_end(mut self, mut rest: &str) -> Fallible<Self> {
        if let Some(after) = rest.strip_prefix('.') {
            let mut precision = 0;
            let left = read_number(after, &mut precision)?;
            if left.len() == after.len() {
                return Err(fail("Format specifier missing precision"));
            }
            self.precision = Some(precision);
            rest = left;
        }
        let mut chars = rest.chars();
        self.kind = chars.next();
        if chars.next().is_some() {
            return Err(fail("Invalid format specifier"));
        }
        Ok(self)
    }

    /// Returns the result of Python's `format(value, spec)`.
    pub(crate) fn format(&self, value: &Value) -> Fallible<String> {
        budget::steps(FORMAT_STEPS)?;
        match py_value(value) {
            PyValue::Str(content) => self.text(content),
            PyValue::Float(float) => self.float(float),
            _ => match as_digits(value) {
                Some(int) => self.int(value, &int),
                None => Err(fail(format!("unsupported format string passed to {}.__format__", type_name(value)))),
            },
        }
    }

    pub(crate) fn text(&self, content: &str) -> Fallible<String> {
        if !matches!(self.kind, None | Some('s')) {
            return Err(self.unknown("str"));
        }
        if let Some(grouping) = self.grouping {
            return Err(fail(format!("Cannot specify '{grouping}' with 's'.")));
        }
        if self.sign.is_some() || self.alternate || self.positive_zero {
            return Err(fail("sign, '#' and 'z' are not allowed in string format specifier"));
        }
        if self.align == Some('=') && !self.zeros {
            return Err(fail("'=' alignment not allowed in string format specifier"));
        }
        budget::scan(content.len())?;
        let end = self.precision.and_then(|precision| content.char_indices().nth(precision));
        let content = end.map_or(content, |(end, _)| &content[..end]);
        let align = if self.zeros { Some('<') } else { self.align };
        Self { align, ..self.clone() }.pad("", content, '<')
    }

    fn unknown(&self, owner: &str) -> Error {
        let kind = self.kind.unwrap_or_default();
        fail(format!("Unknown format code '{kind}' for object of type '{owner}'"))
    }

    fn int(&self, value: &Value, int: &Digits) -> Fallible<String> {
        let negative = *int < Digits::from(0);
        let magnitude = if negative { -int } else { int.clone() };
        let (prefix, digits) = match self.kind {
            None | Some('d' | 'n') => ("", number::int_to_str(&magnitude)?),
            Some('b') => ("0b", magnitude.to_str_radix(2)),
            Some('o') => ("0o", magnitude.to_str_radix(8)),
            Some('x') => ("0x", magnitude.to_str_radix(16)),
            Some('X') => ("0X", magnitude.to_str_radix(16).to_uppercase()),
            Some('c') if self.sign.is_none() && !self.alternate => return self.char(int),
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
                return self.float(as_float(value)?.unwrap_or(f64::NAN));
            }
            Some(_) => return Err(self.unknown("int")),
        };
        if self.positive_zero {
            return Err(fail("Negative zero coercion (z) not allowed in format specifier with integer"));
        }
        self.check_grouping()?;
        if self.precision.is_some() {
            return Err(fail("Precision not allowed in integer format specifier"));
        }
        let group = if matches!(self.kind, None | Some('d' | 'n')) { 3 } else { 4 };
        let sign = self.sign_text(negative);
        let prefix = if self.alternate { prefix } else { "" };
        self.number(&format!("{sign}{prefix}"), &digits, "", group)
    }

    fn char(&self, int: &Digits) -> Fallible<String> {
        self.check_grouping()?;
        let c = u32::try_from(int).ok().and_then(char::from_u32);
        let c = c.ok_or_else(|| fail("%c arg not in range(0x110000)"))?;
        self.pad("", &c.to_string(), '<')
    }

    /// Checks the grouping: commas are for decimal digits, underscores also for other digits.
    fn check_grouping(&self) -> Fallible<()> {
        match (self.grouping, self.kind) {
            (None, _) | (_, None | Some('d' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => Ok(()),
            (Some('_'), Some('b' | 'o' | 'x' | 'X')) => Ok(()),
            (Some(grouping), Some(kind)) => Err(fail(format!("Cannot specify '{grouping}' with '{kind}'."))),
        }
    }

    fn sign_text(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        }
    }

    fn float(&self, float: f64) -> Fallible<String> {
        if self.precision.is_some_and(|precision| precision > MAX_PRECISION) {
            return Err(fail("precision too big"));
        }
        self.check_grouping()?;
        budget::steps(4 * self.precision.unwrap_or(0))?;
        let magnitude = float.abs();
        let text = match self.kind {
            None if self.precision.is_none() => number::float_repr(magnitude),
            None => general(magnitude, self.precision.unwrap_or(6), true, false),
            Some('f' | 'F') => fixed(magnitude, self.precision.unwrap_or(6)),
            Some('%') => fixed(magnitude * 100.0, self.precision.unwrap_or(6)) + "%",
            Some('e' | 'E') => scientific(magnitude, self.precision.unwrap_or(6)),
            Some('g' | 'G' | 'n') => general(magnitude, self.precision.unwrap_or(6), false, self.alternate),
            Some(_) => return Err(self.unknown("float")),
        };
        let text = if matches!(self.kind, Some('E' | 'F' | 'G')) { text.to_uppercase() } else { text };
        let is_zero = || {
            text.bytes()
                .take_while(|byte| !matches!(byte, b'e' | b'E'))
                .all(|byte| !matches!(byte, b'1'..=b'9' | b'n' | b'N' | b'i' | b'I'))
        };
        let drops_sign = float.is_nan() || (self.positive_zero && is_zero());
        let sign = self.sign_text(float.is_sign_negative() && !drops_sign);
        let whole = text.bytes().take_while(u8::is_ascii_digit).count();
        self.number(sign, &text[..whole], &text[whole..], 3)
    }

    /// Writes sign, grouped digits and the rest in the field.
    fn number(&self, sign: &str, digits: &str, rest: &str, group: usize) -> Fallible<String> {
        let Some(separator) = self.grouping else {
            return self.pad(sign, &format!("{digits}{rest}"), '>');
        };
        // Zeros that fill the field are grouped too.
        let mut digits = digits.to_owned();
        if self.fill == '0' && self.align == Some('=') {
            let room = self.width.saturating_sub(sign.len() + rest.len());
            if room > MAX_PRECISION {
                return Err(limit(Limit::Bytes));
            }
            // Every group except the first has a separator before it.
            let count = (room * group).div_ceil(group + 1).max(digits.len());
            let count = if count + (count - 1) / group < room { count + 1 } else { count };
            digits.insert_str(0, &"0".repeat(count - digits.len()));
        }
        self.pad(sign, &(grouped(&digits, separator, group) + rest), '>')
    }

    fn pad(&self, sign: &str, body: &str, default_align: char) -> Fallible<String> {
        let align = self.align.unwrap_or(default_align);
        let width = i64::try_from(self.width).unwrap_or(i64::MAX);
        if align == '=' {
            let inner = width.saturating_sub(sign.len() as i64);
            return Ok(format!("{sign}{}", text::justify(body, inner, self.fill, Side::Right)?));
        }
        let whole = if sign.is_empty() { Cow::Borrowed(body) } else { Cow::Owned(format!("{sign}{body}")) };
        match align {
            '<' => text::justify(&whole, width, self.fill, Side::Left),
            '>' => text::justify(&whole, width, self.fill, Side::Right),
            _ => center(&whole, width, self.fill),
        }
    }
}

/// Centers a text. An odd fill character is always added on the right, unlike in `str.center`.
fn center(whole: &str, width: i64, fill: char) -> Fallible<String> {
    let len = whole.chars().count() as i64;
    let left = (width - len).max(0) / 2;
    let half = text::justify(whole, len + left, fill, Side::Right)?;
    text::justify(&half, width, fill, Side::Left)
}

fn read_number<'t>(text: &'t str, into: &mut usize) -> Fallible<&'t str> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    if len > 0 {
        *into = text[..len].parse().map_err(|_| fail("Too many decimal digits in format string"))?;
    }
    Ok(&text[len..])
}

fn grouped(digits: &str, separator: char, group: usize) -> String {
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(group) {
            out.push(separator);
        }
        out.push(digit);
    }
    out
}

fn not_finite(float: f64) -> Option<String> {
    if float.is_nan() {
        return Some("nan".to_owned());
    }
    float.is_infinite().then(|| "inf".to_owned())
}

/// Returns `%f` of a float that is not negative.
pub(crate) fn fixed(float: f64, precision: usize) -> String {
    not_finite(float).unwrap_or_else(|| format!("{float:.precision$}"))
}

/// Returns `%e` of a float that is not negative.
pub(crate) fn scientific(float: f64, precision: usize) -> String {
    if let Some(text) = not_finite(float) {
        return text;
    }
    let text = format!("{float:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Returns `%g` of a float that is not negative. `at_least_float` selects the variant without a
/// type, which never looks like an integer.
pub(crate) fn general(float: f64, precision: usize, at_least_float: bool, keep_zeros: bool) -> String {
    if let Some(text) = not_finite(float) {
        return text;
    }
    let precision = precision.max(1);
    let text = scientific(float, precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let highest = precision as i64 - i64::from(at_least_float);
    let trim = |digits: &str| if keep_zeros { digits.to_owned() } else { without_zeros(digits) };
    if exponent < -4 || exponent >= highest.max(1) {
        return format!("{}e{}{:02}", trim(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let decimals = usize::try_from(precision as i64 - 1 - exponent).unwrap_or(0);
    let plain = trim(&format!("{float:.decimals$}"));
    if at_least_float && !plain.contains('.') { plain + ".0" } else { plain }
}

fn without_zeros(digits: &str) -> String {
    if !digits.contains('.') {
        return digits.to_owned();
    }
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{fixed, general, grouped, scientific};

    #[test]
    fn floats_are_printed_like_python() {
        assert_eq!(fixed(1234.5, 0), "1234");
        assert_eq!(fixed(2.675, 2), "2.67");
        assert_eq!(scientific(1234.5, 2), "1.23e+03");
        assert_eq!(general(0.0001, 6, false, false), "0.0001");
        assert_eq!(general(0.00001, 6, false, false), "1e-05");
        assert_eq!(general(100.0, 12, true, false), "100.0");
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(grouped("1234567", ',', 3), "1,234,567");
        assert_eq!(grouped("ffff", '_', 4), "ffff");
    }
}
