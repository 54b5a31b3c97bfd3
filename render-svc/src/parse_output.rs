//! Reads one whole answer of a model, given as text or as ids.

use std::sync::Arc;

use serde_json::Value as Json;
use tandem_common::status::Reason;
use tandem_model_files::tokenizer::CancelScope;

use crate::catalog::ServedModel;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{self, Answer, AnswerReader, Delta, Rules, TextOfIds, is_read};
use crate::tokenize::{check_count, check_ids};

/// The most bytes of an answer's text: as many as a tokenizer decodes.
const MAX_TEXT_BYTES: usize = 10 << 20;
/// The most bytes of a streamed answer's text, which stays in memory while the stream is open.
const MAX_STREAM_BYTES: usize = 2 << 20;
/// The bytes of a text that are read before the next look whether the caller has gone.
const PIECE_BYTES: usize = 64 << 10;

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

/// How to read an answer that is still written. The fields are those of [`ParseJob`].
#[derive(Debug, Clone)]
pub struct ParseStart {
    pub model: String,
    pub prompt: String,
    pub tools: Option<Json>,
    pub rules: Option<String>,
}

/// The answer of a model, or a part of it.
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
        Output::Text(text) => text,
        Output::Ids(ids) => {
            let tokenizer = served.model.tokenizer()?;
            check_ids(tokenizer, &ids)?;
            let read: Vec<u32> = ids.into_iter().filter(|id| is_read(tokenizer, &rules, *id)).collect();
            let mut text_of_ids = TextOfIds::default();
            let text = text_of_ids.push(tokenizer, &read)?;
            text + &text_of_ids.finish()
        }
    };
    check_bytes(text.len(), MAX_TEXT_BYTES)?;
    let mut reader = reader(&rules, &prompt, tools.as_ref())?;
    read(&mut reader, &text)?;
    Ok((reader.finish().1, rules))
}

/// An answer that is read while it is written.
#[derive(Debug)]
pub struct RunningParse {
    served: Arc<ServedModel>,
    rules: Arc<Rules>,
    reader: AnswerReader,
    /// The text of the ids so far. None before the first ids.
    ids: Option<TextOfIds>,
    text_bytes: usize,
    id_count: usize,
}

impl RunningParse {
    /// Starts to read an answer.
    ///
    /// # Errors
    /// As for [`parse()`].
    pub fn start(served: Arc<ServedModel>, start: &ParseStart) -> Result<Self, Error> {
        let rules = rules_of(&served, None, start.rules.as_deref())?;
        let reader = reader(&rules, &start.prompt, start.tools.as_ref())?;
        Ok(Self { served, rules, reader, ids: None, text_bytes: 0, id_count: 0 })
    }

    /// Reads the next part.
    ///
    /// # Errors
    /// As for [`parse()`], or a text follows ids, or ids follow a text.
    pub fn feed(&mut self, output: Output) -> Result<Vec<Delta>, Error> {
        let mixed = |field| {
            Err(Invalid::new(field, "must not follow a part of the other kind: an answer is text or ids").into())
        };
        let text = match output {
            Output::Text(_) if self.ids.is_some() => return mixed("text"),
            Output::Ids(_) if self.ids.is_none() && self.text_bytes > 0 => return mixed("tokens"),
            Output::Text(text) => text,
            Output::Ids(ids) => {
                self.id_count += ids.len();
                check_count(self.id_count)?;
                let tokenizer = self.served.model.tokenizer()?;
                check_ids(tokenizer, &ids)?;
                let read: Vec<u32> = ids.into_iter().filter(|id| is_read(tokenizer, &self.rules, *id)).collect();
                self.ids.get_or_insert_default().push(tokenizer, &read)?
            }
        };
        self.text_bytes += text.len();
        check_bytes(self.text_bytes, MAX_STREAM_BYTES)?;
        read(&mut self.reader, &text)
    }

    /// Ends the answer. Returns its last parts, the whole and the rules.
    ///
    /// # Errors
    /// The caller has gone.
    pub fn finish(mut self) -> Result<(Vec<Delta>, Answer, Arc<Rules>), Error> {
        let rest = match &mut self.ids {
            Some(ids) => ids.finish(),
            None => String::new(),
        };
        let mut deltas = read(&mut self.reader, &rest)?;
        let (last, answer) = self.reader.finish();
        deltas.extend(last);
        Ok((deltas, answer, self.rules))
    }
}

fn reader(rules: &Arc<Rules>, prompt: &str, tools: Option<&Json>) -> Result<AnswerReader, Error> {
    let tools = parse::tools(rules, tools);
    AnswerReader::new(Arc::clone(rules), prompt, &tools).map_err(|error| Error::Rules(error.into()))
}

/// Reads a text, and ends early if the caller has gone.
fn read(reader: &mut AnswerReader, text: &str) -> Result<Vec<Delta>, Error> {
    let (mut deltas, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        CancelScope::check()?;
        let (first, after) = rest.split_at(rest.ceil_char_boundary(PIECE_BYTES));
        deltas.extend(reader.feed(first));
        rest = after;
    }
    Ok(deltas)
}

fn check_bytes(bytes: usize, most: usize) -> Result<(), Error> {
    if bytes <= most {
        return Ok(());
    }
    let problem = format!("must have at most {most} bytes, has {bytes}");
    Err(Invalid { reason: Reason::TextTooLong, ..Invalid::new("text", problem) }.into())
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
