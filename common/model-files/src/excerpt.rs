//! The start of a value of a file, and names of files, for errors. A damaged file may have values of many megabytes,
//! and control characters, which a terminal would obey. The name of a file may have them too.

use std::fmt::{self, Debug, Display, Write};
use std::path::Path;

/// The most bytes of a value in an error.
const MAX_BYTES: usize = 200;

/// The start of a value. As text, its control characters are escaped; as debug text, it is quoted.
#[derive(Clone, PartialEq, Eq)]
pub struct Excerpt(String);

impl Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char.is_control() {
            true => write!(f, "{}", char.escape_debug()),
            false => f.write_char(char),
        })
    }
}

impl Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

/// Returns the start of a value. A long one ends with an ellipsis after 200 bytes.
#[must_use]
pub fn excerpt(value: impl Display) -> Excerpt {
    let mut start = Start(String::new());
    if write!(start, "{value}").is_err() {
        start.0.push('…');
    }
    Excerpt(start.0)
}

/// Returns the path of a file, or a list of names, which may come from another computer.
#[must_use]
pub fn shown(path: impl AsRef<Path>) -> Excerpt {
    Excerpt(path.as_ref().to_string_lossy().into_owned())
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
    fn excerpt(value: impl std::fmt::Display) -> String {
        super::excerpt(value).to_string()
    }

    #[test]
    fn control_characters_are_escaped_once() {
        let excerpt = super::excerpt("a\u{1b}[31m\n\0\u{9b}\"\\é");
        assert_eq!(excerpt.to_string(), "a\\u{1b}[31m\\n\\0\\u{9b}\"\\é");
        assert_eq!(format!("{excerpt:?}"), "\"a\\u{1b}[31m\\n\\0\\u{9b}\\\"\\\\é\"");
    }

    #[test]
    fn the_path_of_a_file_is_escaped_and_not_cut() {
        let long = "a\u{1b}/".repeat(100);
        assert_eq!(super::shown(&long).to_string(), "a\\u{1b}/".repeat(100));
    }

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
