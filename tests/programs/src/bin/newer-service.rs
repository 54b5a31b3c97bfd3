//! `newer-service serve --listen ADDRESS …`: a service of a later version.
//!
//! Runs the service that its own name (`gen-svc` or `render-svc`) states, from the folder TANDEM_SERVICES, with
//! the same arguments but a free address, behind the proxy. Clients that start the services start this program
//! by a link instead.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tandem_common::process::Service;
use tandem_tests::newer::proxy;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args_os();
    let name = PathBuf::from(arguments.next().context("no name")?);
    let name = name.file_name().context("no name")?.to_string_lossy().into_owned();
    let (address, rest) = listen_address(arguments.collect())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(&address).await.with_context(|| format!("cannot listen on {address}"))?;
    let folder = env::var_os("TANDEM_SERVICES").context("TANDEM_SERVICES names no folder")?;
    let mut command = Command::new(Path::new(&folder).join(&name));
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(rest);
    let mut service = tokio::task::spawn_blocking(move || Service::start(&name, &mut command)).await??;
    writeln!(std::io::stdout(), "{} listening on {}", service.name(), listener.local_addr()?)?;
    tokio::select! {
        () = proxy::serve(listener, service.address().to_owned()) => {}
        _ = terminated.recv() => {}
    }
    service.kill()?;
    Ok(())
}

/// Returns the address of `serve --listen ADDRESS`, and the arguments after it.
fn listen_address(arguments: Vec<OsString>) -> Result<(String, Vec<OsString>)> {
    let [serve, listen, address, rest @ ..] = arguments.as_slice() else { anyhow::bail!("no address") };
    ensure!(serve == "serve" && listen == "--listen", "expected: serve --listen ADDRESS");
    Ok((address.to_string_lossy().into_owned(), rest.to_vec()))
}
