//! `gen-svc generate`: runs requests from a file or standard input, without a server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, BufRead, IsTerminal as _, Write};
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};

use serde_json::{Value, json};
use tandem_common::input;
use tandem_core::answer::{Event, FinishReason, Summary};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::RequestError;
use tandem_core::library::Library;
use tandem_core::request::{GenerateRequest, Returns};
use tokio::sync::mpsc::Receiver;

use crate::args::{Generate, TimeSteps};
use crate::command::CommandError;
use crate::load::{self, StepTimes, measure_steps};
use json::{Defaults, Line};

mod fields;
mod json;
mod output_spec;

/// Loads the model and runs the requests of the input.
///
/// # Errors
/// The model cannot be loaded, the input cannot be read, the output cannot be written, or a request
/// fails.
pub fn run(args: Generate, library: &'static dyn Library) -> Result<ExitCode, CommandError> {
    let defaults = Defaults::new(args.set).map_err(|error| failed(&json::failure(&error)))?;
    let config = Config { overlap_steps: args.overlap_steps, ..Config::from(args.engine) };
    let in_flight = config.max_running.clamp(1, config.max_queue.max(1));
    let content = if args.jsonl { "requests, one per line," } else { "a request" };
    let input =
        input::open(&args.input, content).map_err(|source| CommandError::Input { path: args.input.clone(), source })?;
    let (engine, _) = load::start(config, library)?;
    let runner = Runner { engine: &engine, defaults: &defaults };
    if args.jsonl {
        run_lines(runner, in_flight, input, &mut io::stdout().lock())?
    } else {
        run_one(runner, input)?
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the time of decode steps that are launched without waiting for their tokens, a line for each
/// number of sequences.
///
/// # Errors
/// The model cannot be loaded, a step fails, or the output cannot be written.
pub fn time_steps(args: TimeSteps, library: &dyn Library) -> Result<ExitCode, CommandError> {
    let TimeSteps { sequences, positions, steps, engine, .. } = args;
    let times = StepTimes { sequences, positions, steps };
    let measured = measure_steps(Config::from(engine), library, &times)?;
    for (sequences, step) in times.sequences.iter().zip(measured) {
        let line = json!({ "sequences": sequences, "milliseconds": 1000.0 * step.as_secs_f64() });
        writeln!(io::stdout(), "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the error of a failed answer.
fn failed(answer: &Value) -> CommandError {
    CommandError::Request { message: json::failure_text(answer) }
}

/// Runs one request. Writes its text during generation, then the usage to standard error.
fn run_one(runner: Runner<'_>, mut input: impl BufRead) -> Result<(), CommandError> {
    let mut request = Vec::new();
    input.read_to_end(&mut request)?;
    let mut stdout = io::stdout().lock();
    match runner.answer(&request, |text| stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())) {
        Ok(output) => {
            if stdout.is_terminal() {
                writeln!(stdout)?;
            }
            writeln!(io::stderr(), "{}", output.usage_line())?;
            Ok(())
        }
        Err(Interrupted::Failed(answer)) => Err(failed(&answer)),
        Err(Interrupted::Output(error)) => Err(error.into()),
    }
}

/// Runs one request per line, `in_flight` at once. Writes one line for each, in order. Fails at the
/// end if a request failed.
fn run_lines(
    runner: Runner<'_>,
    in_flight: usize,
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let (mut failed, mut total) = (0, 0);
    thread::scope(|scope| {
        let mut running = VecDeque::new();
        for line in input.split(b'\n') {
            let line = line?;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if running.len() == in_flight {
                failed += usize::from(!write_next(&mut running, output)?);
            }
            total += 1;
            running.push_back(scope.spawn(move || runner.answer(&line, |_| Ok::<_, Infallible>(()))));
        }
        while !running.is_empty() {
            failed += usize::from(!write_next(&mut running, output)?);
        }
        io::Result::Ok(())
    })?;
    if failed == 0 { Ok(()) } else { Err(CommandError::LinesFailed { failed, total }) }
}

type Answer<'scope> = ScopedJoinHandle<'scope, Result<Output, Interrupted<Infallible>>>;

/// Writes the next answer. Returns true if the request succeeded.
fn write_next(running: &mut VecDeque<Answer<'_>>, output: &mut impl Write) -> io::Result<bool> {
    let Some(first) = running.pop_front() else { return Ok(true) };
    let (answer, is_good) = match first.join() {
        Ok(Ok(output)) => (output.to_json(), true),
        Ok(Err(Interrupted::Failed(answer))) => (answer, false),
        Err(_) => (json::failure(&RequestError::EngineFailed), false),
    };
    writeln!(output, "{answer}")?;
    output.flush()?;
    Ok(is_good)
}

/// Why a request has no complete output. `E` is the error of writing its text.
enum Interrupted<E> {
    /// The request failed, with this answer.
    Failed(Value),
    Output(E),
}

impl<E> From<RequestError> for Interrupted<E> {
    fn from(error: RequestError) -> Self {
        Self::Failed(json::failure(&error))
    }
}

/// The output of a request.
struct Output {
    token_ids: Vec<u32>,
    text: String,
    reason: FinishReason,
    grammar_not_reached: bool,
    summary: Summary,
}

/// The engine, and the values for requests without them.
#[derive(Clone, Copy)]
struct Runner<'a> {
    engine: &'a Engine,
    defaults: &'a Defaults,
}

impl Runner<'_> {
    /// Runs one request, and passes its text to `write` during generation.
    fn answer<E>(self, line: &[u8], write: impl FnMut(&str) -> Result<(), E>) -> Result<Output, Interrupted<E>> {
        let request = match self.defaults.read(line)? {
            Line::Request(request) => *request,
            Line::Failed(answer) => return Err(Interrupted::Failed(answer)),
        };
        let returns = Returns { token_ids: true, ..Returns::default() };
        let mut request = GenerateRequest { returns, ..request };
        request.fetch_images(self.engine.model())?;
        let prepared = request.prepare(self.engine.model())?;
        collect(self.engine.submit(prepared, None)?, write)
    }
}

fn collect<E>(
    mut events: Receiver<Event>,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<Output, Interrupted<E>> {
    let (mut token_ids, mut text, mut reason) = (Vec::new(), String::new(), FinishReason::Error);
    let mut grammar_not_reached = false;
    loop {
        let delta = match events.blocking_recv() {
            None => return Err(RequestError::EngineFailed.into()),
            Some(Event::Refused(error)) => return Err(error.into()),
            Some(Event::Accepted(_) | Event::PromptLogprobs(_)) => continue,
            Some(Event::Delta(delta)) => delta,
            Some(Event::Finished(end)) => {
                (reason, grammar_not_reached) = (end.reason, end.grammar_not_reached);
                end.last
            }
            Some(Event::Summary(_)) if reason == FinishReason::Error => return Err(RequestError::EngineFailed.into()),
            Some(Event::Summary(summary)) => {
                return Ok(Output { token_ids, text, reason, grammar_not_reached, summary });
            }
        };
        let more = delta.text();
        write(&more).map_err(Interrupted::Output)?;
        text += &more;
        token_ids.extend(delta.token_ids);
    }
}

impl Output {
    fn to_json(&self) -> Value {
        let Summary { prompt_tokens: prompt, completion_tokens: completion, image_tokens, .. } = self.summary;
        let mut usage = json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        });
        if image_tokens > 0 {
            usage["image_tokens"] = image_tokens.into();
        }
        let mut answer = json!({
            "token_ids": self.token_ids,
            "text": self.text,
            "finish_reason": self.reason.name(),
            "usage": usage,
        });
        if self.grammar_not_reached {
            answer["warnings"] = json!(["GRAMMAR_NOT_REACHED"]);
        }
        answer
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
