//! Calls the grammar library: from the text of a grammar to its parser.

use std::panic::AssertUnwindSafe;

use llguidance::api::{GrammarInit, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Logger, ParserFactory, TokenParser};
use serde_json::Value;
use tandem_model_files::tokenizer::CancelScope;

use super::source::{Grammar, GrammarKind, Whitespace};
use super::{lark, schema};
use crate::error::RequestError;

/// The most symbols of a JSON schema's grammar. The library's time grows with the square of the
/// symbols: an optional property has 8 symbols, and 4,000 of them take about two seconds.
const MAX_SCHEMA_SYMBOLS: usize = 32_000;
/// The same for other grammars, whose symbols can cost more: enough for the calls of 128 tools with five parameters.
const MAX_SYMBOLS: usize = 8_000;
/// The size of a compiling thread's stack. Deep grammars recurse.
pub(super) const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Returns the part that all parsers for these tokens share. `None` if the library does not support them.
pub(super) fn factory(tokens: &TokEnv) -> Option<ParserFactory> {
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(tokens, InferenceCapabilities::default(), &slices).ok()?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.verbose_errors = false; // verbose errors quote the output
    limits.max_lexer_states = 50_000;
    limits.precompute_large_lexemes = false;
    Some(factory)
}

/// Reads the text of a grammar.
///
/// # Errors
/// A JSON schema is not JSON, or the library would not keep to it.
pub(super) fn read(Grammar { kind, whitespace }: &Grammar) -> Result<TopLevelGrammar, RequestError> {
    let refused = |problem| RequestError::invalid(kind.field(), problem);
    Ok(match kind {
        GrammarKind::JsonSchema(text) => {
            let schema = serde_json::from_str(text).map_err(|error| refused(format!("must be JSON: {error}")))?;
            TopLevelGrammar::from_json_schema(schema::adapt(schema, *whitespace).map_err(refused)?)
        }
        GrammarKind::Regex(text) => TopLevelGrammar::from_regex(text),
        GrammarKind::Lark(text) => TopLevelGrammar::from_lark(lark::adapt(text, *whitespace).map_err(refused)?),
        GrammarKind::Choice(choices) => TopLevelGrammar::from_lark(choice(choices)),
    })
}

impl Grammar {
    /// Returns it as a Lark grammar of the library llguidance, for an engine that has this library. The same texts are
    /// allowed there, but for bounded white space, which becomes one space after each comma and colon: older versions
    /// ignore a pattern of white space.
    ///
    /// # Errors
    /// As for a grammar that is compiled here.
    pub fn to_lark(&self) -> Result<String, RequestError> {
        let refused = |problem| RequestError::invalid(self.kind.field(), problem);
        let whitespace = match self.whitespace {
            Whitespace::Bounded => Whitespace::Spaced,
            other => other,
        };
        Ok(match &self.kind {
            GrammarKind::JsonSchema(text) => {
                lark::adapt(&format!("start: {} {text}", lark::JSON), whitespace).map_err(refused)?
            }
            GrammarKind::Regex(text) => format!("start: {}", lark::regex(text)),
            GrammarKind::Lark(text) => lark::adapt(text, whitespace).map_err(refused)?,
            GrammarKind::Choice(choices) => choice(choices),
        })
    }
}

/// Returns the Lark grammar of these texts.
fn choice(choices: &[String]) -> String {
    let choices: Vec<String> = choices.iter().map(|choice| quoted(choice)).collect();
    format!("start: {}", choices.join(" | "))
}

/// Quotes a text as a string of a Lark grammar. Such strings are those of JSON, except for DEL.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Compiles a grammar, and computes its first tokens. Between the parts, it checks the thread's caller.
///
/// # Errors
/// The grammar is malformed or too large, allows no output, or its first tokens cost too much; or the
/// caller has gone.
pub(super) fn parser(factory: &ParserFactory, grammar: &Grammar, text: TopLevelGrammar) -> Result<TokenParser, String> {
    let limits = ParserLimits { max_grammar_size: max_symbols(grammar), ..factory.limits().clone() };
    let tokens = Some(factory.tok_env().clone());
    let read = AssertUnwindSafe(|| GrammarInit::Serialized(text).to_internal(tokens, limits.clone()));
    let (symbols, lexer) = catch_unwind(read).map_err(|error| error.to_string())?;
    check_caller()?;
    let (quiet, init) = (Logger::new(0, 0), GrammarInit::Internal(symbols, lexer));
    let parser = factory.create_parser_from_init_ext(init, quiet, InferenceCapabilities::default(), limits);
    let parser = parser.map_err(|error| error.to_string())?;
    check_caller()?;
    startable(parser)
}

fn max_symbols(grammar: &Grammar) -> usize {
    if matches!(grammar.kind, GrammarKind::JsonSchema(_)) { MAX_SCHEMA_SYMBOLS } else { MAX_SYMBOLS }
}

fn check_caller() -> Result<(), String> {
    CancelScope::check().map_err(|error| error.to_string())
}

/// Fails if no output can start with the grammar, or if computing its first tokens costs too much.
fn startable(mut parser: TokenParser) -> Result<TokenParser, String> {
    parser.start_without_prompt();
    match parser.stop_reason() {
        StopReason::NotStopped => parser.compute_mask().map(drop).map_err(|error| error.to_string())?,
        reason if reason.is_ok() => {}
        reason => return Err(reason.to_string()),
    }
    Ok(parser)
}
