//! How often and from which token a task resumes, with a generator that plays scripted attempts.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::vec;

use render_svc::error::Error;
use render_svc::task::generator::{FailureClass, GenerationError, GenerationStream, Generator};
use render_svc::task::request::GenerationRequest;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Accepted, Delta, FinishReason, Finished, Summary};
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::{default_catalog, serve_catalog_with_generator};
use tokio::sync::watch;
use tonic::Status;

use super::{Answer, ask, task};

type Attempt = Vec<Result<Event, GenerationError>>;

/// Plays one attempt per call. Without further attempts, or if one is empty, no replica accepts the call.
#[derive(Debug)]
struct Script {
    attempts: Mutex<VecDeque<Attempt>>,
    resumed: Arc<Mutex<Vec<Resumed>>>,
}

/// Arguments of one `resume` call: the token ids so far and the class of the failure.
type Resumed = (Vec<u32>, FailureClass);

impl Script {
    fn play(&self) -> Result<Playback, Error> {
        let attempt = self.attempts.lock().expect("no panic").pop_front().filter(|attempt| !attempt.is_empty());
        Ok(Playback(attempt.ok_or_else(|| unavailable("no replica"))?.into_iter()))
    }
}

impl Generator for Script {
    type Stream = Playback;

    async fn start(&self, _request: &GenerationRequest) -> Result<Playback, Error> {
        self.play()
    }

    async fn resume(
        &self,
        _request: &GenerationRequest,
        generated: &[u32],
        _failed: &Playback,
        class: FailureClass,
    ) -> Result<Playback, Error> {
        self.resumed.lock().expect("no panic").push((generated.to_vec(), class));
        self.play()
    }
}

#[derive(Debug)]
struct Playback(vec::IntoIter<Result<Event, GenerationError>>);

impl GenerationStream for Playback {
    async fn next(&mut self) -> Result<Event, GenerationError> {
        self.0.next().expect("an attempt ends with a failure or a summary")
    }

    fn replica(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 1).into()
    }
}

fn unavailable(message: &str) -> Error {
    Error::GenerationUnavailable { message: message.to_owned() }
}

fn fails(class: FailureClass) -> Result<Event, GenerationError> {
    Err(GenerationError { class, error: unavailable("scripted") })
}

fn token(id: u32) -> Result<Event, GenerationError> {
    Ok(Event::Delta(Delta { text: format!("{id} "), token_ids: vec![id], ..Delta::default() }))
}

fn finished(reason: FinishReason) -> Finished {
    Finished { reason: reason.into(), ..Finished::default() }
}

fn end() -> Attempt {
    let finished = Event::Finished(finished(FinishReason::Length));
    vec![Ok(finished), Ok(Event::Summary(Summary::default()))]
}

/// Returns an attempt with these events and an end.
fn ending<const N: usize>(events: [Result<Event, GenerationError>; N]) -> Attempt {
    events.into_iter().chain(end()).collect()
}

/// Returns attempts that each deliver one new token, after the last token of the attempt before,
/// and then fail.
fn one_token_each(attempts: u32) -> Vec<Attempt> {
    let attempt = |id: u32| {
        let replayed = id.checked_sub(1).map(token);
        replayed.into_iter().chain([token(id), fails(FailureClass::ReplicaDown)]).collect()
    };
    (0..attempts).map(attempt).collect()
}

