//! The comments of a `.proto` file.

use std::collections::HashMap;

use prost_types::FileDescriptorProto;

/// The comments before the elements of a file, by the path of the element in the file's descriptor.
pub(super) struct Comments(HashMap<Vec<i32>, String>);

impl Comments {
    pub(super) fn of(file: &FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        Self(locations.map(|place| (place.path.clone(), text(place.leading_comments()))).collect())
    }

    /// Returns the comment of an element, as Markdown. Empty if it has none.
    pub(super) fn get(&self, path: &[i32]) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }
}

/// Removes the space after each `//`. Escapes `1.` at the start of a line, which would start a list.
fn text(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    let lines: Vec<_> = lines.map(|line| line.replacen("1. ", "1\\. ", usize::from(line.starts_with("1. ")))).collect();
    escaped(lines.join("\n").trim())
}

/// Escapes `<` and `*` outside of code, which Markdown would read as HTML and emphasis.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let escape = |(index, part): (usize, &str)| {
        if index % 2 == 0 { part.replace('<', "\\<").replace('*', "\\*") } else { part.to_owned() }
    };
    parts.map(escape).collect::<Vec<_>>().join("`")
}
