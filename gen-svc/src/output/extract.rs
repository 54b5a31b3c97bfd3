//! What an output says, out of its whole text: rules that come with a request, as data.

use super::Part;

/// What to leave out, in the order of the fields. White space around the result is left out too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Reasoning.
    pub strip_reasoning: bool,
    /// This, where the text begins with it. Empty: nothing.
    pub cut_head: String,
    /// Lines that say only one of these.
    pub strip_lines: Vec<String>,
}

impl Rules {
    /// What they leave of an output's parts.
    #[must_use]
    pub fn apply(&self, parts: &[Part]) -> String {
        let kept = parts.iter().filter(|part| !(self.strip_reasoning && part.reasoning));
        let text: String = kept.map(|part| part.text.as_str()).collect();
        let text = text.trim_start();
        let said = text.strip_prefix(&self.cut_head).unwrap_or(text);
        let is_kept = |line: &&str| !self.strip_lines.iter().any(|stripped| stripped == line.trim());
        said.split_inclusive('\n').filter(is_kept).collect::<String>().trim().to_owned()
    }
}
