//! The commands on requests. This file has `render`, which renders JSON requests to prompts without a server.

pub mod json;
mod models;
mod output_spec;
pub mod query;
pub mod screen;
mod typed;

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use tandem_common::input;
use tandem_common::status::Failure;
use tandem_model_files::tokenizer::Encoding;
use tandem_template::LocalTime;

use self::models::RequestModels;
use self::screen::Reader;
use crate::capabilities::Capabilities;
use crate::catalog::Sources;
use crate::command::CommandError;
use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::job::{RenderJob, ReturnTokenIds};
use crate::limits::Limits;
use crate::model::Model;
use crate::render::{Output, Rendered, render};

/// The input and output of the command, and the models that it renders for.
#[derive(Debug)]
pub struct Config {
    /// File of requests; `-` is standard input.
    pub input: PathBuf,
    /// True if each line is a request. Each line is answered with one line of JSON.
    pub is_jsonl: bool,
    /// The capabilities for requests that contain none.
    pub capabilities: Option<Capabilities>,
    /// The models that requests may name by id.
    pub sources: Sources,
}

/// Runs the command. Without `--jsonl`, it writes the prompt, or one line of JSON for HF messages. A program gets the
/// exact bytes.
///
/// # Errors
/// The models or the input cannot be read, the output cannot be written, or a request fails.
pub fn run(config: Config, reader: Reader, out: impl Write) -> Result<(), CommandError> {
    match render_all(config, reader, out) {
        // The reader of the output closed the pipe.
        Err(CommandError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn render_all(config: Config, reader: Reader, out: impl Write) -> Result<(), CommandError> {
    let Config { input, is_jsonl, capabilities, sources } = config;
    // Lines go to a generation service, which needs the whole input.
    let token_ids = if is_jsonl { ReturnTokenIds::IfTextIsNotEnough } else { ReturnTokenIds::No };
    let has_places = !is_jsonl && reader == Reader::Person { is_coloured: true };
    let mut runner = RequestRunner { models: RequestModels::open(sources)?, capabilities, token_ids, has_places };
    let mut out = BufWriter::new(out);
    let content = if is_jsonl { "requests, one per line," } else { "a request" };
    let mut input = input::open(&input, content).map_err(|source| CommandError::Input { path: input, source })?;
    let ended = if is_jsonl {
        lines(&mut runner, input, reader, &mut out)
    } else {
        let mut text = String::new();
        input.read_to_string(&mut text)?;
        one(&mut runner, &text, reader, &mut out)
    };
    out.flush()?;
    ended
}

fn one(runner: &mut RequestRunner, text: &str, reader: Reader, out: &mut impl Write) -> Result<(), CommandError> {
    let rendered = runner.render(text)?;
    let mut warnings: Vec<_> = rendered.warnings.iter().map(|it| (json::key(&it.path), &it.text)).collect();
    warnings.dedup();
    warnings.iter().for_each(|(path, text)| tracing::warn!(path, "{text}"));
    match rendered.output {
        Output::Prompt { text, attachments, tokens } => {
            if !attachments.is_empty() {
                let attachments = attachments.len();
                tracing::warn!(attachments, "the prompt has attachments, which only --jsonl shows");
            }
            let shown = match reader {
                Reader::Program => text,
                Reader::Person { .. } => screen::prompt(&text, &control_places(&rendered.model, tokens.as_ref())),
            };
            out.write_all(shown.as_bytes())?;
        }
        Output::HfMessages(hf) => {
            let messages = serde_json::Value::from(hf.messages);
            writeln!(out, "{}", reader.json(&messages))?;
        }
    }
    Ok(())
}

/// Returns the places of the control tokens in a prompt with these tokens, if it was tokenized with offsets.
fn control_places(model: &Model, tokens: Option<&Encoding>) -> Vec<Range<usize>> {
    let both = model.tokenizer().ok().zip(tokens);
    both.map_or_else(Vec::new, |(tokenizer, tokens)| screen::control_places(tokenizer, tokens))
}

/// Answers each line, in order. A line that is not UTF-8 gets an error. Fails at the end if a line
/// failed.
fn lines(
    runner: &mut RequestRunner,
    input: impl BufRead,
    reader: Reader,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let (mut failed, mut total) = (0, 0);
    for line in input.split(b'\n') {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let result = match str::from_utf8(&line) {
            Ok(text) => runner.render(text),
            Err(e) => Err(json::malformed(e).into()),
        };
        total += 1;
        failed += usize::from(result.is_err());
        if let Err(error @ (Error::ModelNotLoaded { .. } | Error::NoTokenizer { .. })) = &result {
            tracing::warn!(%error, "request failed"); // with the paths, which the answer leaves out
        }
        writeln!(out, "{}", reader.json(&json::answer(result)))?;
    }
    if failed == 0 { Ok(()) } else { Err(CommandError::LinesFailed { failed, total }) }
}

/// Renders requests whose `model` is an id of a loaded model, or a path.
struct RequestRunner {
    models: RequestModels,
    /// The capabilities for requests that contain none.
    capabilities: Option<Capabilities>,
    /// When a request that asks for no token ids gets them.
    token_ids: ReturnTokenIds,
    /// True if the places of tokens are needed, where they can be found.
    has_places: bool,
}

impl RequestRunner {
    fn render(&mut self, text: &str) -> Result<Rendered, Error> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text); // a byte order mark, which some editors write
        let Some(request) = typed::request(text)? else {
            return self.render_job(json::request(text, LocalTime::now())?);
        };
        let paths = RequestPaths::new(request.conversation.as_ref());
        let rendered = RenderJob::try_from(request).map_err(Error::from).and_then(|job| self.render_job(job));
        match rendered {
            Ok(rendered) => Ok(paths.rendered(rendered)),
            Err(error) => Err(Error::Contract(Box::new(paths.failure(Failure::from(&error))))),
        }
    }

    fn render_job(&mut self, mut job: RenderJob) -> Result<Rendered, Error> {
        if job.token_ids == ReturnTokenIds::No {
            job.token_ids = self.token_ids;
        }
        job.options.capabilities = job.options.capabilities.or(self.capabilities);
        let models = self.models.find(&mut job.model)?;
        if self.has_places {
            // Fails if the model has no tokenizer, or the prompt is too long.
            let located = RenderJob { return_offsets: true, ..job.clone() };
            if let Ok(rendered) = render(&models, located, &Limits::default()) {
                return Ok(rendered);
            }
        }
        render(&models, job, &Limits::default())
    }
}
