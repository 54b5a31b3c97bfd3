//! Many clients at once that finish, leave, time out and disconnect at random. Each client gets the
//! same tokens as alone, and no resource leaks.
//!
//! A short run is part of the suite. `cargo xtask test --stress` runs longer with more clients and
//! prints the result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_core::engine::{Config, DtypeChoice, Engine};
use tandem_tests::Generation;
use tandem_tests::{Random, default_model};
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request};

type Client = GenerateServiceClient<Channel>;

/// The size of a stress run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    clients: u64,
    how_long: Duration,
    /// The number of distinct requests.
    kinds: u64,
    /// The maximum number of output tokens.
    tokens: u32,
    threads: usize,
}

/// The output of each request when it runs alone, before the stress run.
type ReferenceOutputs = Arc<Vec<Vec<u32>>>;

/// Returns the request `kind`: a prompt of 5 to 600 tokens. Some prompts share a prefix. Greedy and
/// seeded sampling alternate.
fn request(kind: u64, tokens: u32) -> pb::GenerateRequest {
    let mut random = Random(kind);
    let length = 5 + random.below(if kind.is_multiple_of(4) { 600 } else { 60 });
    let common = (0..length / 2).map(|i| 1_000 + (i as u32 * 37) % 20_000);
    let ids: Vec<u32> = common.chain((0..length.div_ceil(2)).map(|_| 1_000 + random.below(20_000) as u32)).collect();
    let temperature = if kind.is_multiple_of(2) { 0.0 } else { 0.9 };
    pb::GenerateRequest {
        input: Some(Input::TokenIds(pb::TokenIds { ids })),
        sampling: Some(pb::Sampling { temperature: Some(temperature), seed: Some(kind), ..Default::default() }),
        stop: Some(pb::Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Default::default() }),
        return_options: Some(pb::ReturnOptions { token_ids: true, ..Default::default() }),
        ..Default::default()
    }
}

/// A client's behaviour.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Reads the whole stream.
    Stays,
    /// Drops the stream after this number of tokens.
    Leaves(usize),
    /// Drops the connection after this number of tokens.
    Disconnects(usize),
    /// Sets a deadline of this number of milliseconds.
    GivesUp(u64),
}

impl Manner {
    fn any(random: &mut Random, tokens: u32) -> Self {
        let tokens = random.below(u64::from(tokens)) as usize;
        match random.below(100) {
            0..60 => Self::Stays,
            60..80 => Self::Leaves(tokens),
            80..90 => Self::Disconnects(tokens),
            _ => Self::GivesUp(5 + random.below(3_000)),
        }
    }
}

/// The end of a request and its tokens.
struct Ended {
    how: &'static str,
    ids: Vec<u32>,
}

async fn ask(client: &mut Client, request: pb::GenerateRequest, manner: Manner) -> Ended {
    let mut request = Request::new(request);
    if let Manner::GivesUp(milliseconds) = manner {
        request.set_timeout(Duration::from_millis(milliseconds));
    }
    let enough = match manner {
        Manner::Leaves(tokens) | Manner::Disconnects(tokens) => tokens,
        Manner::Stays | Manner::GivesUp(_) => usize::MAX,
    };
    let mut ids = Vec::new();
    let mut stream = match client.generate(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ended { how: refusal(status.code(), manner), ids },
    };
    let mut how = "cut short";
    loop {
        match stream.message().await {
            Ok(Some(response)) => match response.event.expect("an event") {
                Event::Delta(delta) => ids.extend(delta.token_ids),
                Event::Finished(finished) => how = finished.reason().as_str_name(),
                _ => {}
            },
            Ok(None) => return Ended { how, ids },
            Err(status) => return Ended { how: refusal(status.code(), manner), ids },
        }
        if ids.len() >= enough {
            return Ended { how: "left", ids };
        }
    }
}

fn refusal(code: Code, manner: Manner) -> &'static str {
    match (code, manner) {
        (Code::ResourceExhausted, _) => "queue full",
        // tonic's client reports its own timer as CANCELLED.
        (Code::DeadlineExceeded | Code::Cancelled, Manner::GivesUp(_)) => "too late",
        _ => panic!("an unexpected {code:?} for one that {manner:?}"),
    }
}

/// The results of all clients.
#[derive(Debug, Default)]
struct Tally {
    ends: BTreeMap<&'static str, u64>,
    /// The number of tokens of each client.
    tokens: Vec<u64>,
    compared: u64,
}

impl Tally {
    /// Returns 1 if all clients got the same number of tokens, 1/n if one client got all. Source:
    /// Jain, Chiu and Hawe, DEC-TR-301, 1984.
    fn fairness(&self) -> f64 {
        let sum: u64 = self.tokens.iter().sum();
        let squares: f64 = self.tokens.iter().map(|&tokens| (tokens as f64).powi(2)).sum();
        (sum as f64).powi(2) / (self.tokens.len() as f64 * squares).max(1.0)
    }
}

async fn connect(address: &str) -> Client {
    GenerateServiceClient::connect(address.to_owned()).await.expect("it answers")
}