/// Runs a task on these attempts.
async fn run(attempts: Vec<Attempt>) -> (Result<Answer, Status>, Vec<Resumed>) {
    let resumed = Arc::default();
    let script = Script { attempts: Mutex::new(attempts.into()), resumed: Arc::clone(&resumed) };
    let service = serve_catalog_with_generator(default_catalog(), Some(script), ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    let answer = ask(client, task(0, 8), watch::Sender::new(0)).await;
    let resumed = resumed.lock().expect("no panic").clone();
    (answer, resumed)
}

/// Runs a task on attempts that all fail, until the task fails. Returns the count of resumes.
async fn retries(attempts: Vec<Attempt>) -> usize {
    let (answer, resumed) = run(attempts).await;
    // After the first event, `ask` reports every status as ABORTED, with the status in its message.
    let status = answer.expect_err("the task fails");
    assert!(status.message().contains("scripted"), "{status:?}");
    resumed.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_without_progress_resumes_three_times() {
    let attempts = (0..10).map(|_| vec![fails(FailureClass::ReplicaDown)]);
    assert_eq!(retries(attempts.collect()).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_progress_resumes_sixty_four_times() {
    assert_eq!(retries(one_token_each(70)).await, 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_task_of_a_silent_replica_finishes_at_the_deadline() {
    let late = GenerationError { class: FailureClass::Permanent, error: Error::DeadlineExceeded };
    let accepted = Ok(Event::Accepted(Accepted::default()));
    let (answer, resumed) = run(vec![vec![accepted, token(0), Err(late)]]).await;
    let answer = answer.expect("an end");
    assert_eq!(answer.text, "0 ");
    assert_eq!(answer.finish.expect("a finish").reason(), FinishReason::Deadline);
    assert_eq!(resumed, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_ends_the_task() {
    let attempts = vec![vec![token(0), fails(FailureClass::Permanent)], end()];
    assert_eq!(retries(attempts).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_resumes_before_its_last_token_and_repeats_nothing() {
    let mut attempts = one_token_each(4);
    attempts.push([token(3)].into_iter().chain(end()).collect());
    let (answer, resumed) = run(attempts).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.ids.as_slice()), ("0 1 2 3 ", &[0, 1, 2, 3][..]));
    let down = |ids: &[u32]| (ids.to_vec(), FailureClass::ReplicaDown);
    assert_eq!(resumed, [down(&[]), down(&[0]), down(&[0, 1]), down(&[0, 1, 2])]);
}

/// Two tokens and a failure, then these attempts, which must complete the answer.
async fn resumed_after_two_tokens(attempts: Vec<Attempt>) -> Vec<Resumed> {
    let first = vec![token(0), token(1), fails(FailureClass::ReplicaDown)];
    let (answer, resumed) = run(std::iter::once(first).chain(attempts).collect()).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.ids.as_slice()), ("0 1 2 ", &[0, 1, 2][..]));
    resumed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ignores_the_resumption_is_left_for_another() {
    let (ignores, resumes) = (vec![token(0), token(1)], ending([token(1), token(2)]));
    let resumed = resumed_after_two_tokens(vec![ignores, resumes]).await;
    assert_eq!(resumed, [(vec![0], FailureClass::ReplicaDown), (vec![0], FailureClass::RetryElsewhere)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_differs_is_not_joined_to_the_delivered_text() {
    let other = Ok(Event::Delta(Delta { text: "one ".to_owned(), token_ids: vec![1], ..Delta::default() }));
    let resumed = resumed_after_two_tokens(vec![vec![other], ending([token(1), token(2)])]).await;
    assert_eq!(resumed[1], (vec![0], FailureClass::RetryElsewhere));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_no_replica_repeats_continues_after_the_delivered_tokens() {
    let differs = || vec![token(9), token(2)];
    let last = [(vec![0], FailureClass::RetryElsewhere), (vec![0, 1], FailureClass::Interrupted)];
    // Another replica differs too, or there is none.
    for second in [differs(), Vec::new()] {
        let resumed = resumed_after_two_tokens(vec![differs(), second, ending([token(2)])]).await;
        assert_eq!(resumed[1..], last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_with_all_of_its_tokens_that_no_replica_repeats_is_unavailable() {
    let first = || (0..8).map(token).chain([fails(FailureClass::ReplicaDown)]).collect();
    let differs = || vec![token(99)];
    // Another replica differs too, or there is none.
    for second in [differs(), Vec::new()] {
        let (answer, resumed) = run(vec![first(), differs(), second]).await;
        let status = answer.expect_err("incomplete");
        assert!(status.message().contains("did not repeat the end"), "{status}");
        let ids: Vec<u32> = (0..7).collect();
        assert_eq!(
            resumed,
            [FailureClass::ReplicaDown, FailureClass::RetryElsewhere].map(|class| (ids.clone(), class))
        );
    }
}

/// Returns an attempt that ends because the model failed.
fn fails_after<const N: usize>(events: [Result<Event, GenerationError>; N]) -> Attempt {
    let failed = Event::Finished(finished(FinishReason::Error));
    events.into_iter().chain([Ok(failed), Ok(Event::Summary(Summary::default()))]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_whose_model_fails_resumes_on_another_replica() {
    let (answer, resumed) = run(vec![fails_after([token(0)]), ending([token(0), token(1)])]).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.text.as_str(), answer.finish.expect("an end").reason()), ("0 1 ", FinishReason::Length));
    assert_eq!(resumed, [(Vec::new(), FailureClass::Faulty)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_whose_model_fails_everywhere_ends_with_the_failure() {
    for others in 0..3 {
        let attempts = (0..=others).map(|_| fails_after([token(0)]));
        let (answer, resumed) = run(attempts.collect()).await;
        let answer = answer.expect("an answer");
        assert_eq!((answer.text.as_str(), answer.finish.expect("an end").reason()), ("0 ", FinishReason::Error));
        assert_eq!(resumed.len(), others + 1, "each other replica is asked, and then none is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_output_that_no_replica_resumes_is_unavailable() {
    let attempt =
        vec![token(0), Ok(Event::Finished(finished(FinishReason::Cancelled))), Ok(Event::Summary(Summary::default()))];
    let (answer, resumed) = run(vec![attempt]).await;
    // The same end as after a crash: a drained replica's text is no whole answer either.
    let status = answer.expect_err("incomplete");
    assert!(status.message().contains("GENERATION_UNAVAILABLE"), "{status}");
    assert_eq!(resumed, [(Vec::new(), FailureClass::Interrupted)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_no_replica_accepts_fails_before_its_first_event() {
    let (answer, _) = run(Vec::new()).await;
    assert_eq!(failed(&answer.expect_err("no replica")).reason, "GENERATION_UNAVAILABLE");
}
