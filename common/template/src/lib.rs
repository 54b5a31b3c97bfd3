//! Chat templates: Jinja2 as Hugging Face transformers runs it, byte for byte.
//!
//! A template is read by our own [`lexer`] and [`parser`], which follow Jinja2's grammar and give a syntax tree
//! ([`ast`]). [`scope`] works out what each name means, and [`compiler`] makes a [`program`]: a tree in which names are
//! places and filters, tests and operators are functions, with all computed that is constant. [`machine`] walks it and
//! puts the text out. What happens to values is Python: [`value`], on top of minijinja's, and [`python`], with
//! [`filters`], tests ([`predicates`]) and [`globals`]. [`apply`] is what transformers does around a template. Letters may be
//! marked, which the template does not see: [`marks`].
//!
//! Templates and conversations are untrusted. A template sees nothing but the conversation: no clock, no environment,
//! no files. What it may use is bounded by [`Limits`], and every bound is an error of its own.

mod apply;
mod ast;
mod budget;
mod clock;
mod compiler;
mod error;
mod facts;
mod filters;
mod globals;
mod lexer;
mod machine;
pub mod marks;
mod parser;
mod predicates;
mod program;
mod python;
mod scope;
mod unicode;
mod value;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use clock::LocalTime;
pub use error::{CompileError, Limit, RenderError};
pub use facts::ArgumentsShape;
pub use marks::Marks;

/// A compiled chat template. Cloning is cheap, and any number of threads may share one.
#[derive(Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    program: Arc<program::Program>,
    facts: Arc<facts::Facts>,
}

impl ChatTemplate {
    /// Compiles a template; an error names the line and the construct.
    pub fn compile(source: &str) -> Result<Self, CompileError> {
        let (program, facts) = budget::with_compiler_stack(|| {
            let _meter = budget::Meter::start(&Limits::default());
            let template = parser::parse(source)?;
            let program = compiler::compile(&template)?;
            let facts = facts::Facts::of(&template, &program);
            Ok((program, facts))
        })?;
        Ok(Self { source: source.into(), program: Arc::new(program), facts: Arc::new(facts) })
    }

    /// Whether the template may look up this variable: `tools`, `documents`, a template argument. False only if what is
    /// given by this name can change nothing.
    pub fn reads(&self, name: &str) -> bool {
        self.facts.reads(name)
    }

    /// Which JSON type the template wants the `arguments` of tool calls to have.
    pub fn arguments(&self) -> ArgumentsShape {
        self.facts.arguments
    }

    /// Every text that the template itself holds, data and string literals, each once, with a null character between two.
    /// An added token that occurs in it is a control token of the template.
    pub fn literal_text(&self) -> &str {
        &self.facts.literal_text
    }

    /// The template's source, as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation, as `apply_chat_template(..., tokenize=False)` does.
    pub fn apply(&self, input: &Input<'_>, limits: &Limits) -> Result<Applied, RenderError> {
        apply::apply(&self.program, &self.source, input, limits)
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A conversation and how to render it.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The messages, each a JSON object.
    pub messages: &'a [Value],
    /// A list of JSON objects. Without tools, templates see `none`.
    pub tools: Option<&'a Value>,
    /// A list of JSON objects. Without documents, templates see `none`.
    pub documents: Option<&'a Value>,
    /// Arguments for the template, which override special tokens of the same name.
    pub args: &'a Map<String, Value>,
    /// `bos_token`, `eos_token` and the like; only those that the model has.
    pub special_tokens: &'a Map<String, Value>,
    /// Whether the prompt ends with the start of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends within the final message, for the model to go on with.
    pub continue_final_message: bool,
    /// What `strftime_now` sees.
    pub now: LocalTime,
    /// How letters of the conversation are marked, which the template does not see.
    pub marks: Option<Marks>,
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The prompt.
    pub text: String,
    /// The bytes of `text` that `{% generation %}` blocks put out, in the order in which the blocks ended.
    pub generation_spans: Vec<Range<usize>>,
}

/// What one render may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Computing steps: operations, rounds of loops, and one for every 32 bytes of text that is copied or searched. Every
    /// byte of the conversation adds 16.
    pub steps: u64,
    /// Bytes of values that the template makes; lists and long texts that it drops again are credited. Every byte of the
    /// conversation adds 8.
    pub bytes: u64,
    /// Bytes of the prompt.
    pub output: u64,
}

impl Default for Limits {
    /// Far more than any real template needs. A hostile one is stopped within a second or two and half a gigabyte; a
    /// conversation of tens of megabytes still renders.
    fn default() -> Self {
        Self { steps: 30_000_000, bytes: 256 * 1024 * 1024, output: 128 * 1024 * 1024 }
    }
}
