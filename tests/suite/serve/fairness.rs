//! A polite caller beside a greedy one: the times until its first token and its rendered prompt,
//! alone and beside 200 streams of the other, and the times between its tokens beside 40.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tandem_common::pb::chat::v1::{self as chat, Conversation};
use tandem_common::pb::generate::v1::{Sampling, Stop};
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::{Process, default_model};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

/// The greedy caller's streams, on one connection.
const STREAMS: usize = 200;
/// Fewer of its streams, all of which run at once.
const FORTY: usize = 40;
const ROUNDS: usize = 15;

fn conversation(text: String) -> Option<Conversation> {
    let content = Some(chat::chat_message::Content::Text(text));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    Some(Conversation { messages: vec![message], ..Conversation::default() })
}

fn as_caller<T>(caller: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {caller}-secret").parse().expect("a value"));
    request
}

fn task(number: usize, tokens: u32) -> RunTaskRequest {
    RunTaskRequest {
        conversation: conversation(format!("A story about number {number}.")),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(tokens), ignore_eos: true, ..Stop::default() }),
        ..RunTaskRequest::default()
    }
}

/// The time until an answer's first token, and its parts in the engine.
#[derive(Debug, Clone, Copy)]
struct FirstToken {
    total: Duration,
    queue: Duration,
    prefill: Duration,
}

/// Runs a task to its end. Returns None if it was refused or failed.
async fn run(channel: Channel, caller: &str, task: RunTaskRequest) -> Option<FirstToken> {
    let start = Instant::now();
    let mut stream = TaskServiceClient::new(channel).run_task(as_caller(caller, task)).await.ok()?.into_inner();
    let (mut first, mut timings) = (None, None);
    while let Some(response) = stream.message().await.ok()? {
        match response.event {
            Some(Event::Delta(_)) => _ = first.get_or_insert_with(|| start.elapsed()),
            Some(Event::Finished(finished)) => timings = finished.timings,
            _ => {}
        }
    }
    let (total, timings) = (first?, timings?);
    let part = |milliseconds: f64| Duration::from_secs_f64(milliseconds / 1_000.0);
    Some(FirstToken { total, queue: part(timings.queue_ms), prefill: part(timings.prefill_ms) })
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times[times.len() / 2]
}

/// The medians of a caller's times.
#[derive(Debug, Clone, Copy)]
struct Medians {
    first: FirstToken,
    prompt: Duration,
}

/// Returns the polite caller's median times until its first token and its rendered prompt.
async fn polite(channel: &Channel, round: usize) -> Medians {
    let (mut tokens, mut prompts) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let task = task(10_000 + round * ROUNDS + number, 4);
        tokens.push(run(channel.clone(), "polite", task).await.expect("the polite caller is served"));
        let request = RenderRequest { conversation: conversation(format!("Hello {number}")), ..Default::default() };
        let start = Instant::now();
        let rendered = RenderServiceClient::new(channel.clone()).render(as_caller("polite", request)).await;
        rendered.expect("a prompt");
        prompts.push(start.elapsed());
    }
    let of = |part: fn(&FirstToken) -> Duration| median(tokens.iter().map(part));
    let first = FirstToken {
        total: of(|token| token.total),
        queue: of(|token| token.queue),
        prefill: of(|token| token.prefill),
    };
    Medians { first, prompt: median(prompts.into_iter()) }
}

async fn connect(process: &Process) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    endpoint.connect().await.expect("it answers")
}

