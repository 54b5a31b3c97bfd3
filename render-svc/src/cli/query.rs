//! The `tokenize` and `explain` commands: answer one JSON request with one line of JSON, without a
//! server.

use std::io::{Read as _, Write};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use tandem_common::input;
use tandem_common::status::Failure;
use tandem_template::LocalTime;

use super::models::RequestModels;
use super::{json, typed};
use crate::catalog::Sources;
use crate::command::CommandError;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::job::{ControlTokenPolicy, RenderJob};
use crate::resolve;
use crate::tokenize::{TokenizeJob, detokenize, tokenize};

/// The question of a command, its input, and the models that the request may name by id.
#[derive(Debug)]
pub struct Config {
    /// The question.
    pub question: Question,
    /// File of the request; `-` is standard input.
    pub input: PathBuf,
    /// The models that the request may name by id.
    pub sources: Sources,
}

/// The question of a command.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// The token ids of a text, or the text of token ids.
    Tokens,
    /// The adapter of a request to render, and the reason.
    Resolution,
}

/// Runs the command.
///
/// # Errors
/// The models or the input cannot be read, the output cannot be written, or the request fails.
pub fn run(config: Config, mut out: impl Write) -> Result<(), CommandError> {
    let Config { question, input, sources } = config;
    let mut models = RequestModels::open(sources)?;
    let mut text = String::new();
    let opened = input::open(&input, "a request").map_err(|source| CommandError::Input { path: input, source });
    opened?.read_to_string(&mut text)?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text); // a byte order mark, which some editors write
    let answer = match question {
        Question::Tokens => tokens(text, &mut models),
        Question::Resolution => resolution(text, &mut models),
    };
    writeln!(out, "{}", answer?)?;
    Ok(())
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

fn tokens(text: &str, models: &mut RequestModels) -> Result<Value, Error> {
    let wrong = |error: serde_json::Error| Invalid::new("request", error.to_string());
    let mut request: Request = serde_json::from_str(text).map_err(wrong)?;
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
