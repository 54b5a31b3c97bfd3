//! Continues a text without a server, on the CPU.
//!
//! `cargo run -p gen-svc --example generate_in_process -- MODEL "Once upon a time"`

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program

use std::env;
use std::io::{Write as _, stdout};

use anyhow::{Context as _, bail};
use gen_svc::load::{self, WithoutLibrary};
use tandem_core::answer::{Delta, Event};
use tandem_core::engine::Config;
use tandem_core::request::{GenerateRequest, Input, SamplingOptions, StopOptions};

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let model = arguments.next().context("no folder or GGUF file")?;
    let prompt = arguments.next().context("no prompt")?;

    // The engine is one thread. Requests of any thread run in its steps together.
    let config = Config::new(model.into());
    let (engine, _) = load::start(config, &WithoutLibrary)?;

    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(40), ..StopOptions::default() },
        ..GenerateRequest::new(Input::Text(prompt))
    };
    let mut events = engine.submit(request.prepare(engine.model())?, None)?;
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Delta(delta) => print(&delta)?,
            Event::Finished(finished) => print(&finished.last)?,
            Event::Summary(summary) => {
                println!("\n{} tokens in {:?}", summary.completion_tokens, summary.timings.decode);
                return Ok(());
            }
            Event::Refused(error) => return Err(error.into()),
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
        }
    }
    bail!("the engine ended")
}

fn print(delta: &Delta) -> std::io::Result<()> {
    print!("{}", delta.text());
    stdout().flush()
}
