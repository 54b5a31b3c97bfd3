//! Compiles grammars.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use llguidance::api::{GrammarInit, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Logger, ParserFactory, TokenParser};
use parking_lot::{Condvar, Mutex};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::Value;
use tandem_model_files::tokenizer::{CancelScope, Tokenizer};

use super::constraint::{Compiled, Workers};
use super::source::Grammar;
use super::vocabulary;
use crate::error::Error;

/// The most grammars that are compiled at the same time.
const MAX_COMPILING: usize = 2;
/// The most grammars that wait to be compiled.
const MAX_QUEUED: usize = 32;
/// The interval at which a waiting request checks that its caller is still there.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The most symbols of a JSON schema's grammar. The library's time grows with the square of the
/// symbols: the costliest schema takes about a second. An optional property has 8 symbols.
const MAX_SCHEMA_SYMBOLS: usize = 32_000;
/// The same for other grammars, whose symbols can cost more.
const MAX_SYMBOLS: usize = 4_000;
/// The expected number of cached grammars.
const CACHED_GRAMMARS: usize = 64;
/// The most bytes of all cached grammars together.
const MAX_CACHED_BYTES: u64 = 256 << 20;
/// The memory of a compiled grammar for each byte of its text, without its lexer: measured with
/// large JSON schemas.
const BYTES_PER_TEXT_BYTE: u64 = 256;
/// The size of the compiling thread's stack. Deep grammars recurse.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// The most bytes of a problem in an error message.
const MAX_PROBLEM_BYTES: usize = 500;
/// The start of the library's message about a grammar that no output satisfies.
const NO_OUTPUT: &str = "NoExtensionBias";

/// The compiler of grammars for one model, with a cache.
pub struct Grammars {
    tokenizer: Tokenizer,
    vocabulary: usize,
    eos: Vec<u32>,
    /// Created for the first grammar. `None`: the model has no eos token.
    factory: OnceLock<Option<ParserFactory>>,
    cache: Cache<Grammar, Cached, ByBytes>,
    slots: Mutex<Slots>,
    freed: Condvar,
    workers: OnceLock<Arc<Workers>>,
}

/// A compiled grammar, before the first token.
#[derive(Clone)]
struct Cached {
    parser: Arc<Mutex<TokenParser>>,
    /// An estimate of its memory.
    bytes: u64,
}

/// Limits the cache by the memory of its grammars.
#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Grammar, Cached> for ByBytes {
    fn weight(&self, _: &Grammar, cached: &Cached) -> u64 {
        cached.bytes
    }
}

#[derive(Debug, Default)]
struct Slots {
    taken: usize,
    waiting: usize,
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

impl Grammars {
    /// Creates the compiler for a model whose ids are below `vocabulary`, and whose turns end with
    /// one of `eos`.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, vocabulary: usize, eos: Vec<u32>) -> Self {
        Self {
            tokenizer,
            vocabulary,
            eos,
            factory: OnceLock::new(),
            cache: Cache::with_weighter(CACHED_GRAMMARS, MAX_CACHED_BYTES, ByBytes),
            slots: Mutex::default(),
            freed: Condvar::new(),
            workers: OnceLock::new(),
        }
    }

    /// Compiles a grammar. Blocks.
    ///
    /// # Errors
    /// The grammar is malformed or too large; too many grammars wait to be compiled; the caller has
    /// gone; or the model has no eos token.
    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, Error> {
        grammar.check()?;
        let cached = match self.cache.get(grammar) {
            Some(cached) => cached,
            None => {
                let parser = self.compile_new(grammar)?;
                let bytes = parser.parser.lexer_stats().num_bytes as u64 + grammar.bytes() * BYTES_PER_TEXT_BYTE;
                let cached = Cached { parser: Arc::new(Mutex::new(parser)), bytes };
                self.cache.insert(grammar.clone(), cached.clone());
                cached
            }
        };
        let workers = self.workers.get_or_init(|| Arc::new(Workers::start()));
        Ok(Compiled::new(cached.parser, Arc::clone(workers)))
    }

