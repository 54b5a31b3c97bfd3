//! The start of a value of a file, for errors. A damaged file may have values of many megabytes.

use std::fmt::{self, Display, Write};

/// The most bytes of a value in an error.
const MAX_BYTES: usize = 200;

/// Returns a value as text. A long one ends with an ellipsis after 200 bytes.
#[must_use]
pub fn excerpt(value: impl Display) -> String {
    let mut start = Start(String::new());
    if write!(start, "{value}").is_err() {
        start.0.push('…');
    }
    start.0
}

/// The start of a text. Writing fails once it is full, so that the rest is not formatted.
struct Start(String);

impl Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fitting = text.floor_char_boundary(MAX_BYTES - self.0.len());
        self.0.push_str(&text[..fitting]);
        if fitting == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn a_long_value_ends_with_an_ellipsis_after_its_last_whole_character() {
        for short in ["", "a", &"a".repeat(200), &"é".repeat(100)] {
            assert_eq!(excerpt(short), short);
        }
        assert_eq!(excerpt("a".repeat(201)), "a".repeat(200) + "…");
        assert_eq!(excerpt("a".to_owned() + &"é".repeat(100)), "a".to_owned() + &"é".repeat(99) + "…");
        assert_eq!(excerpt("€".repeat(67)), "€".repeat(66) + "…");
        let list = excerpt(format_args!("{:?}", vec![7; 1000]));
        assert_eq!(list, "[".to_owned() + &"7, ".repeat(66) + "7…");
    }
}
