//! Replicas of the generation service that fail during an answer: the task's caller gets the same
//! answer as without the failure.

mod chaos;
mod device;
mod images;
mod retries;
mod stuck;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use render_svc::args::GenerationArgs;
use render_svc::generation::{GenerationClient, HealthCounts};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::generate_response::Event as Generated;
use tandem_common::pb::generate::v1::{self as generate, FinishReason, ReturnOptions, Sampling, Stop};
use tandem_common::pb::render::v1::ParsedOutput;
use tandem_common::pb::render::v1::parsed_delta::Part;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::fakes::replica::{Replica, UnhealthyAtFirst, accepted, at_once, ended, part};
use tandem_tests::{Process, Running, catalog, default_catalog, default_model, serve_catalog_with_generation};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_health::pb::health_server::Health;
use tonic_types::{ErrorDetails, StatusExt as _};

pub(crate) fn generation() -> Process {
    generation_of(&default_model())
}

pub(super) fn generation_of(model: &Path) -> Process {
    let model = model.display().to_string();
    Process::start("127.0.0.1:0", &["gen-svc", "--threads", "1", "--kv-memory-mib", "256", "--model", &model])
}

fn rendering(replicas: &[Process]) -> Process {
    let (model, replicas) = (default_model().display().to_string(), addresses(replicas));
    Process::start("127.0.0.1:0", &["render-svc", "--models", &model, "--generate", &replicas])
}

/// Starts a service again at the same address, after it has ended.
async fn restart(process: Process) -> Process {
    tokio::task::spawn_blocking(|| process.start_again()).await.expect("it starts")
}

/// Ends a service with SIGTERM and starts it again.
async fn terminate_and_restart(mut process: Process) -> Process {
    let roll = || {
        assert_eq!(process.terminate(), Some(0), "{}", process.address);
        process.start_again()
    };
    tokio::task::spawn_blocking(roll).await.expect("it starts again")
}

fn addresses(processes: &[Process]) -> String {
    let addresses: Vec<_> = processes.iter().map(|process| process.address.as_str()).collect();
    addresses.join(",")
}

pub(super) async fn serve_with_replicas(model: &Path, replicas: &[Process]) -> (Running, TaskServiceClient<Channel>) {
    let generate = replicas.iter().map(|replica| format!("http://{}", replica.address).parse().expect("an address"));
    let args =
        GenerationArgs { generate: generate.collect(), generate_patience_seconds: 60, ..GenerationArgs::default() };
    let service = serve_catalog_with_generation(catalog(model), args, ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    (service, client)
}

/// Returns task `number`. The tasks are of every kind: greedy and seeded, with and without ids,
/// with log probabilities, with a grammar, with stops, with and without reading of their parts.
pub(crate) fn task(number: usize, tokens: u32) -> RunTaskRequest {
    let text = format!("Tell me a long story about number {number} and its friends.");
    let content = Some(chat::chat_message::Content::Text(text));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    let is_greedy = number.is_multiple_of(2);
    let regex = generate::grammar::Kind::Regex("[a-z é🙂,]{10,2000}".to_owned());
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() }),
        sampling: Some(Sampling {
            temperature: Some(if is_greedy { 0.0 } else { 0.9 }),
            seed: (!is_greedy).then_some(number as u64),
            presence_penalty: (number % 4 == 1).then_some(0.5),
            ..Sampling::default()
        }),
        stop: Some(Stop {
            max_new_tokens: Some(tokens),
            ignore_eos: number % 8 != 7,
            stop_strings: if number % 4 == 2 { vec!["zebra crossing".to_owned()] } else { Vec::new() },
            ..Stop::default()
        }),
        return_options: Some(ReturnOptions {
            token_ids: number % 3 != 1,
            logprobs: (number % 4 == 3).then_some(2),
            prompt_logprobs: (number % 4 == 3).then_some(1),
            bytes: number.is_multiple_of(4),
            ..ReturnOptions::default()
        }),
        grammar: (number % 8 == 7).then_some(generate::Grammar { kind: Some(regex), ..generate::Grammar::default() }),
        parse_output: number % 4 < 2,
        ..RunTaskRequest::default()
    }
}

/// A caller's answer, joined from all its events.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    order: String,
    prompt_logprobs: Vec<generate::TokenInfo>,
    text: String,
    bytes: Vec<u8>,
    ids: Vec<u32>,
    tokens: Vec<generate::TokenInfo>,
    finish: Option<generate::Finished>,
    message: Option<chat::ChatMessage>,
    /// The joined texts of `parsed` events.
    parts: String,
    parsed: Option<ParsedOutput>,
    completion_tokens: u32,
    prompt_tokens: u32,
}

