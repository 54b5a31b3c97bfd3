//! Python's white space, and its `int` and `float` of a text.

/// The code points of zeros of decimal digits in Python 3.11's tables (Unicode 14). The other nine digits follow each.
const ZEROS: &[u32] = &[
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20,
    0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0,
    0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0,
    0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0,
    0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];
/// Python reads no integers with more digits.
const MAX_INT_DIGITS: usize = 4300;

/// Returns true for the white space of `str.isspace`, which includes four control characters more than Unicode's.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns the text without white space at both ends, like `str.strip`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Returns the digits of the integer that `int(text)` reads, or None if it fails.
pub(super) fn int(text: &str) -> Option<String> {
    let ascii = to_ascii(text)?;
    let (sign, digits) = split_sign(&ascii);
    let digits = without_underscores(digits)?;
    if digits.is_empty() || digits.len() > MAX_INT_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(match (sign, digits) {
        (_, "") => "0".to_owned(),
        ('-', digits) => format!("-{digits}"),
        (_, digits) => digits.to_owned(),
    })
}

/// Returns the number that `float(text)` reads, or None if it fails.
pub(super) fn float(text: &str) -> Option<f64> {
    let ascii = without_underscores(&to_ascii(text)?)?;
    let (sign, rest) = split_sign(&ascii);
    let value = match rest.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" => f64::NAN,
        _ if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => rest.parse().ok()?,
        _ => return None,
    };
    Some(if sign == '-' { -value } else { value })
}

/// Returns the digits of a whole number, or None if it has a fraction or is not finite.
pub(super) fn int_of_float(number: f64) -> Option<String> {
    if !number.is_finite() || number.fract() != 0.0 {
        return None;
    }
    let digits = format!("{number:.0}");
    Some(if digits == "-0" { "0".to_owned() } else { digits })
}

/// Returns the text with ASCII digits, without the white space of Unicode at both ends. Returns None if a character
/// remains that no number has.
fn to_ascii(text: &str) -> Option<String> {
    text.trim().chars().map(|c| if c.is_ascii() { Some(c) } else { digit(c) }).collect()
}

/// Returns the ASCII digit with the value of a decimal digit.
fn digit(c: char) -> Option<char> {
    let code = u32::from(c);
    let zero = ZEROS.get(ZEROS.partition_point(|zero| *zero <= code).checked_sub(1)?)?;
    char::from_digit(code - zero, 10)
}

fn split_sign(text: &str) -> (char, &str) {
    match text.strip_prefix('-') {
        Some(rest) => ('-', rest),
        None => ('+', text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Returns the text without its underscores, or None if one of them is not between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let (mut out, mut earlier) = (String::with_capacity(text.len()), '\0');
    for c in text.chars() {
        let joins = earlier != '_' || c.is_ascii_digit();
        if !joins || (c == '_' && !earlier.is_ascii_digit()) {
            return None;
        }
        if c != '_' {
            out.push(c);
        }
        earlier = c;
    }
    (earlier != '_').then_some(out)
}
