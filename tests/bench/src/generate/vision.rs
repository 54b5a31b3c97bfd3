//! Images: the time to prepare one, of the tower, and to the first token, compared with transformers.
//! And the gaps between tokens of running streams beside images.
//!
//! Tandem's preparation is the time from sending a request to its `accepted` event, less the time in
//! the queue between the two: it includes the request's way through gRPC. The peer's is the time of its processor,
//! which reads the file. Writing the request is the client's work and is not included. The tower's
//! time is the difference of two prefills: a new image, and the same one again, whose features are
//! kept.

mod gaps;
mod requests;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::process::Service;
use tempfile::TempDir;

use super::args::Generate;
use super::python::Python;
use crate::stats::{Times, ratio, show};
use crate::{child, machine};
use requests::{Client, request};

const FAMILIES: [&str; 2] = ["smolvlm", "qwen2_5_vl"];
const SCRIPT: &str = include_str!("vision.py");
/// The images beside running streams.
const GAP_IMAGES: u64 = 4;

#[derive(Deserialize)]
struct Ready {
    version: String,
}

/// The parts of one request with an image, in seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Parts {
    prepare: f64,
    tower: f64,
    /// From sending the request to the first token, all parts included.
    first: f64,
    token: u32,
    tokens: u32,
}

/// The name of a part, and its value.
type Part = (&'static str, fn(&Parts) -> f64);

const PARTS: [Part; 3] =
    [("prepare", |parts| parts.prepare), ("tower", |parts| parts.tower), ("first token", |parts| parts.first)];

pub(super) async fn measure(args: &Generate) -> Result<()> {
    println!("\nvision, a JPEG and a question: Tandem through gRPC, transformers in its own process; both in f32");
    for family in FAMILIES {
        measure_family(args, family).await.with_context(|| family.to_owned())?;
    }
    Ok(())
}

async fn measure_family(args: &Generate, family: &str) -> Result<()> {
    let folder = TempDir::new()?;
    let arguments: [OsString; 3] =
        [folder.path().into(), machine::cores().to_string().into(), family.to_owned().into()];
    let mut python = Python::start(&args.python, SCRIPT, arguments)?;
    let Ready { version } = python.answer().await?;
    println!("\n{version}");
    let tandem = Tandem::start(args, folder.path()).await?;
    let mut rows: Vec<[Parts; 2]> = Vec::new();
    // The first round allocates memory on both sides.
    for round in 0..=args.rounds as u64 {
        let path = folder.path().join(format!("{round}.jpg"));
        let theirs: Parts = python.ask(&json!({"image": path})).await?;
        let ours = tandem.image(&path).await?;
        ensure!(ours.tokens == theirs.tokens, "the prompts have {} and {} tokens", ours.tokens, theirs.tokens);
        if round > 0 {
            rows.push([ours, theirs]);
        }
    }
    report(&rows);
    let images = (0..GAP_IMAGES).map(|index| folder.path().join(format!("{}.jpg", index % (args.rounds as u64 + 1))));
    let images = images.zip(0_u8..).map(|(path, index)| {
        // Bytes after the end of a JPEG file have no effect, and make it another one.
        let bytes = [std::fs::read(path)?, vec![0; 1 + usize::from(index)]].concat();
        Ok(request(&bytes, "gaps"))
    });
    gaps::measure(&tandem.client, &images.collect::<Result<Vec<_>>>()?).await
}

fn report(rows: &[[Parts; 2]]) {
    for (name, value) in PARTS {
        let mut times = [Times::default(), Times::default()];
        for parts in rows {
            let pairs = times.iter_mut().zip(parts);
            pairs.for_each(|(times, parts)| times.add(Duration::from_secs_f64(value(parts).max(0.0))));
        }
        let [ours, theirs] = times.map(|mut times| times.median());
        let gain = ratio(theirs, ours);
        println!("  {name:12} Tandem {:>10}   transformers {:>10}   {gain:.2} × as fast", show(ours), show(theirs));
    }
    let same = rows.iter().filter(|[ours, theirs]| ours.token == theirs.token).count();
    let tokens = rows.first().map_or(0, |[ours, _]| ours.tokens);
    println!("  prompt of {tokens} tokens; the same first token in {same} of {} rounds", rows.len());
}

struct Tandem {
    _service: Service,
    client: Client,
}

impl Tandem {
    async fn start(args: &Generate, model: &Path) -> Result<Self> {
        let mut command = Command::new(&args.gen_svc);
        command.args(["serve", "--log", "error", "--listen", "127.0.0.1:0", "--dtype", "f32", "--model"]).arg(model);
        command.args(["--kv-memory-mib", &args.kv_memory_mib.to_string()]);
        let service = child::start("gen-svc", command).await?;
        let client = GenerateServiceClient::new(child::connect(&service).await?);
        Ok(Self { _service: service, client })
    }

    async fn image(&self, path: &Path) -> Result<Parts> {
        let bytes = std::fs::read(path)?;
        let new = self.ask(&bytes, "new").await?;
        let again = self.ask(&bytes, "again").await?;
        Ok(Parts { tower: new.tower - again.tower, ..new })
    }

    /// Returns the parts of a request, with the whole prefill as the tower's time. No prefix of
    /// another salt is reused.
    async fn ask(&self, image: &[u8], salt: &str) -> Result<Parts> {
        let request = request(image, salt);
        let start = Instant::now();
        let mut events = self.client.clone().generate(request).await?.into_inner();
        let (mut prepare, mut first, mut tokens) = (None, None, Vec::new());
        while let Some(event) = events.message().await? {
            match event.event {
                Some(Event::Accepted(accepted)) => {
                    prepare = Some(start.elapsed().as_secs_f64() - accepted.queue_ms / 1e3);
                    continue;
                }
                Some(Event::Delta(delta)) => tokens.extend(delta.token_ids),
                Some(Event::Summary(summary)) => {
                    return Ok(Parts {
                        prepare: prepare.context("no accepted event")?,
                        tower: summary.timings.unwrap_or_default().prefill_ms / 1e3,
                        first: first.context("no token")?,
                        token: *tokens.first().context("no token")?,
                        tokens: summary.usage.unwrap_or_default().prompt_tokens,
                    });
                }
                _ => continue,
            }
            first.get_or_insert(start.elapsed().as_secs_f64());
        }
        anyhow::bail!("the stream ended early")
    }
}