async fn act(seed: u64, address: String, solo: ReferenceOutputs, tokens: u32, until: Instant) -> Tally {
    let mut random = Random(seed);
    let mut client = connect(&address).await;
    let (mut tally, mut received) = (Tally::default(), 0);
    while Instant::now() < until {
        let (kind, manner) = (random.below(solo.len() as u64), Manner::any(&mut random, tokens));
        let priority = random.below(3) as i32 - 1;
        let most = 1 + random.below(u64::from(tokens)) as u32;
        let request = pb::GenerateRequest { priority, ..request(kind, most) };
        let Ended { how, ids } = ask(&mut client, request, manner).await;
        let expected = &solo[kind as usize][..most as usize];
        assert!(expected.starts_with(&ids), "kind {kind}, {manner:?}, {how}: {ids:?} is not from {expected:?}");
        assert!(how != "FINISH_REASON_LENGTH" || ids == expected, "kind {kind}: {} tokens of {most}", ids.len());
        *tally.ends.entry(how).or_default() += 1;
        tally.compared += ids.len() as u64;
        received += ids.len() as u64;
        if matches!(manner, Manner::Disconnects(_)) {
            client = connect(&address).await;
        }
        if how == "queue full" {
            tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
        }
    }
    tally.tokens.push(received);
    tally
}

/// Returns this process's resident memory in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

async fn stress(scale: Scale) -> Tally {
    let Scale { clients, how_long, kinds, tokens, threads } = scale;
    let config = Config {
        threads,
        dtype: DtypeChoice::F32,
        kv_memory: Some(96 << 20),
        max_queue: 128,
        ..Config::new(default_model())
    };
    let service = Generation::start_with(config).await;
    let address = format!("http://{}", service.running.address);
    let mut client = connect(&address).await;
    let mut solo = Vec::new();
    for kind in 0..kinds {
        solo.push(ask(&mut client, request(kind, tokens), Manner::Stays).await.ids);
    }
    let solo: ReferenceOutputs = Arc::new(solo);
    let (before, start) = (service.engine.gauges(), Instant::now());
    let mut acting = JoinSet::new();
    for seed in 0..clients {
        acting.spawn(act(seed, address.clone(), Arc::clone(&solo), tokens, start + how_long));
    }
    let watched = tokio::spawn(watch(service.engine.clone(), start, how_long));
    let mut all = Tally::default();
    while let Some(tally) = acting.join_next().await {
        let tally = tally.expect("every client gets its solo output");
        tally.ends.iter().for_each(|(how, count)| *all.ends.entry(how).or_default() += count);
        all.tokens.extend(tally.tokens);
        all.compared += tally.compared;
    }
    watched.await.expect("no panic");
    settle(&service.engine).await;
    let after = service.engine.gauges();
    eprintln!(
        "{clients} clients, {:.0} s: {:?}; {} tokens compared, {} generated, {} preemptions, fairness {:.3}",
        start.elapsed().as_secs_f64(),
        all.ends,
        all.compared,
        after.tokens - before.tokens,
        after.preemptions - before.preemptions,
        all.fairness(),
    );
    all
}

/// Prints the engine's gauges once a minute.
async fn watch(engine: Engine, start: Instant, how_long: Duration) {
    while start.elapsed() < how_long {
        tokio::time::sleep(Duration::from_secs(60).min(how_long.saturating_sub(start.elapsed()))).await;
        let (gauges, resident) = (engine.gauges(), resident() >> 20);
        eprintln!("{:>5.0} s: {gauges:?}, {resident} MiB resident", start.elapsed().as_secs_f64());
    }
}

/// Waits until the engine has released every request and every block.
async fn settle(engine: &Engine) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let gauges = engine.gauges();
        if gauges.queued + gauges.running + gauges.kv_blocks.held == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "not released: {gauges:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnecting_clients_get_their_tokens_and_leak_no_blocks() {
    let tally = stress(Scale { clients: 40, how_long: Duration::from_secs(5), kinds: 6, tokens: 24, threads: 1 }).await;
    assert!(tally.ends.contains_key("FINISH_REASON_LENGTH") && tally.ends.contains_key("left"), "{:?}", tally.ends);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as TANDEM_STRESS_SECONDS says"]
async fn two_hundred_clients_connect_and_disconnect() {
    let seconds = std::env::var("TANDEM_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    let how_long = Duration::from_secs(seconds.expect("TANDEM_STRESS_SECONDS says how long"));
    let scale = Scale { clients: 200, how_long, kinds: 24, tokens: 64, threads: 0 };
    // The first run makes every allocation, so that memory can be compared after the second.
    stress(Scale { clients: 60, how_long: Duration::from_secs(30), ..scale }).await;
    let before = resident();
    let tally = stress(scale).await;
    let after = resident();
    eprintln!("resident: {} MiB before, {} MiB after", before >> 20, after >> 20);
    assert!(tally.fairness() > 0.5, "some get far less than others");
    assert!(after < before + (256 << 20), "memory grows");
}
