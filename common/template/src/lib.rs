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
mod machine;
mod parser;
mod predicates;
mod program;
pub mod python;
mod scope;
pub mod taint;
mod text_buffer;
mod unicode;
mod value;

use std::fmt;
use std::sync::Arc;

use analysis::TemplateAnalysis;

pub use analysis::ArgumentsShape;
pub use apply::{Applied, Input};
pub use clock::LocalTime;
pub use error::{CompileError, Limit, RenderError};
pub use limits::Limits;
pub use taint::Taint;

/// A compiled chat template. Cloning is cheap, and any number of threads may share one.
#[derive(Clone)]
pub struct ChatTemplate {
    source: Arc<str>,
    program: Arc<program::Program>,
    analysis: Arc<TemplateAnalysis>,
}

impl ChatTemplate {
    /// Compiles a template; an error names the line and the construct.
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

    /// Whether the template may look up this variable: `tools`, `documents`, a template argument. False only if what is
    /// given by this name can change nothing.
    pub fn reads(&self, name: &str) -> bool {
        self.analysis.reads(name)
    }

    /// Which JSON type the template wants the `arguments` of tool calls to have.
    pub fn arguments(&self) -> ArgumentsShape {
        self.analysis.arguments
    }

    /// Every text that the template itself holds, data and string literals, each once, with a null character between two.
    /// An added token that occurs in it is a control token of the template.
    pub fn literal_text(&self) -> &str {
        &self.analysis.literal_text
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
