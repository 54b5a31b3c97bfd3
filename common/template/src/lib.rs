//! Chat templates: Jinja2 as Hugging Face transformers runs it, byte for byte.
//!
//! [`ChatTemplate::compile`] compiles a template once; [`ChatTemplate::apply`] renders a
//! conversation as `apply_chat_template(..., tokenize=False)` does. [`python`] prints JSON values
//! as Python does, for prompt formats that are Python code. [`taint`] shows which text of a prompt
//! came from the conversation, and [`literal`] which of its control tokens. [`media`] reads the
//! images, audio and video of messages.
//!
//! # Modules, bottom-up
//!
//! Every module imports only modules above it in this list.
//!
//! - [`error`], [`limits`], [`clock`], [`strftime`], [`unicode`]: errors, limits, time, character tables.
//! - [`budget`], [`text_buffer`], [`taint`]: steps and memory of a render, bounded text, taint.
//! - [`ast`], [`lexer`], [`parser`]: source to syntax tree, by Jinja2's grammar.
//! - [`arguments`], [`interpreter`]: calls, and the trait through which filters call template code.
//! - [`program`]: the compiled template, a tree in which names are places and filters are
//!   functions.
//! - [`value`]: Python's values and data model: truth, length, iteration, equality, hashes.
//! - [`scope`]: the variables that names mean.
//! - [`python`]: operators, attributes, calls, methods, `str`, `repr`, `format`, `json.dumps`.
//! - [`filters`], [`predicates`]: Jinja2's filters and tests.
//! - [`machine`]: runs programs.
//! - [`compiler`], [`analysis`]: syntax tree to program, and facts about a template.
//! - [`apply`]: the steps of transformers before and after a template.
//! - [`media`], [`literal`]: media blocks of messages, and control tokens of the caller's text.
//!
//! # minijinja
//!
//! minijinja is used for its value model only: a compact value with small strings, shared text,
//! native scalars and one dynamic object type. On that type, [`value`] builds Python's types. Its
//! lexer, parser, compiler and virtual machine are not used. A prototype on minijinja's own engine
//! rendered all templates of a large corpus as transformers does, but only by rewriting every
//! syntax tree before compilation. An engine for this one purpose adds:
//!
//! - Jinja2's grammar and scopes exactly, such as tuples without parentheses, unary `+` and `self`.
//! - Python's dict keys, integers of any size, one-shot generators and operator errors.
//! - Memory, steps and nesting are bounded everywhere. Deep expressions and values overflowed the
//!   stack of the other engine, which ends the process; some comparisons took exponential time.
//! - Taint, which has to be kept by every operation on text.
//!
//! Speed is the same or better. The remaining differences from Jinja2 are in `COMPATIBILITY.md`.
//!
//! # Invariants
//!
//! - A template reads no clock, no environment, no files and no network, and no random numbers.
//! - No render exceeds its [`Limits`]; every limit is an error.
//! - No template or conversation overflows the stack or panics.
//! - No state survives a render: thread-locals are reset at its start.
//! - No module imports another one in a circle, and this crate imports no other crate of the
//!   project.
//! - No operation on text loses taint. Where it is unclear which characters of a result have it,
//!   all have it.

mod analysis;
mod apply;
mod arguments;
mod ast;
mod budget;
mod clock;
mod compiler;
mod error;
mod filters;
mod interpreter;
mod lexer;
mod limits;
pub mod literal;
mod machine;
pub mod media;
mod parser;
mod predicates;
mod program;
pub mod python;
mod scope;
mod strftime;
pub mod taint;
mod text_buffer;
mod unicode;
mod value;

use std::fmt;
use std::sync::Arc;

use analysis::TemplateAnalysis;

pub use apply::{Applied, Input};
pub use budget::{CancelScope, StepsPool};
pub use clock::LocalTime;
pub use error::{CompileError, Limit, RenderError};
pub use limits::Limits;
pub use taint::Taint;

/// A compiled chat template. Clones are cheap and share the program between threads.
#[derive(Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    program: Arc<program::Program>,
    analysis: Arc<TemplateAnalysis>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// Fails if Jinja2 refuses the template, or if it uses a construct that this engine does not
    /// support. The error has the line.
    pub fn compile(source: &str) -> Result<Self, CompileError> {
        let (program, analysis) = budget::with_compiler_stack(|| {
            let _meter = budget::Meter::start(&Limits::default());
            let template = parser::parse(source)?;
            let program = compiler::compile(&template)?;
            let analysis = TemplateAnalysis::of(&template, &program);
            Ok((program, analysis))
        })?;
        Ok(Self { source: source.into(), program: Arc::new(program), analysis: Arc::new(analysis) })
    }

    /// Returns true if the template may look up this variable, such as `tools`. If false, a value
    /// of this name cannot change the prompt.
    pub fn reads(&self, name: &str) -> bool {
        self.analysis.reads(name)
    }

    /// Returns the names of variables that the template may look up and that Jinja2 does not define,
    /// sorted: those of a conversation, special tokens, and the template's own arguments.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.analysis.variables().filter(|name| python::globals::find(name).is_none())
    }

    /// Returns every text in the template, data and string literals, each once, separated by null
    /// characters. An added token in it is a control token of the template.
    pub fn literal_text(&self) -> &str {
        &self.analysis.literal_text
    }

    /// Returns the template's source, unchanged.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation, as `apply_chat_template(..., tokenize=False)` does.
    ///
    /// # Errors
    ///
    /// Fails if the template refuses the conversation, or if it fails as it would in Jinja2. Also
    /// fails if a limit is exceeded, or if the input is not valid.
    pub fn apply(&self, input: &Input<'_>, limits: &Limits) -> Result<Applied, RenderError> {
        apply::apply(&self.program, &self.source, input, limits)
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}
