//! Rules of a request that extract the answer from an output's whole text.

use super::segment::TextSegment;

/// The parts to remove, in the order of the fields. White space around the result is removed too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// True if reasoning is removed.
    pub strip_reasoning: bool,
    /// A prefix to remove. Empty: none.
    pub cut_head: String,
    /// Lines to remove, compared without white space around them.
    pub strip_lines: Vec<String>,
}

impl Rules {
    /// Returns the text of an output's segments that the rules keep.
    #[must_use]
    pub fn apply(&self, segments: &[TextSegment]) -> String {
        let kept = segments.iter().filter(|segment| !(self.strip_reasoning && segment.reasoning));
        let text: String = kept.map(|segment| segment.text.as_str()).collect();
        let text = text.trim_start();
        let rest = text.strip_prefix(&self.cut_head).unwrap_or(text);
        let is_kept = |line: &&str| !self.strip_lines.iter().any(|stripped| stripped == line.trim());
        rest.split_inclusive('\n').filter(is_kept).collect::<String>().trim().to_owned()
    }
}
