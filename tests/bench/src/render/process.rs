//! The service in a process of its own, and clients that keep it busy.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Result;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tokio::process::Command;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::child;
use crate::machine::resident;
use crate::stats::{Times, show};

/// A running service. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Service(child::Service);

impl Service {
    pub(crate) async fn start(models: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--models"]).arg(models);
        command.stderr(Stdio::null());
        Ok(Self(child::Service::start(command).await?))
    }

    pub(crate) async fn client(&self) -> Result<RenderServiceClient<Channel>> {
        let client = RenderServiceClient::new(self.0.connect().await?);
        Ok(client.max_decoding_message_size(256 << 20).max_encoding_message_size(256 << 20))
    }

    /// Resident memory, in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        resident(self.0.process()?)
    }
}

/// Keeps `clients` connections busy, each with one request after another, for as long as told. `request` makes the request number n
/// of a client.
pub(crate) async fn load(
    service: &Service,
    clients: usize,
    how_long: Duration,
    request: impl Fn(usize, usize) -> RenderRequest + Clone + Send + 'static,
) -> Result<(f64, Times)> {
    let mut set = JoinSet::new();
    let start = Instant::now();
    for number in 0..clients {
        let (mut client, request) = (service.client().await?, request.clone());
        set.spawn(async move {
            let mut times = Times::default();
            let mut n = 0;
            while start.elapsed() < how_long {
                let request = request(number, n);
                let sent = Instant::now();
                client.render(request).await?;
                times.add(sent.elapsed());
                n += 1;
            }
            Ok::<_, tonic::Status>(times)
        });
    }
    let mut all = Times::default();
    while let Some(times) = set.join_next().await {
        all.extend(times??);
    }
    let rate = all.len() as f64 / start.elapsed().as_secs_f64();
    Ok((rate, all))
}

/// "  8 clients: 1234.5 requests/s, p50 1.23 ms, p99 4.56 ms"
pub(crate) fn report(clients: usize, (rate, mut times): (f64, Times)) {
    let (p50, p99) = (show(times.median()), show(times.percentile(0.99)));
    println!("  {clients:>2} clients: {rate:.1} requests/s, p50 {p50}, p99 {p99}");
}
