//! Features of the contract that an engine does not have.

use tandem_common::field::Path;
use tandem_core::error::RequestError;
use tandem_core::grammar::{GrammarKind, Whitespace};
use tandem_core::request::{PreparedRequest, Stage};

/// A field of a request that an engine cannot honor. A request that sets it is rejected before the engine is asked.
#[derive(Debug, Clone, Copy)]
pub struct Lack {
    /// The path of the field.
    pub field: &'static str,
    /// The cause, and the remedy of a caller.
    pub problem: &'static str,
    /// Returns true if a request needs the feature.
    pub is_asked: fn(&PreparedRequest) -> bool,
}

impl Lack {
    /// Fails if a request needs one of the features.
    ///
    /// # Errors
    /// [`RequestError::UnsupportedByEngine`] with the first field.
    pub fn check<'a>(
        lacks: impl IntoIterator<Item = &'a Self>,
        engine: &'static str,
        request: &PreparedRequest,
    ) -> Result<(), RequestError> {
        match lacks.into_iter().find(|lack| (lack.is_asked)(request)) {
            None => Ok(()),
            Some(Self { field, problem, .. }) => {
                Err(RequestError::UnsupportedByEngine { field: Path::from(*field), engine, problem })
            }
        }
    }
}

/// Typical sampling.
pub const TYPICAL_P: fn(&PreparedRequest) -> bool = |request| request.sampling.typical_p < 1.0;
/// A presence penalty other than 0.
pub const PRESENCE_PENALTY: fn(&PreparedRequest) -> bool = |request| request.sampling.presence_penalty != 0.0;
/// A presence penalty of an output that may take several calls.
pub const PRESENCE_PENALTY_OVER_CALLS: fn(&PreparedRequest) -> bool = |request| {
    let changes = request.grammar.is_some() && request.stage != Stage::Bound;
    PRESENCE_PENALTY(request) && (changes || request.limits.max_reasoning_tokens.is_some())
};
/// A frequency penalty other than 0.
pub const FREQUENCY_PENALTY: fn(&PreparedRequest) -> bool = |request| request.sampling.frequency_penalty != 0.0;
/// Log-probabilities of the prompt.
pub const PROMPT_LOGPROBS: fn(&PreparedRequest) -> bool = |request| request.returns.prompt_logprobs.is_some();
/// A Lark grammar.
pub const LARK: fn(&PreparedRequest) -> bool = |request| has_kind(request, |kind| matches!(kind, GrammarKind::Lark(_)));
/// A regular expression.
pub const REGEX: fn(&PreparedRequest) -> bool =
    |request| has_kind(request, |kind| matches!(kind, GrammarKind::Regex(_)));
/// JSON with no white space, or with any.
pub const WHITESPACE: fn(&PreparedRequest) -> bool =
    |request| is_json(request, |whitespace| whitespace != Whitespace::Bounded);
/// A start marker of reasoning that may come before the grammar.
pub const AFTER_REASONING: fn(&PreparedRequest) -> bool =
    |request| request.grammar.is_some() && request.stage == Stage::Opening;
/// A limit of reasoning beside log-probabilities: the tokens of the end marker, which no engine chose, have none.
pub const REASONING_LIMIT_WITH_LOGPROBS: fn(&PreparedRequest) -> bool = |request| {
    let returns = &request.returns;
    request.limits.max_reasoning_tokens.is_some() && returns.logprobs.or(returns.prompt_logprobs).is_some()
};

/// Returns true if the grammar is a JSON schema with such white space.
pub(crate) fn is_json(request: &PreparedRequest, is: impl Fn(Whitespace) -> bool) -> bool {
    has_kind(request, |kind| matches!(kind, GrammarKind::JsonSchema(_)))
        && request.grammar.as_ref().is_some_and(|grammar| is(grammar.source.whitespace))
}

fn has_kind(request: &PreparedRequest, is: impl Fn(&GrammarKind) -> bool) -> bool {
    request.grammar.as_ref().is_some_and(|grammar| is(&grammar.source.kind))
}
