//! The fields that vLLM cannot honor, in all of its protocols.

use tandem_core::grammar::Grammar;

use crate::lack::{self, Lack};

/// The likeliest tokens of which a server reports log-probabilities, unless it is started with another limit.
pub(in crate::protocols) const MAX_LOGPROBS: u32 = 20;
/// A grammar that only llguidance reads: other libraries refuse its first line.
pub(in crate::protocols) const LLGUIDANCE_ONLY: &str = "%llguidance {}\nstart: \"a\"";

/// For an operator whose server refuses such a grammar.
pub(in crate::protocols) const GUIDANCE_ADVICE: &str =
    "start vLLM with --structured-outputs-config.backend guidance: grammars are rejected";

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
/// Each call counts the tokens of its own output only.
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
pub(in crate::protocols) static GRAMMAR: Lack = Lack {
    field: "grammar",
    problem: "it runs without llguidance; its operator can start it with --structured-outputs-config.backend guidance",
    is_asked: |request| request.grammar.is_some(),
};

/// Returns a grammar in the notation of llguidance. A server takes a text with `::=` for another notation.
pub(in crate::protocols) fn lark(grammar: &Grammar) -> String {
    grammar.to_lark().unwrap_or_default().replace("::=", ":\\u003a=")
}
