//! `cargo xtask chat`: sets up, builds, and becomes the chat client.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cargo::{self, Profile, Programs};
use crate::chat_args::Args;
use crate::layout::Layout;
use crate::setup::{self, Requirement, model};

/// The client. It starts the services, and stops them when it ends.
const CLIENT: &str = "tandem-chat";

pub(crate) fn run(layout: &Layout, args: &Args) -> Result<ExitCode> {
    // The client then starts no services, and so needs no programs and no model.
    let needs_no_services = args.connection.connect.is_some() || args.stop || args.status;
    let mut client = if needs_no_services {
        Command::new(cargo::build(layout, Profile::Dev, &[CLIENT])?.executable(CLIENT)?)
    } else {
        with_services(layout, args)?
    };
    client.arg("--state").arg(layout.tandem()).args(env::args_os().skip(2));
    // The client takes this process's place, so that signals from the terminal reach it alone.
    Err(client.exec()).with_context(|| format!("cannot run {}", client.get_program().display()))
}

/// Returns the client that starts both services, once everything that they need is there.
fn with_services(layout: &Layout, args: &Args) -> Result<Command> {
    if let Some(model) = args.model.as_ref().filter(|model| !model.exists()) {
        bail!("there is no model at {}", model.display());
    }
    if let Some(image) = args.images.iter().find(|image| !image.is_file()) {
        bail!("image is not a file: {}; give the path of an image file", image.display());
    }
    let name = if args.engine.engine_url.is_some() { "gen-bridge" } else { "gen-svc" };
    let built = match (name, &args.model) {
        ("gen-svc", Some(_)) => with_libtorch(layout)?,
        _ => text_only(layout, name)?,
    };
    let mut client = Command::new(built.executable(CLIENT)?);
    client.arg(format!("--{name}")).arg(built.executable(name)?);
    client.arg("--render-svc").arg(built.executable("render-svc")?);
    client.arg("--default-model").arg(model::path(layout));
    Ok(client)
}

/// Builds the programs for the default model or an engine, which need no libtorch. They compile while the model is
/// fetched. `generation` is the program that generates.
fn text_only(layout: &Layout, generation: &str) -> Result<Programs> {
    let build = || cargo::text_only_command(layout, Profile::Dev, &[CLIENT, "render-svc", generation]);
    setup::ensure_beside(layout, Requirement::Model, build())?;
    cargo::run(&mut build())?;
    Programs::of(Profile::Dev)
}

/// Builds the programs for any model, for which gen-svc needs libtorch to compile. The other programs compile while it is
/// fetched.
fn with_libtorch(layout: &Layout) -> Result<Programs> {
    let build = cargo::build_command(layout, Profile::Dev, &[CLIENT, "render-svc"]);
    setup::ensure_beside(layout, Requirement::AnyLibtorch, build)?;
    cargo::build(layout, Profile::Dev, &[CLIENT, "render-svc", "gen-svc"])
}
