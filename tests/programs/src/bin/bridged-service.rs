//! `bridged-service serve --listen ADDRESS --model FOLDER …`: gen-bridge in front of llama.cpp with the same model.
//!
//! The folder has a Llama, which llama.cpp's server gets as a GGUF file. Clients that start gen-svc start this program
//! by a link instead. The bridge takes its place in the process, and the server ends with it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use tandem_tests::gguf_pair;
use tandem_tests::llama::Llama;
use tempfile::TempDir;

/// The arguments that the engine has in place of the bridge, each with a value.
const OF_THE_ENGINE: [&str; 2] = ["--threads", "--dtype"];
/// The positions of a context.
const CONTEXT: usize = 256;
const SLOTS: usize = 4;

fn main() -> Result<()> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let at = arguments.iter().position(|argument| argument == "--model").context("no --model")?;
    let model = arguments.get(at + 1).context("--model has no folder")?;
    let folder = TempDir::new().context("no temporary folder")?;
    let file = folder.path().join("model.gguf");
    std::fs::write(&file, gguf_pair::llama(Path::new(model)).bytes()).context("cannot write the model")?;
    let llama = Llama::start_at(&file, 0, SLOTS, "", CONTEXT);
    let services = env::var_os("TANDEM_SERVICES").context("TANDEM_SERVICES names no folder")?;
    let mut command = Command::new(Path::new(&services).join("gen-bridge"));
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        if OF_THE_ENGINE.iter().any(|of_the_engine| argument == *of_the_engine) {
            rest.next();
        } else {
            command.arg(argument);
        }
    }
    command.args(["--engine", "llama-cpp", "--engine-url", &format!("http://{}", llama.address())]);
    // The server has read the file, and runs until this process ends.
    drop(folder);
    std::mem::forget(llama);
    Err(command.exec()).context("cannot run gen-bridge")
}
