//! Compiles grammars.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::{ParserFactory, TokenParser};
use parking_lot::{Condvar, Mutex};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tandem_common::thread_priority;
use tandem_model_files::tokenizer::{CancelScope, Tokenizer};

use super::constraint::{Compiled, Workers};
use super::source::Grammar;
use super::trial::Trial;
use super::{library, vocabulary};
use crate::error::RequestError;

/// The most grammars that are compiled at the same time: of the costly ones, and of the others. Requests
/// wait for their turn before they are prepared. These slots also count grammars whose caller has gone.
pub const MAX_COMPILING: usize = 2;
/// The interval at which a waiting request checks that its caller is still there.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The expected number of cached grammars.
const CACHED_GRAMMARS: usize = 64;
/// The most bytes of all cached grammars together.
const MAX_CACHED_BYTES: u64 = 256 << 20;
/// The memory of a compiled grammar for each byte of its text, without its lexer: measured with
/// large JSON schemas.
const BYTES_PER_TEXT_BYTE: u64 = 256;
/// The most bytes of a problem in an error message.
const MAX_PROBLEM_BYTES: usize = 500;
/// The start of the library's message about a grammar that no output satisfies.
const NO_OUTPUT: &str = "NoExtensionBias";

/// The compiler of grammars for one model, with a cache.
pub struct Grammars {
    compiler: Arc<Compiler>,
    workers: OnceLock<Arc<Workers>>,
}

/// The part of the compiler that its threads share.
struct Compiler {
    tokenizer: Tokenizer,
    vocabulary: usize,
    eos: Vec<u32>,
    /// The program that tries costly grammars. None: they are not tried.
    trials: Option<PathBuf>,
    /// Created for the first grammar. `None`: the model has no eos token.
    factory: OnceLock<Option<ParserFactory>>,
    cache: Cache<Grammar, Cached, ByBytes>,
    /// For costly grammars, which others do not wait for.
    costly: Slots,
    usual: Slots,
}

/// A compiled grammar, before the first token.
type SharedParser = Arc<Mutex<TokenParser>>;

#[derive(Clone)]
struct Cached {
    parser: SharedParser,
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

/// The number of taken slots to compile in.
type Slots = Arc<(Mutex<usize>, Condvar)>;

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("vocabulary", &self.compiler.vocabulary).finish_non_exhaustive()
    }
}

impl Grammars {
    /// Creates the compiler for a model whose ids are below `vocabulary`, and whose turns end with
    /// one of `eos`. `trials` is the program that tries costly grammars in another process. None: they
    /// are not tried.
    #[must_use]
    pub fn new(tokenizer: Tokenizer, vocabulary: usize, eos: Vec<u32>, trials: Option<PathBuf>) -> Self {
        let compiler = Compiler {
            tokenizer,
            vocabulary,
            eos,
            trials,
            factory: OnceLock::new(),
            cache: Cache::with_weighter(CACHED_GRAMMARS, MAX_CACHED_BYTES, ByBytes),
            costly: Slots::default(),
            usual: Slots::default(),
        };
        Self { compiler: Arc::new(compiler), workers: OnceLock::new() }
    }

    /// Returns true if the grammar is compiled, and in the cache.
    #[must_use]
    pub fn is_compiled(&self, grammar: &Grammar) -> bool {
        self.compiler.cache.contains_key(grammar)
    }

    /// Compiles a grammar. Blocks.
    ///
    /// # Errors
    /// The grammar is malformed, too large or too costly; the caller has gone; or the model has no eos
    /// token.
    pub fn compile(&self, grammar: &Grammar) -> Result<Compiled, RequestError> {
        grammar.kind.check()?;
        let parser = match self.compiler.cache.get(grammar) {
            Some(cached) => cached.parser,
            None => self.compiler.compile(grammar)?,
        };
        let workers = self.workers.get_or_init(|| Arc::new(Workers::start()));
        Ok(Compiled::new(grammar, parser, Arc::clone(workers)))
    }

