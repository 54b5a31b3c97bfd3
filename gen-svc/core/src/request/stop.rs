//! The options of a request that end an output.

use super::limits::Limits;
use super::model::ServedModel;
use super::output_spec::OutputSpec;
use super::validate::{MAX_STOP_TOKEN_IDS, STOP_STRINGS, check, check_count, check_ids, check_strings};
use crate::error::RequestError;
use crate::grammar::Grammar;

/// The end conditions that a request sets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StopOptions {
    /// The most new tokens. `None`: the rest of the context.
    pub max_new_tokens: Option<u32>,
    /// The number of tokens before which no token may end the output.
    pub min_new_tokens: u32,
    /// The most reasoning tokens. `None`: three quarters of the new tokens if a grammar follows, else any number.
    pub max_reasoning_tokens: Option<u32>,
    /// The output ends before the first of these strings.
    pub stop_strings: Vec<String>,
    /// The output ends at the first of these ids.
    pub stop_token_ids: Vec<u32>,
    /// True if eos ids do not end the output.
    pub ignore_eos: bool,
    /// True if the stop string or stop token is part of the text.
    pub include_stop: bool,
}

impl StopOptions {
    pub(super) fn check(&self, vocabulary: usize) -> Result<(), RequestError> {
        check(self.max_new_tokens != Some(0), "stop.max_new_tokens", || "must be at least 1, is 0".into())?;
        let (least, most) = (self.min_new_tokens, self.max_new_tokens.unwrap_or(u32::MAX));
        check(least <= most, "stop.min_new_tokens", || format!("must be at most max_new_tokens, {most}, is {least}"))?;
        check_strings("stop.stop_strings", &self.stop_strings, STOP_STRINGS)?;
        check_count("stop.stop_token_ids", self.stop_token_ids.len(), MAX_STOP_TOKEN_IDS)?;
        check_ids("stop.stop_token_ids", &self.stop_token_ids, vocabulary)
    }

    /// Fails if options are set that a grammar excludes: the grammar defines where an output ends.
    pub(super) fn check_with(&self, grammar: Option<&Grammar>) -> Result<(), RequestError> {
        let free = || "must not be set together with a grammar".to_owned();
        check(grammar.is_none() || self.min_new_tokens == 0, "stop.min_new_tokens", free)?;
        check(grammar.is_none() || !self.ignore_eos, "stop.ignore_eos", free)
    }

    /// Completes the options from the output spec and the server's limits. `left` is the rest of the
    /// context.
    pub(super) fn resolve_defaults(self, spec: &OutputSpec, model: &ServedModel, left: usize) -> Limits {
        let requested = self.max_new_tokens.map_or(usize::MAX, |most| most as usize);
        let max_new_tokens = requested.min(model.max_output_tokens).min(left);
        let mut limits = Limits {
            min_new_tokens: (self.min_new_tokens as usize).min(max_new_tokens),
            max_new_tokens,
            max_reasoning_tokens: self.max_reasoning_tokens.map(|most| most as usize),
            stop_strings: self.stop_strings,
            stop_token_ids: self.stop_token_ids,
            ignore_eos: self.ignore_eos,
            include_stop: self.include_stop,
        };
        add_new(&mut limits.stop_strings, &spec.stop_strings);
        if !limits.ignore_eos {
            add_new(&mut limits.stop_token_ids, &spec.eos_token_ids);
        }
        limits
    }
}

/// Appends the items that the list does not have.
fn add_new<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}
