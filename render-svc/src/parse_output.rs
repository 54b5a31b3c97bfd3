//! Reads one whole answer of a model, given as text or as ids.

use std::sync::Arc;

use serde_json::Value as Json;
use tandem_common::status::Reason;

use crate::catalog::ServedModel;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{Answer, AnswerReader, Rules, is_read, values};
use crate::tokenize::check_ids;

/// The most bytes of an answer's text: as many as a tokenizer decodes.
const MAX_TEXT_BYTES: usize = 10 << 20;

/// An answer to read, and how.
#[derive(Debug, Clone)]
pub struct ParseJob {
    /// The model's id; empty for the only model.
    pub model: String,
    pub output: Output,
    /// The prompt, or its end.
    pub prompt: String,
    /// A JSON list of tools in the form of `apply_chat_template`.
    pub tools: Option<Json>,
    /// The name of the rules. None means those of the model.
    pub rules: Option<String>,
}

/// The answer of a model.
#[derive(Debug, Clone)]
pub enum Output {
    Text(String),
    Ids(Vec<u32>),
}

impl Output {
    /// Returns its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Ids(ids) => size_of_val(ids.as_slice()),
        }
    }
}

/// Reads an answer. Also returns the rules.
///
/// # Errors
/// There are no rules of the name, the model's own cannot be used, an id is unknown, or the text is too long.
pub fn parse(served: &ServedModel, job: ParseJob) -> Result<(Answer, Arc<Rules>), Error> {
    let ParseJob { output, prompt, tools, rules, .. } = job;
    let rules = rules_of(served, None, rules.as_deref())?;
    let text = match output {
        Output::Text(text) if text.len() > MAX_TEXT_BYTES => {
            let problem = format!("must have at most {MAX_TEXT_BYTES} bytes, has {}", text.len());
            return Err(Invalid { reason: Reason::TextTooLong, ..Invalid::new("text", problem) }.into());
        }
        Output::Text(text) => text,
        Output::Ids(ids) => {
            let tokenizer = served.model.tokenizer()?;
            check_ids(tokenizer, &ids)?;
            let read: Vec<u32> = ids.into_iter().filter(|id| is_read(tokenizer, &rules, *id)).collect();
            tokenizer.decode(&read, false)?
        }
    };
    let tools = values(tools.as_ref());
    let reader = AnswerReader::new(Arc::clone(&rules), &prompt, &tools).map_err(|error| Error::Rules(error.into()))?;
    Ok((reader.read(&text), rules))
}

/// Returns the rules of a name for answers to an adapter's prompts, or those of the model.
///
/// # Errors
/// There is no such adapter, there are no rules of the name, or the model's own cannot be used.
pub fn rules_of(served: &ServedModel, adapter: Option<&str>, name: Option<&str>) -> Result<Arc<Rules>, Error> {
    let format = served.resolve(adapter)?.format;
    let rules = match name {
        Some(name) => format.named_rules(name),
        None => format.answer_rules().rules.clone(),
    };
    rules.map_err(Error::Rules)
}
