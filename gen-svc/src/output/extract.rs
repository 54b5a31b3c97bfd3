//! What an output says, out of its whole text: rules that come with a request, as data.

use super::Part;

/// What to leave out, in the order of the fields. White space around the result is left out too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Reasoning.
    pub strip_reasoning: bool,
    /// All up to the last of this. Empty: nothing.
    pub cut_after: String,
    /// Lines that say only one of these.
    pub strip_lines: Vec<String>,
}

impl Rules {
    /// What they leave of an output's parts.
    #[must_use]
    pub fn apply(&self, parts: &[Part]) -> String {
        let kept = parts.iter().filter(|part| !(self.strip_reasoning && part.reasoning));
        let text: String = kept.map(|part| part.text.as_str()).collect();
        let said = match self.cut_after.as_str() {
            "" => text.as_str(),
            head => text.rsplit_once(head).map_or(text.as_str(), |(_, said)| said),
        };
        let is_kept = |line: &&str| !self.strip_lines.iter().any(|stripped| stripped == line.trim());
        said.split_inclusive('\n').filter(is_kept).collect::<String>().trim().to_owned()
    }
}
