//! Polite callers beside greedy ones, while replicas are killed, stopped and cut off: every answer
//! equals the undisturbed one, and every error has a reason with which the caller retries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::process::Signal;
use tandem_common::status::{Reason, RetryClass};
use tandem_tests::failure::failed;
use tandem_tests::{Process, Random, default_model};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::stuck::proxy::{Proxy, Way};
use super::{Answer, restart, task};

/// The number of different tasks.
const KINDS: usize = 16;
/// Tasks of the polite caller that run at once.
const POLITE: usize = 4;
/// Tasks of each greedy caller that run at once.
const GREEDY: usize = 24;
const GREEDY_CALLERS: [&str; 2] = ["greedy", "greedier"];
/// Maximum number of tokens of a task.
const TOKENS: u32 = 24;
/// The time of a fault.
const FAULT: Duration = Duration::from_secs(4);

/// The figures of one caller.
#[derive(Debug, Default)]
struct Tally {
    answers: usize,
    /// Refusals and failures, by reason.
    errors: BTreeMap<String, usize>,
    /// The times until the first token, in ascending order at the end.
    first_tokens: Vec<Duration>,
    /// The longest time without an event after the first.
    silence: Duration,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.answers += other.answers;
        for (reason, count) in other.errors {
            *self.errors.entry(reason).or_default() += count;
        }
        self.first_tokens.extend(other.first_tokens);
        self.first_tokens.sort();
        self.silence = self.silence.max(other.silence);
    }

    fn quantile(&self, share: f64) -> Duration {
        let at = (self.first_tokens.len() as f64 * share) as usize;
        self.first_tokens.get(at.min(self.first_tokens.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answers, errors, silence, .. } = self;
        let [half, most] = [0.5, 0.99].map(|share| self.quantile(share));
        write!(f, "{answers} answers equal, first token p50 {half:.2?} and p99 {most:.2?}, ")?;
        write!(f, "longest silence {silence:.2?}, errors {errors:?}")
    }
}

/// Three replicas behind proxies, and a render service in front of them.
struct Fleet {
    replicas: Vec<Process>,
    proxies: Vec<Proxy>,
    front: Process,
    _files: TempDir,
}

impl Fleet {
    async fn start() -> Self {
        let files = TempDir::new().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = files.path().join(name);
            std::fs::write(&file, text).expect("a file");
            file.display().to_string()
        };
        let callers = ["polite", "greedy", "greedier"].map(|name| format!("{name}-secret name={name}\n")).concat();
        let [callers, delegates, own] = [
            write("callers", &callers),
            write("delegates", "front-secret name=front delegate\n"),
            write("own", "front-secret\n"),
        ];
        let start = move || (0..3).map(|_| replica(&delegates)).collect::<Vec<_>>();
        let replicas = tokio::task::spawn_blocking(start).await.expect("they start");
        let mut proxies = Vec::new();
        for replica in &replicas {
            proxies.push(Proxy::start(replica.address.clone()).await);
        }
        let addresses: Vec<_> = proxies.iter().map(|proxy| proxy.address.as_str()).collect();
        let (model, addresses) = (default_model().display().to_string(), addresses.join(","));
        let command = ["render-svc", "--models", &model, "--generate", &addresses, "--token-file", &callers];
        let front = Process::start("127.0.0.1:0", &[&command[..], &["--generate-token-file", &own]].concat());
        Self { replicas, proxies, front, _files: files }
    }

    async fn client(&self) -> TaskServiceClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.front.address)).expect("an address");
        TaskServiceClient::new(endpoint.connect().await.expect("it answers"))
    }

    /// Breaks one replica after the other until `end`, and returns the number of each fault.
    async fn disturb(&mut self, end: Instant) -> [usize; 3] {
        let (mut random, mut counts) = (Random(17), [0; 3]);
        while Instant::now() < end {
            let [which, fault] = [random.below(3) as usize, random.below(3) as usize];
            counts[fault] += 1;
            match fault {
                0 => {
                    let mut replica = self.replicas.remove(which);
                    replica.kill();
                    self.replicas.insert(which, restart(replica).await);
                }
                1 => {
                    self.replicas[which].signal(Signal::STOP);
                    sleep(FAULT).await;
                    self.replicas[which].signal(Signal::CONT);
                }
                _ => {
                    self.proxies[which].set(Way::HalfOpen);
                    sleep(FAULT).await;
                    self.proxies[which].set(Way::Open);
                }
            }
            sleep(FAULT / 2).await;
        }
        counts
    }
}

