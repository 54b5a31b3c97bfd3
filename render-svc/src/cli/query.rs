//! The `tokenize` and `explain` commands: answer one JSON request with one line of JSON, without a
//! server. `tokenize` also takes a text.

use std::io::{Read as _, Write};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use tandem_common::input;
use tandem_common::status::Failure;
use tandem_model_files::tokenizer::{Encoding, Tokenizer};
use tandem_template::LocalTime;

use super::models::RequestModels;
use super::screen::{self, Reader};
use super::{json, typed};
use crate::catalog::Sources;
use crate::command::CommandError;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::job::{ControlTokenPolicy, RenderJob};
use crate::resolve;
use crate::tokenize::{TokenizeJob, detokenize, tokenize};

/// The question of a command, and the models that it may name by id.
#[derive(Debug)]
pub struct Config {
    pub question: Question,
    /// The models that the question may name by id.
    pub sources: Sources,
}

/// The question of a command.
#[derive(Debug)]
pub enum Question {
    /// The token ids of a text.
    Text {
        text: String,
        /// Id or path of the model; empty for the only model.
        model: String,
    },
    /// The token ids of a text, or the text of token ids.
    Tokens {
        /// File of the request; `-` is standard input.
        input: PathBuf,
        /// Id or path of the model of a request that names none.
        model: String,
    },
    /// The adapter of a request to render, and the reason.
    Resolution {
        /// File of the request; `-` is standard input.
        input: PathBuf,
    },
}

/// Runs the command. The answer is one line of JSON. A person gets the pieces of a text that is no request.
///
/// # Errors
/// The models or the input cannot be read, the output cannot be written, or the request fails.
pub fn run(config: Config, reader: Reader, mut out: impl Write) -> Result<(), CommandError> {
    let Config { question, sources } = config;
    let mut models = RequestModels::open(sources)?;
    match question {
        Question::Text { text, model } => {
            let (tokenizer, tokens) = tokenized(text, model, &mut models)?;
            match reader {
                Reader::Program => writeln!(out, "{}", Value::from(json::tokens(tokens)))?,
                Reader::Person { is_coloured } => {
                    write!(out, "{}", screen::tokens(&tokenizer, &tokens.ids, is_coloured))?;
                }
            }
        }
        Question::Tokens { input, model } => {
            writeln!(out, "{}", reader.json(&tokens(&read(input)?, model, &mut models)?))?;
        }
        Question::Resolution { input } => {
            writeln!(out, "{}", reader.json(&resolution(&read(input)?, &mut models)?))?;
        }
    }
    Ok(())
}

/// Reads a request, without the byte order mark that some editors write.
fn read(input: PathBuf) -> Result<String, CommandError> {
    let mut text = String::new();
    let opened = input::open(&input, "a request").map_err(|source| CommandError::Input { path: input, source });
    opened?.read_to_string(&mut text)?;
    Ok(text.strip_prefix('\u{FEFF}').map(str::to_owned).unwrap_or(text))
}

/// Returns the tokens of a text, control tokens included, and the model's tokenizer.
fn tokenized(text: String, mut name: String, models: &mut RequestModels) -> Result<(Tokenizer, Encoding), Error> {
    let table = models.find(&mut name)?;
    let model = &table.get(&name)?.model;
    let control_tokens = ControlTokenPolicy::Tokens;
    let job = TokenizeJob { model: name, text, add_special_tokens: false, return_offsets: false, control_tokens };
    Ok((model.tokenizer()?.clone(), tokenize(model, &job)?))
}

/// A text or token ids: the fields of the contract's TokenizeRequest and DetokenizeRequest.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    model: String,
    text: Option<String>,
    add_special_tokens: bool,
    return_offsets: bool,
    control_tokens: Option<json::Spelling>,
    token_ids: Option<Vec<u32>>,
    skip_special_tokens: bool,
}

fn tokens(text: &str, default_model: String, models: &mut RequestModels) -> Result<Value, Error> {
    let wrong = |error: serde_json::Error| Invalid::new("request", error.to_string());
    let mut request: Request = serde_json::from_str(text).map_err(wrong)?;
    if request.model.is_empty() {
        request.model = default_model;
    }
    let table = models.find(&mut request.model)?;
    let model = &table.get(&request.model)?.model;
    let Request { model: name, text, add_special_tokens, return_offsets, control_tokens, .. } = request;
    match (text, request.token_ids) {
        (Some(text), None) => {
            let control_tokens = control_tokens.map_or(ControlTokenPolicy::Tokens, json::Spelling::domain);
            let job = TokenizeJob { model: name, text, add_special_tokens, return_offsets, control_tokens };
            Ok(json::tokens(tokenize(model, &job)?).into())
        }
        (None, Some(ids)) => Ok(json!({"text": detokenize(model, &ids, request.skip_special_tokens)?})),
        _ => Err(Invalid::new("request", "must have either text or token_ids").into()),
    }
}

fn resolution(text: &str, models: &mut RequestModels) -> Result<Value, Error> {
    let Some(request) = typed::request(text)? else { return explained(json::request(text, LocalTime::now())?, models) };
    let paths = RequestPaths::new(request.conversation.as_ref());
    let explained = RenderJob::try_from(request).map_err(Error::from).and_then(|job| explained(job, models));
    explained.map_err(|error| Error::Contract(Box::new(paths.failure(Failure::from(&error)))))
}

fn explained(mut job: RenderJob, models: &mut RequestModels) -> Result<Value, Error> {
    let table = models.find(&mut job.model)?;
    let adapter = job.options.adapter.as_deref();
    let resolution = resolve::explain(table.get_for(&job.model, adapter)?, adapter, &job.conversation)?;
    let rejected = resolution.rejected.iter().map(|(adapter, reason)| json!({"adapter": adapter, "reason": reason}));
    let adapter = resolution.adapter.unwrap_or_default();
    Ok(json!({"adapter": adapter, "reason": resolution.reason, "rejected": rejected.collect::<Vec<_>>()}))
}
