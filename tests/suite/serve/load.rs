//! Load from many callers for TANDEM_LOAD_SECONDS: the answers, their latency, and the resources
//! used.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_tests::failure::failed;
use tandem_tests::{Process, default_model};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

fn duration() -> Duration {
    let seconds = std::env::var("TANDEM_LOAD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

async fn connect(process: &Process) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    endpoint.connect().await.expect("it answers")
}

/// The durations of calls of one kind.
#[derive(Debug, Default, Clone)]
struct Times(Arc<Mutex<Vec<Duration>>>);

impl Times {
    fn add(&self, time: Duration) {
        self.0.lock().expect("no panic").push(time);
    }

    fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// Returns a quantile in milliseconds.
    fn quantile(&self, share: f64) -> f64 {
        let mut times = self.0.lock().expect("no panic").clone();
        times.sort_unstable();
        let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    fn describe(&self, name: &str) -> String {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| self.quantile(share));
        format!("{name}: {} calls, p50 {p50:.2} ms, p99 {p99:.2} ms, longest {most:.2} ms", self.count())
    }
}

fn conversation(letters: usize) -> Option<chat::Conversation> {
    let content = Some(chat::chat_message::Content::Text("lorem ipsum ".repeat(letters.div_ceil(12))));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() })
}

async fn render(channel: Channel, letters: usize) -> Result<(), Status> {
    let request = RenderRequest { conversation: conversation(letters), ..RenderRequest::default() };
    RenderServiceClient::new(channel).max_decoding_message_size(usize::MAX).render(request).await.map(drop)
}

async fn run_task(channel: Channel, letters: usize) -> Result<(), Status> {
    let stop = Some(generate::Stop { max_new_tokens: Some(8), ..generate::Stop::default() });
    let request = RunTaskRequest { conversation: conversation(letters), stop, ..RunTaskRequest::default() };
    let mut events = TaskServiceClient::new(channel).run_task(request).await?.into_inner();
    while events.message().await?.is_some() {}
    Ok(())
}

/// A thousand connections send renders of 10 to 100,000 letters. One connection in a hundred runs
/// tasks.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as TANDEM_LOAD_SECONDS says"]
async fn a_thousand_connections_of_mixed_sizes_are_served() {
    let model = default_model().display().to_string();
    let start = |command: Vec<String>| tokio::task::spawn_blocking(move || Process::start("127.0.0.1:0", &command));
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    // Memory of the KV cache is allocated at first use. A small cache is soon fully allocated.
    let generation = words(&["gen-svc", "--threads", "1", "--kv-memory-mib", "64", "--model", &model]);
    let generation = start(generation).await.expect("it starts");
    let front = words(&["render-svc", "--models", &model, "--generate", &generation.address]);
    let front = start(front).await.expect("it starts");
    let (renders, tasks, until) = (Times::default(), Times::default(), Instant::now() + duration());
    let mut callers = Vec::new();
    for number in 0..1_000_usize {
        let (channel, renders, tasks) = (connect(&front).await, renders.clone(), tasks.clone());
        callers.push(tokio::spawn(async move {
            let mut turn = number;
            while Instant::now() < until {
                let (letters, start) = (10_usize.pow(1 + (turn % 5) as u32), Instant::now());
                if number.is_multiple_of(100) {
                    run_task(channel.clone(), letters.min(1_000)).await.expect("no error");
                    tasks.add(start.elapsed());
                } else {
                    render(channel.clone(), letters).await.expect("no error");
                    renders.add(start.elapsed());
                }
                turn += 1;
                tokio::time::sleep(Duration::from_millis(500 + (turn * 7_919 % 1_000) as u64)).await;
            }
        }));
    }
    let mut memory = Vec::new();
    while Instant::now() < until {
        tokio::time::sleep(duration() / 5).await;
        memory.push([front.resident() >> 20, generation.resident() >> 20]);
    }
    for caller in callers {
        caller.await.expect("no error");
    }
    eprintln!("{}\n{}", renders.describe("render"), tasks.describe("task"));
    eprintln!("resident MiB of render-svc and gen-svc, five times: {memory:?}");
    for (first, last) in memory[1].iter().zip(memory[4]) {
        assert!(last < first + 64, "memory grows: {memory:?}");
    }
}

fn request() -> generate::GenerateRequest {
    generate::GenerateRequest {
        input: Some(Input::TokenIds(generate::TokenIds { ids: (1..33).collect() })),
        stop: Some(generate::Stop { max_new_tokens: Some(32), ignore_eos: true, ..generate::Stop::default() }),
        ..generate::GenerateRequest::default()
    }
}

/// Returns the time that a request spent in the queue. Fails if the request is rejected.
async fn generate(channel: Channel) -> Result<Duration, Status> {
    let mut events = GenerateServiceClient::new(channel).generate(request()).await?.into_inner();
    let mut queue_ms = None;
    while let Some(response) = events.message().await? {
        if let Some(Event::Summary(summary)) = response.event {
            queue_ms = summary.timings.map(|timings| timings.queue_ms);
        }
    }
    Ok(Duration::from_secs_f64(queue_ms.expect("an answer is whole") / 1e3))
}

/// The answers to callers.
#[derive(Debug, Default, Clone)]
struct AnswerTimes {
    answered: Times,
    /// The durations without the time in the queue.
    running: Times,
    refused: Times,
}

/// Sends requests from this number of callers for `time`.
async fn send_requests(process: &Process, callers: usize, time: Duration) -> AnswerTimes {
    let (pressed, until) = (AnswerTimes::default(), Instant::now() + time);
    let mut pressing = Vec::new();
    for _ in 0..callers {
        let (channel, AnswerTimes { answered, running, refused }) = (connect(process).await, pressed.clone());
        pressing.push(tokio::spawn(async move {
            while Instant::now() < until {
                let start = Instant::now();
                match generate(channel.clone()).await {
                    Ok(queued) => {
                        answered.add(start.elapsed());
                        running.add(start.elapsed().saturating_sub(queued));
                    }
                    Err(status) => {
                        refused.add(start.elapsed());
                        let failure = failed(&status);
                        let expected = (Code::ResourceExhausted, "QUEUE_FULL");
                        assert_eq!((failure.code, failure.reason.as_str()), expected, "{status:?}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }));
    }
    for caller in pressing {
        caller.await.expect("only answers and rejections");
    }
    pressed
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as TANDEM_LOAD_SECONDS says"]
async fn ten_times_as_many_callers_as_slots_are_answered_or_rejected() {
    let model = default_model().display().to_string();
    let command = ["gen-svc", "--threads", "1", "--max-running", "4", "--max-queue", "4", "--model", &model];
    let process = Process::start("127.0.0.1:0", &command);
    // Four requests run, and four callers never send more than four at once.
    let full = send_requests(&process, 4, duration() / 2).await;
    assert_eq!(full.refused.count(), 0, "there is room for all");
    let AnswerTimes { answered, running, refused } = send_requests(&process, 80, duration() / 2).await;
    assert!(answered.count() > 0 && refused.count() > 0);
    eprintln!("{}", full.answered.describe("answered, 4 callers"));
    eprintln!("{}", answered.describe("answered, 80 callers, of which 4 can run and 4 wait"));
    eprintln!("{}", running.describe("the same from the queue on"));
    eprintln!("{}", refused.describe("refused"));
}