impl Answer {
    fn add(&mut self, event: Event) {
        match event {
            Event::Rendered(_) => self.order.push('r'),
            Event::Accepted(_) => self.order.push('a'),
            Event::Progress(_) => {}
            Event::Parsed(parsed) => {
                for delta in parsed.deltas {
                    match delta.part.expect("a part") {
                        Part::Reasoning(text) | Part::Content(text) => self.parts.push_str(&text),
                        Part::ToolCall(call) => self.parts.push_str(&call.arguments_json),
                    }
                }
            }
            Event::PromptLogprobs(logprobs) => self.prompt_logprobs.extend(logprobs.tokens),
            Event::Delta(delta) => {
                self.text.push_str(&delta.text);
                self.bytes.extend(delta.bytes);
                self.ids.extend(delta.token_ids);
                self.tokens.extend(delta.tokens);
            }
            Event::Finished(finished) => {
                self.order.push('f');
                let usage = finished.usage.unwrap_or_default();
                (self.completion_tokens, self.prompt_tokens) = (usage.completion_tokens, usage.prompt_tokens);
                (self.finish, self.message) = (finished.finish, finished.message);
                self.parsed = finished.parsed;
            }
        }
    }
}

/// Runs a task and returns its answer. `progress` is the number of bytes received. If the stream
/// fails after the first event, the returned status is ABORTED.
pub(crate) async fn ask(
    mut client: TaskServiceClient<Channel>,
    task: RunTaskRequest,
    progress: watch::Sender<usize>,
) -> Result<Answer, Status> {
    let mut stream = client.run_task(task).await?.into_inner();
    let mut answer = Answer::default();
    let in_the_middle = |status: Status| Status::aborted(format!("in the middle: {status:?}"));
    while let Some(response) = stream.message().await.map_err(in_the_middle)? {
        answer.add(response.event.expect("an event"));
        progress.send_replace(answer.text.len());
    }
    progress.send_replace(usize::MAX);
    Ok(answer)
}

struct Asked {
    answer: JoinHandle<Result<Answer, Status>>,
    progress: watch::Receiver<usize>,
}

fn ask_all(client: &TaskServiceClient<Channel>, tasks: &[RunTaskRequest]) -> Vec<Asked> {
    let ask = |task: &RunTaskRequest| {
        let (sender, progress) = watch::channel(0);
        Asked { answer: tokio::spawn(ask(client.clone(), task.clone(), sender)), progress }
    };
    tasks.iter().map(ask).collect()
}

async fn check_answers_after_kills(streams: usize, kills: usize, tokens: u32) {
    let tasks: Vec<_> = (0..streams).map(|number| task(number, tokens)).collect();
    check_tasks_after_kills(&default_model(), &tasks, kills).await;
}

/// Kills replicas while streams run. Every stream receives tokens between two kills.
async fn check_tasks_after_kills(model: &Path, tasks: &[RunTaskRequest], kills: usize) {
    let mut replicas = vec![generation_of(model), generation_of(model)];
    let (_service, client) = serve_with_replicas(model, &replicas).await;
    let mut undisturbed = Vec::new();
    for asked in ask_all(&client, tasks) {
        undisturbed.push(asked.answer.await.expect("no panic").expect("an answer"));
    }
    let mut round: Vec<Asked> = Vec::new();
    let (mut compared, mut interrupted) = (0, 0);
    for kill in 0..kills {
        if round.is_empty() {
            round = ask_all(&client, tasks);
        }
        // Wait until every running stream has received more text.
        for asked in &mut round {
            let before = *asked.progress.borrow();
            let more = asked.progress.wait_for(|now| *now > before || *now == usize::MAX);
            tokio::time::timeout(Duration::from_secs(60), more).await.expect("the stream continues").expect("it runs");
        }
        interrupted += round.iter().filter(|asked| *asked.progress.borrow() < usize::MAX).count();
        let mut replica = replicas.remove(0);
        replica.kill();
        replicas.push(restart(replica).await);
        if kill + 1 == kills || round.iter().all(|asked| asked.answer.is_finished()) {
            for (number, asked) in round.drain(..).enumerate() {
                let answer = asked.answer.await.expect("no panic").expect("it survives");
                assert_eq!(answer, undisturbed[number], "task {number}");
                compared += 1;
            }
        }
    }
    eprintln!("{kills} kills, {interrupted} streams under way at them, {compared} answers equal to undisturbed ones");
    assert!(interrupted >= kills.min(tasks.len()), "streams were under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_resume_when_replicas_are_killed() {
    check_answers_after_kills(8, 3, 120).await;
}

/// The number of kills limits this test's duration.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn thirty_two_answers_resume_through_fifty_kills() {
    check_answers_after_kills(32, 50, 400).await;
}

