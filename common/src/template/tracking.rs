//! Where `{% generation %}` blocks stand in the output, as transformers tracks it: the length of what the template
//! itself has put out so far, then the length of the block.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use minijinja::{State, Value};

use super::error::Fallible;
use super::python::repr;
use super::value;

thread_local! {
    /// Characters put out so far.
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
    /// Spans in characters.
    static SPANS: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the last render.
pub(crate) fn start() {
    WRITTEN.set(0);
    SPANS.take();
}

/// Notes that a value is about to be put out, and gives its text.
pub(crate) fn count_output(state: &mut State<'_, '_>, value: &Value) -> Fallible<Value> {
    let text = match value.as_str() {
        Some(_) => value.clone(),
        None => value::text(repr::to_str(state, value)?)?,
    };
    WRITTEN.set(WRITTEN.get() + text.as_str().map_or(0, |text| text.chars().count()));
    Ok(text)
}

/// Notes the span of a block, given its text.
pub(crate) fn generation(text: &Value) -> Value {
    let start = WRITTEN.get();
    let len = text.as_str().map_or(0, |text| text.chars().count());
    SPANS.with_borrow_mut(|spans| spans.push(start..start + len));
    text.clone()
}

/// The spans in bytes of the whole output. A block inside of a macro has no place of its own and may lie beyond the end.
pub(crate) fn spans(output: &str) -> Vec<Range<usize>> {
    let spans = SPANS.take();
    if spans.is_empty() {
        return Vec::new();
    }
    let mut offsets: Vec<usize> = output.char_indices().map(|(at, _)| at).collect();
    offsets.push(output.len());
    let byte = |chars: usize| offsets.get(chars).copied().unwrap_or(output.len());
    spans.into_iter().map(|span| byte(span.start)..byte(span.end)).collect()
}