    /// Returns the grammar after these tokens of a resumed output. Blocks.
    ///
    /// # Errors
    /// The tokens do not follow the grammar, or complete it; following them takes too long; or too
    /// many grammars wait to be compiled.
    pub fn resume(&self, grammar: Compiled, generated: &[u32]) -> Result<Compiled, Error> {
        if generated.is_empty() {
            return Ok(grammar);
        }
        let _slot = self.take_slot()?;
        grammar.after(generated)
    }

    fn compile_new(&self, grammar: &Grammar) -> Result<TokenParser, Error> {
        let init = GrammarInit::Serialized(read(grammar)?);
        let _slot = self.take_slot()?;
        let compile = || {
            let factory = self.factory.get_or_init(|| self.factory()).as_ref()?;
            let (quiet, capabilities) = (Logger::new(0, 0), InferenceCapabilities::default());
            let limits = ParserLimits { max_grammar_size: max_symbols(grammar), ..factory.limits().clone() };
            let parser = factory.create_parser_from_init_ext(init, quiet, capabilities, limits);
            Some(parser.map_err(|error| error.to_string()).and_then(startable))
        };
        // The library may recurse deeply, and panics on tokenizers that it does not support.
        let compiled = thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, compile).map_err(Error::Thread)?;
            thread.join().map_err(|_| Error::invalid(grammar.field(), "cannot be compiled"))
        })?;
        let parser = compiled.ok_or_else(|| Error::invalid(grammar.field(), "needs a model that has an eos token"))?;
        parser.map_err(|error| Error::invalid(grammar.field(), problem(&error)))
    }

    fn factory(&self) -> Option<ParserFactory> {
        let environment: TokEnv = vocabulary::environment(&self.tokenizer, self.vocabulary, &self.eos)?;
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices).ok()?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false; // verbose errors quote the output
        limits.max_lexer_states = 50_000;
        limits.precompute_large_lexemes = false;
        Some(factory)
    }

    fn take_slot(&self) -> Result<Slot<'_>, Error> {
        let mut slots = self.slots.lock();
        if slots.taken >= MAX_COMPILING && slots.waiting >= MAX_QUEUED {
            return Err(Error::GrammarQueueFull { limit: MAX_QUEUED });
        }
        slots.waiting += 1;
        let mut caller = CancelScope::check();
        while slots.taken >= MAX_COMPILING && caller.is_ok() {
            self.freed.wait_for(&mut slots, CALLER_CHECK_INTERVAL);
            caller = CancelScope::check();
        }
        slots.waiting -= 1;
        caller.map_err(Error::Tokenize)?;
        slots.taken += 1;
        Ok(Slot(self))
    }
}

/// A slot to compile in, released when dropped.
struct Slot<'a>(&'a Grammars);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.slots.lock().taken -= 1;
        self.0.freed.notify_one();
    }
}

fn max_symbols(grammar: &Grammar) -> usize {
    if matches!(grammar, Grammar::JsonSchema(_)) { MAX_SCHEMA_SYMBOLS } else { MAX_SYMBOLS }
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

fn read(grammar: &Grammar) -> Result<TopLevelGrammar, Error> {
    Ok(match grammar {
        Grammar::JsonSchema(text) => {
            let schema: Value = serde_json::from_str(text)
                .map_err(|error| Error::invalid(grammar.field(), format!("must be JSON: {error}")))?;
            TopLevelGrammar::from_json_schema(schema)
        }
        Grammar::Regex(text) => TopLevelGrammar::from_regex(text),
        Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        Grammar::Choice(choices) => {
            let choices: Vec<String> = choices.iter().map(|choice| quoted(choice)).collect();
            TopLevelGrammar::from_lark(format!("start: {}", choices.join(" | ")))
        }
    })
}

/// Quotes a text as a string of a Lark grammar. Such strings are those of JSON, except for DEL.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns the library's message in one line of limited length.
fn problem(text: &str) -> String {
    if text.starts_with("panic") {
        return "cannot be compiled".to_owned();
    }
    if text.starts_with(NO_OUTPUT) {
        return "allows no output".to_owned();
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let end = (0..=line.len().min(MAX_PROBLEM_BYTES)).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
    format!("is refused: {}", &line[..end])
}
