//! Segments of an output's text.

/// Text that is either completely reasoning or completely not reasoning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextSegment {
    /// True if the text is reasoning.
    pub reasoning: bool,
    /// Whole characters that can no longer become part of a stop string or a marker.
    pub text: String,
    /// The bytes of the text.
    pub bytes: Vec<u8>,
}

/// Appends a segment. It is joined to the last segment if both are reasoning, or both are not.
pub fn push_segment(segments: &mut Vec<TextSegment>, segment: TextSegment) {
    match segments.last_mut() {
        _ if segment.bytes.is_empty() && segment.text.is_empty() => {}
        Some(last) if last.reasoning == segment.reasoning => {
            last.text += &segment.text;
            last.bytes.extend(segment.bytes);
        }
        _ => segments.push(segment),
    }
}
