//! The output spec of a request: how to read the model's output.

use tandem_common::field::Path;

use super::limits::Limits;
use super::model::ServedModel;
use super::validate::{
    MARKERS, MAX_MARKERS, MAX_STOP_STRING_BYTES, MAX_STOP_TOKEN_IDS, STOP_STRINGS, check, check_count, check_ids,
    check_strings,
};
use crate::error::RequestError;
use crate::output::OutputPolicy;
use crate::output::extract::Rules;
use crate::output::reasoning::{MarkerSet, Markers};

/// The path of the markers of reasoning.
const REASONING: &str = "output_spec.reasoning";

/// The most ids in all classes of special tokens.
const MAX_SPECIAL_TOKEN_IDS: usize = 16 * 1024;

/// How to read the output. By default the model's eos ids end it, and special tokens leave no text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, and leave no text. Empty: the model's own eos ids.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the model's turn.
    pub stop_strings: Vec<String>,
    /// The treatment of special tokens.
    pub special_token_classes: Vec<SpecialTokenClass>,
    /// The markers that enclose reasoning.
    pub reasoning: Markers,
    /// The rules of the extracted text.
    pub extraction: Rules,
}

/// Special tokens with the same treatment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTokenClass {
    pub token_ids: Vec<u32>,
    /// True if the tokens are text, false if they leave no text. Tokens in classes of both kinds
    /// are text.
    pub passes: bool,
}

impl OutputSpec {
    pub(super) fn check(&self, vocabulary: usize) -> Result<(), RequestError> {
        let Self { eos_token_ids, stop_strings, special_token_classes, reasoning, extraction } = self;
        check_count("output_spec.eos_token_ids", eos_token_ids.len(), MAX_STOP_TOKEN_IDS)?;
        check_ids("output_spec.eos_token_ids", eos_token_ids, vocabulary)?;
        check_strings("output_spec.stop_strings", stop_strings, STOP_STRINGS)?;
        let ids = self.special_ids();
        check(ids <= MAX_SPECIAL_TOKEN_IDS, "output_spec.special_token_classes", || {
            format!("must have at most {MAX_SPECIAL_TOKEN_IDS} token ids in all, has {ids}")
        })?;
        for (i, SpecialTokenClass { token_ids, passes: _ }) in special_token_classes.iter().enumerate() {
            let class = Path::item("special_token_classes", i).within("output_spec");
            check_ids(class.key("token_ids"), token_ids, vocabulary)?;
        }
        check_markers(reasoning, vocabulary)?;
        let Rules { strip_reasoning: _, cut_head, strip_lines } = extraction;
        let bytes = cut_head.len();
        check(bytes <= MAX_STOP_STRING_BYTES, "output_spec.extraction.cut_head", || {
            format!("must have at most {MAX_STOP_STRING_BYTES} bytes, has {bytes}")
        })?;
        check_strings("output_spec.extraction.strip_lines", strip_lines, STOP_STRINGS)
    }

    /// Adds the model's eos ids, if the request has none.
    pub(super) fn completed(mut self, model: &ServedModel) -> Self {
        if self.eos_token_ids.is_empty() {
            self.eos_token_ids.clone_from(&model.eos_token_ids);
        }
        self
    }

    /// Returns the number of ids in all classes of special tokens.
    pub(super) fn special_ids(&self) -> usize {
        self.special_token_classes.iter().map(|class| class.token_ids.len()).sum()
    }

    /// Returns the policy of the output pipeline. The ends of the model's turn leave no text:
    /// neither its strings nor eos ids, even if those do not end the output.
    pub(super) fn resolve(self, limits: &Limits) -> OutputPolicy {
        let Self { eos_token_ids, special_token_classes, reasoning, .. } = self;
        let is_shown = |string: &String| limits.include_stop && !self.stop_strings.contains(string);
        let (shown, hidden): (Vec<_>, Vec<_>) = limits.stop_strings.iter().cloned().partition(is_shown);
        let (mut dropped, mut passed) = (Vec::new(), Vec::new());
        for SpecialTokenClass { token_ids, passes } in special_token_classes {
            if passes { passed.extend(token_ids) } else { dropped.extend(token_ids) }
        }
        if limits.include_stop {
            passed.extend(&limits.stop_token_ids);
        }
        passed.retain(|id| !eos_token_ids.contains(id));
        dropped.extend(&eos_token_ids);
        OutputPolicy {
            end_token_ids: limits.stop_token_ids.clone(),
            shown_stop_strings: shown.len(),
            stop_strings: [shown, hidden].concat(),
            control_token_ids: eos_token_ids,
            dropped,
            passed,
            reasoning,
        }
    }
}

fn check_markers(markers: &Markers, vocabulary: usize) -> Result<(), RequestError> {
    let Markers { start, end } = markers;
    for (kind, MarkerSet { token_ids, strings }) in [("start", start), ("end", end)] {
        let field = |list| Path::from(REASONING).key(format!("{kind}_{list}"));
        check_count(field("token_ids"), token_ids.len(), MAX_MARKERS)?;
        check_ids(field("token_ids"), token_ids, vocabulary)?;
        check_strings(field("strings"), strings, MARKERS)?;
    }
    check_no_start("token_ids", &start.token_ids, &end.token_ids)?;
    check_no_start("strings", &start.strings, &end.strings)
}

/// Fails if an end marker is also a start marker.
fn check_no_start<T: PartialEq>(list: &str, starts: &[T], ends: &[T]) -> Result<(), RequestError> {
    match ends.iter().position(|end| starts.contains(end)) {
        None => Ok(()),
        Some(i) => {
            let field = Path::from(REASONING).key(format!("end_{list}")).index(i);
            Err(RequestError::invalid(field, format!("must not be one of start_{list} as well")))
        }
    }
}
