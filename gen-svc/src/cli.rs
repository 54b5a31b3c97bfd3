//! `gen-svc generate`: runs requests from a file or standard input, without a server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};

use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::args::Generate;
use crate::command::CommandError;
use crate::engine::{Config, Engine, Event, FinishReason, Summary};
use crate::error::Error;
use crate::request::{GenerateRequest, Returns};

mod json;

/// Loads the model and runs the requests of the input. Returns failure if a single request failed.
///
/// # Errors
/// The model cannot be loaded, the input cannot be read, or the output cannot be written.
pub fn run(args: Generate) -> Result<ExitCode, CommandError> {
    let config = Config::from(args.engine);
    let in_flight = config.max_running.clamp(1, config.max_queue.max(1));
    let input = open(&args.input)?;
    let (engine, _) = Engine::start(config)?;
    if args.jsonl {
        run_lines(&engine, in_flight, input, &mut io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    run_one(&engine, input)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CommandError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|source| CommandError::Input { path: path.to_owned(), source })?;
    Ok(Box::new(BufReader::new(file)))
}

/// Runs one request. Writes its text during generation, then the usage to standard error.
fn run_one(engine: &Engine, mut input: impl BufRead) -> Result<ExitCode, CommandError> {
    let mut request = Vec::new();
    input.read_to_end(&mut request)?;
    let mut stdout = io::stdout().lock();
    match answer(engine, &request, |text| stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())) {
        Ok(output) => {
            if stdout.is_terminal() {
                writeln!(stdout)?;
            }
            writeln!(io::stderr(), "{}", output.usage_line())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(Interrupted::Failed(error)) => {
            writeln!(io::stderr(), "{}", json::failure(&error))?;
            Ok(ExitCode::FAILURE)
        }
        Err(Interrupted::Output(error)) => Err(error.into()),
    }
}

/// Runs one request per line, `in_flight` at once. Writes one line for each, in order.
fn run_lines(engine: &Engine, in_flight: usize, input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
    thread::scope(|scope| {
        let mut running = VecDeque::new();
        for line in input.split(b'\n') {
            let line = line?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if running.len() == in_flight {
                write_next(&mut running, output)?;
            }
            running.push_back(scope.spawn(move || answer_line(engine, &line)));
        }
        while !running.is_empty() {
            write_next(&mut running, output)?;
        }
        Ok(())
    })
}

fn write_next(running: &mut VecDeque<ScopedJoinHandle<'_, Value>>, output: &mut impl Write) -> io::Result<()> {
    let Some(first) = running.pop_front() else { return Ok(()) };
    let answer = first.join().unwrap_or_else(|_| json::failure(&Error::EngineFailed));
    writeln!(output, "{answer}")?;
    output.flush()
}

fn answer_line(engine: &Engine, line: &[u8]) -> Value {
    match answer(engine, line, |_| Ok::<_, Infallible>(())) {
        Ok(output) => output.to_json(),
        Err(Interrupted::Failed(error)) => json::failure(&error),
    }
}

/// Why a request has no complete output. `E` is the error of writing its text.
enum Interrupted<E> {
    Failed(Error),
    Output(E),
}

impl<E> From<Error> for Interrupted<E> {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The output of a request.
struct Output {
    token_ids: Vec<u32>,
    text: String,
    reason: FinishReason,
    summary: Summary,
}

/// Runs one request, and passes its text to `write` during generation.
fn answer<E>(
    engine: &Engine,
    request: &[u8],
    write: impl FnMut(&str) -> Result<(), E>,
) -> Result<Output, Interrupted<E>> {
    let returns = Returns { token_ids: true, ..Returns::default() };
    let request = GenerateRequest { returns, ..json::request(request)? };
    let prepared = request.prepare(engine.model())?;
    collect(engine.submit(prepared, None)?, write)
}

fn collect<E>(
    mut events: Receiver<Event>,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<Output, Interrupted<E>> {
    let (mut token_ids, mut text, mut reason) = (Vec::new(), String::new(), FinishReason::Error);
    loop {
        let delta = match events.blocking_recv() {
            None => return Err(Error::EngineFailed.into()),
            Some(Event::Refused(error)) => return Err(error.into()),
            Some(Event::Accepted(_) | Event::PromptLogprobs(_)) => continue,
            Some(Event::Delta(delta)) => delta,
            Some(Event::Finished(end)) => {
                reason = end.reason;
                end.last
            }
            Some(Event::Summary(_)) if reason == FinishReason::Error => return Err(Error::EngineFailed.into()),
            Some(Event::Summary(summary)) => return Ok(Output { token_ids, text, reason, summary }),
        };
        let more = delta.text();
        write(&more).map_err(Interrupted::Output)?;
        text += &more;
        token_ids.extend(delta.token_ids);
    }
}

impl Output {
    fn to_json(&self) -> Value {
        let Summary { prompt_tokens: prompt, completion_tokens: completion, .. } = self.summary;
        json!({
            "token_ids": self.token_ids,
            "text": self.text,
            "finish_reason": self.reason.name(),
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        })
    }

    fn usage_line(&self) -> String {
        let Summary { prompt_tokens, completion_tokens, timings, seed, .. } = &self.summary;
        let (prefill, decode) = (timings.prefill.as_secs_f64(), timings.decode.as_secs_f64());
        let speed = completion_tokens.saturating_sub(1) as f64 / decode.max(1e-9);
        format!(
            "{prompt_tokens} prompt + {completion_tokens} generated = {} tokens ({}); prefill {prefill:.2} s, decode \
             {speed:.1} tokens/s; seed {seed}",
            prompt_tokens + completion_tokens,
            self.reason.name(),
        )
    }
}
