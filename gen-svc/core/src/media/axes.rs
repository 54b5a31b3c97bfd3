//! Positions on the axes time, height and width (M-RoPE). Reference: transformers, `get_rope_index`
//! of `models/qwen2_5_vl/modeling_qwen2_5_vl.py`.

use std::sync::Arc;

use tandem_images::{Layout, PreparedImage};

use crate::cache::ImageSpan;

/// The positions of a prompt's tokens, and of the tokens after it.
///
/// Text counts on all axes alike. The cells of an image share the time of its start; their height and
/// width count from there. The text after an image counts on from its larger side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisPositions {
    prompt: Vec<[u32; 3]>,
    /// The position of the first token after the prompt.
    next: u32,
}

impl AxisPositions {
    /// Computes the positions of a prompt of `length` tokens.
    #[must_use]
    pub fn new(length: usize, spans: &[ImageSpan], images: &[Arc<PreparedImage>]) -> Self {
        let (mut prompt, mut next) = (Vec::with_capacity(length), 0);
        for span in spans {
            push_text(&mut prompt, &mut next, span.positions.start);
            let columns = columns(&images[span.image], span.positions.len());
            let cell = |cell: u32| [next, next + cell / columns, next + cell % columns];
            let cells = span.positions.len() as u32;
            prompt.extend((0..cells).map(cell));
            next += columns.max(cells.div_ceil(columns));
        }
        push_text(&mut prompt, &mut next, length);
        Self { prompt, next }
    }

    /// Returns the positions of `count` tokens from index `start` on.
    #[must_use]
    pub fn range(&self, start: usize, count: usize) -> Vec<[u32; 3]> {
        let after = |index: usize| [self.next + (index - self.prompt.len()) as u32; 3];
        (start..start + count).map(|index| self.prompt.get(index).copied().unwrap_or_else(|| after(index))).collect()
    }
}

/// Appends the positions of text up to index `end`.
fn push_text(prompt: &mut Vec<[u32; 3]>, next: &mut u32, end: usize) {
    let count = (end - prompt.len()) as u32;
    prompt.extend((*next..*next + count).map(|position| [position; 3]));
    *next += count;
}

/// Returns the columns of an image's merged cells.
fn columns(image: &PreparedImage, cells: usize) -> u32 {
    match image.plan.layout {
        Layout::Grid { rows, columns, .. } => {
            let merged = rows * columns / cells.max(1);
            (columns / merged.isqrt().max(1)).max(1) as u32
        }
        _ => cells.max(1) as u32,
    }
}
