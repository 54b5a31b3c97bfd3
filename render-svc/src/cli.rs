//! The `render` command: JSON requests in, prompts out, without a server.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_model_files::artifacts::is_model;

use crate::adapters::Registry;
use crate::args::Render;
use crate::capabilities::Capabilities;
use crate::clock;
use crate::error::Error;
use crate::json;
use crate::models::{Library, Model, Models};
use crate::render::{Output, RenderJob, Rendered, render};

/// Runs the command. Without `--jsonl` the prompt itself is written, byte for byte, or a line of JSON for HF messages.
///
/// # Errors
/// The models or the input cannot be read, the output cannot be written, or (without `--jsonl`) the request fails.
pub fn run(args: &Render, out: impl Write) -> anyhow::Result<()> {
    match render_all(args, out) {
        // Whoever read the answers has had enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn render_all(args: &Render, out: impl Write) -> anyhow::Result<()> {
    let library = Library::open(args.sources.clone().into(), Registry::default())?;
    let mut renderer = Renderer { library, by_path: HashMap::new(), capabilities: args.capabilities };
    let mut out = BufWriter::new(out);
    let mut input = open(&args.input)?;
    if args.jsonl {
        lines(&mut renderer, input, &mut out)?;
    } else {
        let mut text = String::new();
        input.read_to_string(&mut text)?;
        one(&mut renderer, &text, &mut out)?;
    }
    Ok(out.flush()?)
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    use anyhow::Context as _;
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn one(renderer: &mut Renderer, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let rendered = renderer.render(text)?;
    for warning in &rendered.warnings {
        tracing::warn!(path = warning.path, "{}", warning.text);
    }
    match rendered.output {
        Output::Prompt { text, .. } => out.write_all(text.as_bytes())?,
        Output::HfMessages(messages) => writeln!(out, "{}", serde_json::Value::from(messages))?,
    }
    Ok(())
}

/// One request per line; an answer for each, in order. A line that is not UTF-8 gets an error too.
fn lines(renderer: &mut Renderer, input: impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    for line in input.split(b'\n') {
        let line = line?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let result = match str::from_utf8(&line) {
            Ok(text) => renderer.render(text),
            Err(e) => Err(crate::chat::Invalid::new("request", e.to_string()).into()),
        };
        if let Err(error @ (Error::ModelNotLoaded { .. } | Error::NoTokenizer { .. })) = &result {
            tracing::warn!(%error, "request failed"); // with the paths, which the answer leaves out
        }
        writeln!(out, "{}", json::answer(result))?;
    }
    Ok(())
}

/// Renders requests whose `model` is an id of a loaded model, or a path.
struct Renderer {
    library: Library,
    by_path: HashMap<PathBuf, Arc<Models>>,
    /// For requests that name none.
    capabilities: Option<Capabilities>,
}

impl Renderer {
    fn render(&mut self, text: &str) -> Result<Rendered, Error> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text); // a byte order mark, which some editors write
        let mut job = json::request(text, clock::now())?;
        job.options.capabilities = job.options.capabilities.or(self.capabilities);
        let models = self.models_for(&mut job)?;
        render(&models, self.library.registry(), job)
    }

    /// The table that holds the job's model. A path is loaded once, and is its own table.
    fn models_for(&mut self, job: &mut RenderJob) -> Result<Arc<Models>, Error> {
        let path = PathBuf::from(&job.model);
        let models = self.library.models();
        if models.entry(&job.model).is_ok() || !is_model(&path) {
            return Ok(models);
        }
        job.model.clear();
        if let Some(models) = self.by_path.get(&path) {
            return Ok(Arc::clone(models));
        }
        let not_loaded = |cause| Error::ModelNotLoaded { path: path.clone(), cause: Arc::new(cause) };
        let model = Model::load(&path).map_err(not_loaded)?;
        Ok(Arc::clone(self.by_path.entry(path).or_insert(Arc::new(model.into()))))
    }
}
