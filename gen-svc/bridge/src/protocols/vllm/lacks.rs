//! The fields that vLLM cannot honor, in all of its protocols.

use crate::lack::{self, Lack};
use crate::protocol::Facts;

/// The likeliest tokens of which a server reports log-probabilities, unless it is started with another limit.
pub(in crate::protocols) const MAX_LOGPROBS: u32 = 20;
/// The fields that vLLM lacks.
pub(in crate::protocols) const LACKS: &[Lack] = &[TEMPERATURE, TYPICAL_P, PRESENCE, AFTER_REASONING, REASONING_LIMIT];

/// vLLM rejects higher temperatures.
pub(in crate::protocols) const TEMPERATURE: Lack = Lack {
    field: "sampling.temperature",
    problem: "it takes at most 2",
    is_asked: |request| request.sampling.temperature > 2.0,
};
/// vLLM ignores it.
pub(in crate::protocols) const TYPICAL_P: Lack =
    Lack { field: "sampling.typical_p", problem: "it has none; leave it out, or use top_p", is_asked: lack::TYPICAL_P };
/// A call does not count the tokens of the calls before it.
pub(in crate::protocols) const PRESENCE: Lack = Lack {
    field: "sampling.presence_penalty",
    problem: "it would forget the tokens of the reasoning; leave it out, or use frequency_penalty",
    is_asked: lack::PRESENCE_PENALTY_OVER_CALLS,
};
/// No call has a grammar that may start later.
pub(in crate::protocols) const AFTER_REASONING: Lack = Lack {
    field: "grammar.after_reasoning",
    problem: "it cannot choose between a marker and a grammar; leave it out",
    is_asked: lack::AFTER_REASONING,
};
/// The tokens of the end marker are not chosen by the engine.
pub(in crate::protocols) const REASONING_LIMIT: Lack = Lack {
    field: "stop.max_reasoning_tokens",
    problem: "the forced end of reasoning has no log-probabilities; leave out return_options.logprobs",
    is_asked: lack::REASONING_LIMIT_WITH_LOGPROBS,
};
/// A server with another library for grammars.
pub(in crate::protocols) static BY_SETTINGS: &[Lack] = &[Lack {
    field: "grammar",
    problem: "it runs without llguidance; its operator can start it with --structured-outputs-config.backend guidance",
    is_asked: |request| request.grammar.is_some(),
}];

/// Returns the facts of a server that reads grammars with llguidance, or with another library.
pub(in crate::protocols) fn with_llguidance(mut facts: Facts, has_llguidance: bool) -> Facts {
    if !has_llguidance {
        let advice = "start vLLM with --structured-outputs-config.backend guidance: grammars are rejected";
        facts.advice.push(advice.to_owned());
        facts.lacks.extend(BY_SETTINGS);
    }
    facts
}
