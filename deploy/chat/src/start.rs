//! The services of a chat: a running one, those of an earlier `--keep`, or new ones.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::args::{Args, Connection, Engine};
use crate::connect::RenderService;
use crate::end::End;
use crate::kept::{Kept, Record};
use crate::services::{Programs, Services};
use crate::session::Session;

/// Connects to the render-svc that the user named, or to one that this starts or an earlier chat
/// kept. Returns the services that end with this chat, or whose end it reports.
pub(crate) async fn start(
    args: Args,
    programs: Option<Programs>,
    state: Option<PathBuf>,
) -> Result<(Option<Services>, Session)> {
    let Args { model, keep, engine, connection, generation, .. } = args;
    if connection.connect.is_some() {
        let service = RenderService::connect(&connection, model.as_deref()).await?;
        return Ok((None, Session::new(service, generation)));
    }
    let missing = "--connect HOST:PORT is missing; or use `cargo xtask chat`";
    let (programs, state) = programs.zip(state).context(missing)?;
    let model = model.unwrap_or_else(|| programs.default_model.clone());
    if keep {
        let (services, kept) = keep_services(&programs, &state, model, &engine).await?;
        let session = Session::new(connect(kept.address()).await?, generation);
        announce(&kept, &session);
        return Ok((services, session));
    }
    let services = Services::start(&programs, (&model, &engine), &state.join("logs"), "").await?;
    let session = Session::new(connect(services.address()).await?, generation);
    Ok((Some(services), session))
}

async fn connect(address: &str) -> Result<RenderService> {
    RenderService::connect(&Connection { connect: Some(address.to_owned()), ..Connection::default() }, None).await
}

/// Returns services with this model and engine that run on: those of an earlier `--keep`, or new ones.
async fn keep_services(
    programs: &Programs,
    state: &Path,
    model: PathBuf,
    engine: &Engine,
) -> Result<(Option<Services>, Kept)> {
    // A link is not followed: its own folder has the sampling defaults.
    let model = std::path::absolute(&model).unwrap_or(model);
    let named = engine.engine_url.as_ref().map(|url| format!("{} {url}", engine.engine));
    let mut record = Record::open(state).await?;
    match record.read()? {
        Some(kept) if kept.is_running() && kept.model == model && kept.engine == named => return Ok((None, kept)),
        Some(kept) if kept.is_running() => bail!(
            "an earlier --keep left services with another model or engine:\n{}Stop them first: cargo xtask chat --stop",
            kept.lines()
        ),
        Some(kept) => drop(kept.stop()?),
        None => {}
    }
    let mut services = Services::start(programs, (&model, engine), &state.join("logs"), "kept-").await?;
    let kept = services.kept(model, named)?;
    record.write(Some(&kept))?;
    services.detach();
    Ok((Some(services), kept))
}

fn announce(kept: &Kept, session: &Session) {
    let (lines, address, sampling) = (kept.lines(), kept.address(), session.sampling_json());
    eprintln!(
        r#"Both services keep running:
{lines}Ask:   cargo xtask chat --connect {address} "Why is the sky blue?"
Call:  grpcurl -plaintext -d '{{"conversation": {{"messages": [{{"role": "user", "text": "Why is the sky blue?"}}]}}, {sampling}"stop": {{"max_new_tokens": 64}}}}' {address} tandem.task.v1.TaskService/RunTask
Stop:  cargo xtask chat --stop
"#
    );
}

/// Stops the services that `--keep` left.
pub(crate) async fn stop_kept(state: &Path) -> Result<End> {
    let mut record = Record::open(state).await?;
    let stopped = record.read()?.map(|kept| kept.stop()).transpose()?.unwrap_or_default();
    record.write(None)?;
    let mut out = io::stdout().lock();
    match stopped.as_slice() {
        [] => writeln!(out, "No services of --keep run.")?,
        lines => writeln!(out, "Stopped:\n{}", lines.join("\n"))?,
    }
    Ok(End::Done)
}

/// Shows the services that `--keep` left.
pub(crate) async fn show_kept(state: &Path) -> Result<End> {
    let kept = Record::open(state).await?.read()?;
    let mut out = io::stdout().lock();
    let Some(kept) = kept else {
        writeln!(out, "No services of --keep run.")?;
        return Ok(End::Nothing);
    };
    write!(out, "{}", kept.lines())?;
    writeln!(out, "Ask:   cargo xtask chat --connect {} \"Why is the sky blue?\"", kept.address())?;
    writeln!(out, "Stop:  cargo xtask chat --stop")?;
    Ok(End::Done)
}