/// Starts both services with named callers.
fn start(files: &TempDir) -> [Process; 2] {
    let write = |name: &str, text: &str| {
        let file = files.path().join(name);
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    };
    let callers = write("callers", "polite-secret name=polite\ngreedy-secret name=greedy\n");
    let delegates = write("delegates", "front-secret name=front delegate\n");
    let own = write("own", "front-secret\n");
    let model = default_model().display().to_string();
    let generation = Process::start("127.0.0.1:0", &["gen-svc", "--model", &model, "--token-file", &delegates]);
    let command = ["render-svc", "--models", &model, "--generate", &generation.address, "--token-file", &callers];
    let front = Process::start("127.0.0.1:0", &[&command[..], &["--generate-token-file", &own]].concat());
    [generation, front]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and measures times"]
async fn two_hundred_streams_of_one_caller_leave_room_for_another() {
    let files = TempDir::new().expect("a folder");
    assert!(STREAMS <= ServeArgs::default().max_calls);
    let [_generation, front] = start(&files);
    let (polite_channel, greedy_channel) = (connect(&front).await, connect(&front).await);
    let alone = polite(&polite_channel, 0).await;
    let mut streams = greedy(&greedy_channel, STREAMS, &Arc::default());
    sleep(Duration::from_secs(10)).await;
    let beside = polite(&polite_channel, 1).await;
    streams.shutdown().await;
    let print = |name, alone, beside| print(name, alone, beside, STREAMS);
    print("first token", alone.first.total, beside.first.total);
    print("  of it in the queue", alone.first.queue, beside.first.queue);
    print("  of it in prefill", alone.first.prefill, beside.first.prefill);
    print("rendered prompt", alone.prompt, beside.prompt);
}

fn print(name: &str, alone: Duration, beside: Duration, streams: usize) {
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    eprintln!("{name}: median {alone:.2?} alone, {beside:.2?} beside {streams} streams, {ratio:.2} times");
}

/// Starts endless streams of the greedy caller, which count their tokens.
fn greedy(channel: &Channel, streams: usize, tokens: &Arc<AtomicUsize>) -> JoinSet<()> {
    let stream = |number| {
        let (channel, tokens) = (channel.clone(), Arc::clone(tokens));
        async move {
            for round in 0.. {
                let times = token_times(channel.clone(), "greedy", task(number + round * streams, 200), &tokens).await;
                if times.is_none() {
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    (0..streams).map(stream).collect()
}

/// Runs a task to its end. Returns the times of its deltas, and adds their number to `count`. None if
/// the task was refused or failed.
async fn token_times(
    channel: Channel,
    caller: &str,
    task: RunTaskRequest,
    count: &AtomicUsize,
) -> Option<Vec<Instant>> {
    let mut stream = TaskServiceClient::new(channel).run_task(as_caller(caller, task)).await.ok()?.into_inner();
    let mut times = Vec::new();
    while let Some(response) = stream.message().await.ok()? {
        if matches!(response.event, Some(Event::Delta(_))) {
            times.push(Instant::now());
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    Some(times)
}

/// Returns the median and the 99th percentile of the times between the tokens of the polite caller's
/// stream, and the tokens of the others in the meantime, for each second.
async fn gaps(channel: &Channel, number: usize, others: &AtomicUsize) -> (Duration, Duration, f64) {
    let (start, before) = (Instant::now(), others.load(Ordering::Relaxed));
    let times = token_times(channel.clone(), "polite", task(number, 400), &AtomicUsize::default()).await;
    let rate = (others.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
    let times = times.expect("the polite caller is served");
    let mut gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort();
    (gaps[gaps.len() / 2], gaps[gaps.len() * 99 / 100], rate)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and measures times"]
async fn forty_streams_of_one_caller_leave_another_its_pace() {
    let files = TempDir::new().expect("a folder");
    let [_generation, front] = start(&files);
    let (polite_channel, greedy_channel) = (connect(&front).await, connect(&front).await);
    let tokens = Arc::<AtomicUsize>::default();
    let alone = gaps(&polite_channel, 20_000, &tokens).await;
    let mut streams = greedy(&greedy_channel, FORTY, &tokens);
    sleep(Duration::from_secs(10)).await;
    let (before, start) = (tokens.load(Ordering::Relaxed), Instant::now());
    sleep(Duration::from_secs(10)).await;
    let undisturbed = (tokens.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
    let beside = gaps(&polite_channel, 20_001, &tokens).await;
    streams.shutdown().await;
    print("time between tokens", alone.0, beside.0, FORTY);
    print("its 99th percentile", alone.1, beside.1, FORTY);
    eprintln!("tokens of the {FORTY} streams: {undisturbed:.0} a second without the other, {:.0} beside it", beside.2);
}
