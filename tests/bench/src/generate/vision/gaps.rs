//! The gaps between the tokens of running text streams, beside prefills of 512 tokens and beside
//! images.

use std::time::Instant;

use anyhow::{Result, ensure};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{GenerateRequest, TokenIds};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::requests::{Client, limited};
use crate::stats::{Times, ratio, show};

const STREAMS: u32 = 4;
const PREFILLS: u32 = 16;
/// The tokens of a prefill, which is one step.
const PREFILL: u32 = 512;
/// More than a stream generates while it is measured.
const MANY: u32 = 7000;

/// Prints the gaps beside prefills, and beside requests with `images`.
pub(super) async fn measure(client: &Client, images: &[GenerateRequest]) -> Result<()> {
    let running = Running::start(client).await?;
    let prefills: Vec<_> = (0..PREFILLS).map(|index| text(100 + index, PREFILL, 1)).collect();
    // The first of each allocates memory.
    let (prefill, prefills) = (&prefills[..1], &prefills[1..]);
    running.send(prefill).await?;
    running.send(&images[..1]).await?;
    let beside_prefills = running.send(prefills).await?;
    let beside_images = running.send(&images[1..]).await?;
    let gaps = running.gaps().await?;
    let [mut prefills, mut images] = [beside_prefills, beside_images].map(|span| gaps.during(span));
    let [long, short] = [images.percentile(0.99), prefills.percentile(0.99)];
    println!("  gap of {STREAMS} text streams beside prefills of {PREFILL} tokens: {}", prefills.summary());
    println!("  gap of {STREAMS} text streams beside images:                 {}", images.summary());
    println!("  p99 beside images {}, {:.2} × that beside prefills ({})", show(long), ratio(long, short), show(short));
    Ok(())
}

/// Returns a request of `length` ids that begin with `first`, for up to `tokens` more.
fn text(first: u32, length: u32, tokens: u32) -> GenerateRequest {
    let ids = [first].into_iter().chain((1..length).map(|at| (at * 7 + first) % 200)).collect();
    limited(Input::TokenIds(TokenIds { ids }), tokens, &first.to_string())
}

/// The start and the end of a measurement.
type Interval = (Instant, Instant);

/// Running text streams.
struct Running<'a> {
    client: &'a Client,
    streams: JoinSet<Result<()>>,
    arrivals: UnboundedReceiver<(u32, Instant)>,
}

/// The arrivals of the streams' tokens.
struct Gaps(Vec<Vec<Instant>>);

impl<'a> Running<'a> {
    /// Starts the streams, and waits for a token of each.
    async fn start(client: &'a Client) -> Result<Self> {
        let (sender, mut arrivals) = unbounded_channel();
        let mut streams = JoinSet::new();
        for index in 0..STREAMS {
            streams.spawn(stream(client.clone(), index, sender.clone()));
        }
        let mut started = std::collections::BTreeSet::new();
        while started.len() < STREAMS as usize {
            let Some((index, _)) = arrivals.recv().await else { break };
            started.insert(index);
        }
        ensure!(started.len() == STREAMS as usize, "a stream did not start");
        Ok(Self { client, streams, arrivals })
    }

    /// Sends requests, one after another, and reads their answers.
    async fn send(&self, requests: &[GenerateRequest]) -> Result<Interval> {
        let start = Instant::now();
        for request in requests {
            let mut events = self.client.clone().generate(request.clone()).await?.into_inner();
            while events.message().await?.is_some() {}
        }
        Ok((start, Instant::now()))
    }

    /// Stops the streams.
    async fn gaps(mut self) -> Result<Gaps> {
        ensure!(self.streams.try_join_next().is_none(), "a stream ended before the end of the measurement");
        self.streams.shutdown().await;
        let mut arrivals = vec![Vec::new(); STREAMS as usize];
        while let Some((index, at)) = self.arrivals.recv().await {
            arrivals[index as usize].push(at);
        }
        Ok(Gaps(arrivals))
    }
}

impl Gaps {
    /// Returns the gaps that end within an interval.
    fn during(&self, (start, end): Interval) -> Times {
        let mut times = Times::default();
        for stream in &self.0 {
            let gaps = stream.windows(2).filter(|pair| pair[1] >= start && pair[1] <= end);
            gaps.for_each(|pair| times.add(pair[1] - pair[0]));
        }
        times
    }
}

/// Reports the arrival of each token of a long text.
async fn stream(mut client: Client, index: u32, arrivals: UnboundedSender<(u32, Instant)>) -> Result<()> {
    let mut events = client.generate(text(index, 32, MANY)).await?.into_inner();
    while let Some(event) = events.message().await? {
        if matches!(event.event, Some(Event::Delta(_))) && arrivals.send((index, Instant::now())).is_err() {
            break;
        }
    }
    Ok(())
}