    /// Returns the grammar after these tokens of a resumed output. Blocks.
    ///
    /// # Errors
    /// The tokens do not follow the grammar, or complete it; following them takes too long; or the
    /// caller has gone.
    pub fn resume(&self, grammar: Compiled, generated: &[u32]) -> Result<Compiled, RequestError> {
        if generated.is_empty() {
            return Ok(grammar);
        }
        let _slot = Slot::take(&self.compiler.usual)?;
        grammar.after(generated)
    }
}

impl Compiler {
    fn compile(self: &Arc<Self>, grammar: &Grammar) -> Result<SharedParser, RequestError> {
        let text = library::read(grammar)?;
        let is_costly = grammar.kind.may_be_costly();
        let slot = Slot::take(if is_costly { &self.costly } else { &self.usual })?;
        // Another request with the same grammar may have had its turn.
        if let Some(cached) = self.cache.get(grammar) {
            return Ok(cached.parser);
        }
        if let Some(program) = self.trials.as_ref().filter(|_| is_costly) {
            Trial::new(grammar, &self.tokenizer, self.vocabulary, &self.eos).run(program)?;
        }
        let (sender, parser) = mpsc::channel();
        let (compiler, own, caller) = (Arc::clone(self), grammar.clone(), CancelScope::token());
        let main = move || {
            thread_priority::lower();
            let (_slot, _scope) = (slot, caller.map(CancelScope::start));
            // The caller may have gone.
            let _ = sender.send(compiler.parser(&own, text));
        };
        // The library may recurse deeply, and panics on tokenizers that it does not support.
        let thread = thread::Builder::new().name("grammar".into()).stack_size(library::STACK_BYTES);
        thread.spawn(main).map_err(RequestError::Thread)?;
        loop {
            match parser.recv_timeout(CALLER_CHECK_INTERVAL) {
                Ok(parser) => return parser,
                Err(RecvTimeoutError::Timeout) => CancelScope::check().map_err(RequestError::Tokenize)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RequestError::invalid(grammar.kind.field(), "cannot be compiled"));
                }
            }
        }
    }

    /// Returns the parser of a grammar, and adds it to the cache.
    fn parser(&self, grammar: &Grammar, text: TopLevelGrammar) -> Result<SharedParser, RequestError> {
        let refused = |problem: &str| RequestError::invalid(grammar.kind.field(), problem);
        let factory = self.factory.get_or_init(|| self.factory()).as_ref();
        let factory = factory.ok_or_else(|| refused("needs a model that has an eos token"))?;
        let parser = library::parser(factory, grammar, text).map_err(|error| refused(&problem(&error)))?;
        let bytes = parser.parser.lexer_stats().num_bytes as u64 + grammar.kind.bytes() * BYTES_PER_TEXT_BYTE;
        let parser = Arc::new(Mutex::new(parser));
        self.cache.insert(grammar.clone(), Cached { parser: Arc::clone(&parser), bytes });
        Ok(parser)
    }

    fn factory(&self) -> Option<ParserFactory> {
        let words = vocabulary::words(&self.tokenizer, self.vocabulary);
        library::factory(&vocabulary::environment(&words, &self.eos)?)
    }
}

/// A slot to compile in, released when dropped.
struct Slot(Slots);

impl Slot {
    /// Waits for a slot.
    fn take(slots: &Slots) -> Result<Self, RequestError> {
        let (taken, freed) = &**slots;
        let mut taken = taken.lock();
        while *taken >= MAX_COMPILING {
            CancelScope::check().map_err(RequestError::Tokenize)?;
            freed.wait_for(&mut taken, CALLER_CHECK_INTERVAL);
        }
        *taken += 1;
        Ok(Self(Arc::clone(slots)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (taken, freed) = &*self.0;
        *taken.lock() -= 1;
        freed.notify_one();
    }
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