fn replica(tokens: &str) -> Process {
    let model = default_model().display().to_string();
    let command = ["gen-svc", "--threads", "1", "--kv-memory-mib", "256", "--model", &model, "--token-file", tokens];
    Process::start("127.0.0.1:0", &command)
}

/// Runs a task as a caller.
async fn run(
    mut client: TaskServiceClient<Channel>,
    caller: &str,
    task: RunTaskRequest,
    tally: &mut Tally,
) -> Result<Answer, Status> {
    let mut request = Request::new(task);
    request.metadata_mut().insert("authorization", format!("Bearer {caller}-secret").parse().expect("a value"));
    let (mut answer, start) = (Answer::default(), Instant::now());
    let mut stream = client.run_task(request).await?.into_inner();
    let (mut last, mut has_token) = (None::<Instant>, false);
    while let Some(response) = stream.message().await? {
        let now = Instant::now();
        tally.silence = tally.silence.max(last.map_or(Duration::ZERO, |last| now - last));
        last = Some(now);
        answer.add(response.event.expect("an event"));
        if !has_token && !answer.text.is_empty() {
            has_token = true;
            tally.first_tokens.push(start.elapsed());
        }
    }
    Ok(answer)
}

/// Runs tasks of a caller, one after the other, until `is_over`. Compares each answer.
fn worker(
    client: TaskServiceClient<Channel>,
    caller: &'static str,
    first: usize,
    undisturbed: Arc<[Answer]>,
    is_over: Arc<AtomicBool>,
) -> JoinHandle<Tally> {
    tokio::spawn(async move {
        let (mut tally, mut number) = (Tally::default(), first);
        while !is_over.load(Ordering::Relaxed) {
            let kind = number % KINDS;
            let task = RunTaskRequest { cache_salt: format!("{caller} {number}"), ..task(kind, TOKENS) };
            match run(client.clone(), caller, task, &mut tally).await {
                Ok(answer) => {
                    assert_eq!(answer, undisturbed[kind], "{caller}: task {kind}");
                    tally.answers += 1;
                }
                Err(status) => {
                    let reason = failed(&status).reason;
                    let class = Reason::from_name(&reason).map(Reason::retry_class);
                    assert_eq!(class, Some(RetryClass::Later), "{caller}: {status:?}");
                    *tally.errors.entry(reason).or_default() += 1;
                    sleep(Duration::from_millis(50)).await;
                }
            }
            number += 1;
        }
        tally
    })
}

async fn join(workers: Vec<JoinHandle<Tally>>) -> Tally {
    let mut all = Tally::default();
    for worker in workers {
        all.add(worker.await.expect("every answer is right, and every error is typed"));
    }
    all
}

/// Runs all callers for at least `time`.
async fn check(time: Duration) {
    let mut fleet = Fleet::start().await;
    let client = fleet.client().await;
    let mut undisturbed = Vec::new();
    let mut alone = Tally::default();
    for kind in 0..KINDS {
        undisturbed.push(run(client.clone(), "polite", task(kind, TOKENS), &mut alone).await.expect("an answer"));
    }
    let (undisturbed, is_over): (Arc<[Answer]>, _) = (undisturbed.into(), Arc::new(AtomicBool::new(false)));
    let workers = |caller: &'static str, client: &TaskServiceClient<Channel>, count: usize| {
        let worker = |first| worker(client.clone(), caller, first * 5, Arc::clone(&undisturbed), Arc::clone(&is_over));
        (0..count).map(worker).collect::<Vec<_>>()
    };
    let polite = workers("polite", &client, POLITE);
    let mut greedy = Vec::new();
    for caller in GREEDY_CALLERS {
        greedy.extend(workers(caller, &fleet.client().await, GREEDY));
    }
    let [kills, stops, cuts] = fleet.disturb(Instant::now() + time).await;
    is_over.store(true, Ordering::Relaxed);
    let (polite, greedy, front) = (join(polite).await, join(greedy).await, fleet.front.resident() >> 20);
    eprintln!("{kills} kills, {stops} stops, {cuts} half-open connections; render-svc has {front} MiB");
    eprintln!("polite: {polite}");
    eprintln!("greedy: {greedy}");
    assert!(polite.answers > 0 && greedy.answers > 0, "every caller is served");
}

#[tokio::test(flavor = "multi_thread")]
async fn polite_and_greedy_callers_get_their_answers_through_faults() {
    check(Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as TANDEM_STRESS_SECONDS says"]
async fn chaos_with_greedy_callers_loses_no_answer() {
    let seconds = std::env::var("TANDEM_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    check(Duration::from_secs(seconds.expect("TANDEM_STRESS_SECONDS says how long"))).await;
}
