//! The service as a child process, and clients that load it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::child;
use crate::machine::resident;
use crate::stats::{Times, show};

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Service(tandem_common::process::Service);

impl Service {
    pub(crate) async fn start(models: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--models"]).arg(models);
        command.stderr(Stdio::null());
        Ok(Self(child::start("render-svc", command).await?))
    }

    pub(crate) async fn client(&self) -> Result<RenderServiceClient<Channel>> {
        let client = RenderServiceClient::new(child::connect(&self.0).await?);
        Ok(client.max_decoding_message_size(256 << 20).max_encoding_message_size(256 << 20))
    }

    /// Returns the resident memory, in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        resident(self.0.id())
    }
}

/// Sends requests over `clients` connections for `how_long`, on each one after another. `request`
/// returns request n of a client.
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

/// Returns text such as "  8 clients: 1234.5 requests/s, p50 1.23 ms, p99 4.56 ms"
pub(crate) fn report(clients: usize, (rate, mut times): (f64, Times)) {
    let (p50, p99) = (show(times.median()), show(times.percentile(0.99)));
    println!("  {clients:>2} clients: {rate:.1} requests/s, p50 {p50}, p99 {p99}");
}
