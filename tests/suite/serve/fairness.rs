//! A polite caller beside a greedy one: the times until its first token and its rendered prompt,
//! alone and beside 200 streams of the other.

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
    assert!(STREAMS <= ServeArgs::default().max_connection_calls as usize);
    let [_generation, front] = start(&files);
    let (polite_channel, greedy_channel) = (connect(&front).await, connect(&front).await);
    let alone = polite(&polite_channel, 0).await;
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let channel = greedy_channel.clone();
        streams.spawn(async move {
            let mut answered = 0_usize;
            loop {
                match run(channel.clone(), "greedy", task(number + answered * STREAMS, 200)).await {
                    Some(_) => answered += 1,
                    None => sleep(Duration::from_millis(100)).await,
                }
            }
        });
    }
    sleep(Duration::from_secs(10)).await;
    let beside = polite(&polite_channel, 1).await;
    streams.shutdown().await;
    print("first token", alone.first.total, beside.first.total);
    print("  of it in the queue", alone.first.queue, beside.first.queue);
    print("  of it in prefill", alone.first.prefill, beside.first.prefill);
    print("rendered prompt", alone.prompt, beside.prompt);
}

fn print(name: &str, alone: Duration, beside: Duration) {
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    eprintln!("{name}: median {alone:.2?} alone, {beside:.2?} beside {STREAMS} streams, {ratio:.2} times");
}