/// Calls one of several render services, as a balancing client does: it retries a call that no
/// service accepted at the next service.
async fn run_on_any_service(services: &[Channel], first: usize, task: &RunTaskRequest) -> Answer {
    for attempt in 0..200 {
        let client = TaskServiceClient::new(services[(first + attempt) % services.len()].clone());
        match ask(client, task.clone(), watch::Sender::new(0)).await {
            Ok(answer) => return answer,
            Err(status) if is_not_accepted(&status) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(status) => panic!("failed: {status:?}"),
        }
    }
    panic!("no service took the call");
}

/// Returns true if no service accepted a call: no service listened, the connection closed too
/// early, or the service was not ready.
fn is_not_accepted(status: &Status) -> bool {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.as_str());
    matches!(status.code(), Code::Unavailable | Code::Cancelled) && matches!(reason, None | Some("LOADING"))
}

#[tokio::test(flavor = "multi_thread")]
async fn restarting_every_service_in_turn_under_load_loses_no_request() {
    let mut replicas = vec![generation(), generation()];
    let mut front = vec![rendering(&replicas), rendering(&replicas)];
    let endpoint =
        |process: &Process| Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    let services: Arc<[Channel]> = front.iter().map(|process| endpoint(process).connect_lazy()).collect();
    let tasks: Arc<[RunTaskRequest]> = (0..8).map(|number| task(number, 40)).collect();
    let mut undisturbed = Vec::new();
    for task in tasks.iter() {
        undisturbed.push(run_on_any_service(&services, 0, task).await);
    }
    let undisturbed: Arc<[Answer]> = undisturbed.into();
    let stop = watch::Sender::new(false);
    let load = |worker: usize| {
        let (services, tasks, undisturbed) = (Arc::clone(&services), Arc::clone(&tasks), Arc::clone(&undisturbed));
        let stop = stop.subscribe();
        tokio::spawn(async move {
            let mut answered = 0;
            while !*stop.borrow() {
                let answer = run_on_any_service(&services, worker + answered, &tasks[worker]).await;
                assert_eq!(answer, undisturbed[worker], "task {worker}");
                answered += 1;
            }
            answered
        })
    };
    let workers: Vec<_> = (0..tasks.len()).map(load).collect();
    for service in 0..2 {
        let old = replicas.remove(0);
        replicas.push(terminate_and_restart(old).await);
        let old = front.remove(0);
        front.push(terminate_and_restart(old).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(workers.iter().all(|worker| !worker.is_finished()), "after restart {service}");
    }
    stop.send_replace(true);
    let mut answered = 0;
    for worker in workers {
        answered += worker.await.expect("no request is lost");
    }
    eprintln!("{answered} tasks answered while all four services were restarted");
    assert!(answered > 0);
}

/// Returns a replica behind a proxy: the first call is accepted and gets `first`.
fn scripted(first: Result<Vec<Generated>, Status>) -> Replica {
    scripted_then(first, [vec![part("", &[7])], ended(FinishReason::Length)].concat())
}

/// The same. Every later call gets `then`.
fn scripted_then(first: Result<Vec<Generated>, Status>, then: Vec<Generated>) -> Replica {
    Replica::new(move |_, call| {
        let events = if call == 0 { first.clone()? } else { then.clone() };
        Ok(at_once([vec![accepted()], events].concat()))
    })
}

/// Serves a replica, and returns its address.
async fn serve_replica(replica: Replica, health: impl Health) -> Uri {
    format!("http://{}", replica.serve_with(health).await).parse().expect("an address")
}

/// Starts a render service with the replicas at these addresses.
async fn serve_before(generate: Vec<Uri>) -> (Running, TaskServiceClient<Channel>) {
    let args = GenerationArgs { generate, ..GenerationArgs::default() };
    let service = serve_catalog_with_generation(default_catalog(), args, ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    (service, client)
}

/// Starts a render service with this replica as its only replica.
async fn serve_with_one_replica(replica: Replica, health: impl Health) -> (Running, TaskServiceClient<Channel>) {
    serve_before(vec![serve_replica(replica, health).await]).await
}

/// Breaks one call. The replica then reports unhealthy `ill` times and gets the next call.
async fn check_retry_after_one_failure(ill: usize) {
    let replica = scripted(Err(Status::unavailable("reset by something in between")));
    let (_service, client) = serve_with_one_replica(replica, UnhealthyAtFirst(ill.into())).await;
    let broken = ask(client.clone(), task(0, 8), watch::Sender::new(0)).await.expect_err("it breaks");
    assert_eq!(failed(&broken).reason, "GENERATION_UNAVAILABLE");
    let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect("the replica is healthy again");
    assert_eq!(answer.order, "raf");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_gets_calls_again_after_one_failed_call() {
    check_retry_after_one_failure(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unhealthy_replica_gets_calls_again_after_it_recovers() {
    check_retry_after_one_failure(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_answer_resumes_on_the_only_healthy_replica() {
    let gives_up = scripted(Ok(ended(FinishReason::Cancelled)));
    let (_service, client) = serve_with_one_replica(gives_up, UnhealthyAtFirst(0.into())).await;
    let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect("an answer");
    assert_eq!(answer.finish.expect("an end").reason(), FinishReason::Length);
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_resumes_within_and_after_a_multi_part_token() {
    // The token 11 ends reasoning in its middle, so that its text has two parts.
    let [first, marker, rest, last] = [part("a", &[10]), part("</think>", &[]), part("\n\n", &[11]), part("b", &[12])];
    let (given_up, whole) = (ended(FinishReason::Cancelled), ended(FinishReason::Length));
    let after = [vec![first.clone(), marker.clone(), rest.clone()], given_up.clone()].concat();
    let within = [vec![first.clone(), marker.clone()], given_up].concat();
    // The retry generates the last completely delivered token again: 11, or 10.
    let cases = [(after, vec![marker.clone(), rest.clone(), last.clone()]), (within, vec![first, marker, rest, last])];
    for (before, again) in cases {
        let replica = scripted_then(Ok(before), [again, whole.clone()].concat());
        let (_service, client) = serve_with_one_replica(replica, UnhealthyAtFirst(0.into())).await;
        let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect("an answer");
        assert_eq!((answer.text.as_str(), answer.ids.as_slice()), ("a</think>\n\nb", &[10, 11, 12][..]));
    }
}

/// The second replica plays the output from its start, which is no resumption.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_returns_to_a_replica_once_every_other_one_has_failed_it() {
    let [first, second, third] = [part("a", &[10]), part("b", &[11]), part("c", &[12])];
    let interrupted = [vec![first, second.clone()], ended(FinishReason::Cancelled)].concat();
    let then = [vec![second, third], ended(FinishReason::Length)].concat();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let replica = scripted_then(Ok(interrupted.clone()), then.clone());
        replicas.push(serve_replica(replica, UnhealthyAtFirst(0.into())).await);
    }
    let (_service, client) = serve_before(replicas).await;
    let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.ids.as_slice()), ("abc", &[10, 11, 12][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_of_a_replica_are_escaped() {
    let text = "red \u{1b}[31m\r\nbell \u{7}";
    let info = |reason: &str| ErrorDetails::with_error_info(reason, "tandem", HashMap::new());
    let mut field = info("INVALID_REQUEST");
    field.add_bad_request_violation("sampling.seed", text);
    let statuses = [
        ("a known reason", Status::with_error_details(Code::Internal, text, info("INTERNAL"))),
        ("another reason", Status::with_error_details(Code::Aborted, text, info("\u{1b}NEW"))),
        ("a field", Status::with_error_details(Code::InvalidArgument, text, field)),
        ("a transport", Status::unavailable(text)),
    ];
    for (case, status) in statuses {
        let replica = scripted(Err(status));
        let (_service, client) = serve_with_one_replica(replica, UnhealthyAtFirst(0.into())).await;
        let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect_err(case);
        let violations = answer.get_error_details().bad_request().map(|request| request.field_violations.clone());
        let described: String = violations.into_iter().flatten().map(|violation| violation.description).collect();
        let message = format!("{}{described}", answer.message());
        assert!(!message.contains(char::is_control), "{case}: {message:?}");
        assert!(answer.message().contains(r"red \u{1b}[31m\r\nbell \u{7}"), "{case}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reason_that_this_version_does_not_define_is_generation_failed_with_its_code() {
    let details = ErrorDetails::with_error_info("ADDED_LATER", "tandem", HashMap::new());
    let replica = scripted(Err(Status::with_error_details(Code::Aborted, "a text", details)));
    let (_service, client) = serve_with_one_replica(replica, UnhealthyAtFirst(0.into())).await;
    let answer = ask(client, task(0, 8), watch::Sender::new(0)).await.expect_err("it fails");
    let reason = answer.get_error_details().error_info().map(|info| info.reason.clone());
    assert_eq!((answer.code(), reason.as_deref()), (Code::Aborted, Some("GENERATION_FAILED")));
}

#[tokio::test]
async fn replica_listed_twice_is_one_replica() {
    let uri: Uri = "http://127.0.0.1:1".parse().expect("an address");
    let args = GenerationArgs { generate: vec![uri.clone(), uri], ..GenerationArgs::default() };
    let client = GenerationClient::connect(&args.config().expect("addresses")).expect("no credentials");
    let count = || {
        let HealthCounts { healthy, unknown, unhealthy } = client.health_counts();
        healthy + unknown + unhealthy
    };
    while count() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Time to find another replica.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count(), 1);
}
