//! Another engine behind the port: its reports come from elsewhere and are not trusted. Text, limits, deadlines and
//! the queue are as those of the engine of this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_core::answer::{
    Answer, CheckedAnswer, Contradiction, Delta, Event, FinishReason, Finished, Flow, Queue, Summary,
};
use tandem_core::engine::{Config, Engine, EngineEnded, EngineLimits, Gauges, TokenEngine};
use tandem_core::error::RequestError;
use tandem_core::grammar::GrammarKind;
use tandem_core::lifecycle::Lifecycle;
use tandem_core::output::Matched;
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, ServedModel, StopOptions};
use tandem_core::sampling::{Chosen, Logprobs};
use tandem_tests::failure::failed;
use tandem_tests::served_model::served_with_all_tokens;
use tandem_tests::{Generation, default_artifacts, default_model, error_texts, goldens, wait_until};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

/// A report of the engine about a request.
#[derive(Debug, Clone)]
enum Report {
    Accepted {
        prompt: usize,
        cached: usize,
    },
    Prompt(Vec<(u32, Logprobs)>),
    Token(u32, Chosen),
    End(u32, FinishReason, usize),
    /// The engine does not look at the request for this time.
    Busy(Duration),
    /// The connection to the engine breaks.
    Broken,
}

fn token(id: u32) -> Report {
    Report::Token(0, Chosen { id, logprobs: None })
}

/// An engine whose reports the test sends.
#[derive(Debug)]
struct Remote {
    model: Arc<ServedModel>,
    limits: EngineLimits,
    /// One for each request, in order.
    reports: Mutex<Vec<mpsc::Receiver<Report>>>,
    cancelled: Arc<AtomicUsize>,
    contradictions: Arc<Mutex<Vec<Contradiction>>>,
}

impl TokenEngine for Remote {
    fn model(&self) -> &ServedModel {
        &self.model
    }

    fn limits(&self) -> EngineLimits {
        self.limits
    }

    fn start(&self, answer: Box<Answer>) -> Result<(), EngineEnded> {
        let reports = self.reports.lock().expect("no panic").pop().ok_or(EngineEnded)?;
        let (model, cancelled) = (Arc::clone(&self.model), Arc::clone(&self.cancelled));
        let contradictions = Arc::clone(&self.contradictions);
        thread::spawn(move || {
            let mut answer = CheckedAnswer::new(answer, &model);
            if let Err(contradiction) = relay(&mut answer, &reports, &cancelled) {
                contradictions.lock().expect("no panic").push(contradiction);
                answer.abort();
            }
        });
        Ok(())
    }

    fn activity(&self) -> Gauges {
        Gauges::default()
    }

    fn age(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn flush_prefix_cache(&self) -> Result<oneshot::Receiver<usize>, EngineEnded> {
        Err(EngineEnded)
    }
}

/// Relays reports to an answer until its end.
fn relay(
    answer: &mut CheckedAnswer,
    reports: &mpsc::Receiver<Report>,
    cancelled: &AtomicUsize,
) -> Result<(), Contradiction> {
    while !answer.has_ended() {
        if answer.interrupt(false, Duration::from_secs(20)) {
            cancelled.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        if answer.is_full() {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        match reports.recv_timeout(Duration::from_millis(5)) {
            Err(_) => {}
            Ok(Report::Accepted { prompt, cached }) => answer.accept(prompt, cached)?,
            Ok(Report::Prompt(tokens)) => answer.send_prompt(tokens)?,
            Ok(Report::Token(output, chosen)) => {
                if answer.push(output, chosen)? == Flow::Ended {
                    cancelled.fetch_add(1, Ordering::SeqCst);
                }
            }
            Ok(Report::End(output, reason, tokens)) => answer.end(output, reason, tokens)?,
            Ok(Report::Busy(time)) => thread::sleep(time),
            Ok(Report::Broken) => answer.abort(),
        }
    }
    Ok(())
}

/// An engine for one request or more, and the test's view of it.
struct Started {
    engine: Engine,
    senders: Vec<mpsc::Sender<Report>>,
    cancelled: Arc<AtomicUsize>,
    contradictions: Arc<Mutex<Vec<Contradiction>>>,
}

fn start(requests: usize) -> Started {
    let (senders, mut reports): (Vec<_>, Vec<_>) = (0..requests).map(|_| mpsc::channel()).unzip();
    reports.reverse();
    let config = Config { max_queue: 2, ..Config::new(default_model()) };
    let (cancelled, contradictions) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
    let remote = Remote {
        model: Arc::new(served_with_all_tokens()),
        limits: config.limits(),
        reports: Mutex::new(reports),
        cancelled: Arc::clone(&cancelled),
        contradictions: Arc::clone(&contradictions),
    };
    let lifecycle = Lifecycle::default();
    lifecycle.serve();
    Started { engine: Engine::new(Arc::new(remote), lifecycle, EVENTS), senders, cancelled, contradictions }
}

/// The events for which a request has room: fewer than its tokens, so that the engine waits for the reader.
const EVENTS: usize = 4;

const PROMPT: [u32; 3] = [100, 200, 300];

fn request(stop_strings: &[&str]) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions {
            max_new_tokens: Some(64),
            stop_strings: stop_strings.iter().map(|&text| text.to_owned()).collect(),
            ..StopOptions::default()
        },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(PROMPT.to_vec()))
    }
}

fn submit(engine: &Engine, request: GenerateRequest, deadline: Option<Instant>) -> Receiver<Event> {
    engine.submit(request.prepare(engine.model()).expect("a valid request"), deadline).expect("room")
}

/// Reads an answer to its end: the text, the end of its output and the summary, or the refusal.
fn read(mut events: Receiver<Event>) -> Result<(String, Finished, Summary), RequestError> {
    let (mut text, mut ended) = (String::new(), None);
    let add = |text: &mut String, delta: &Delta| text.push_str(&delta.text());
    loop {
        match events.blocking_recv().expect("a last event") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => add(&mut text, &delta),
            Event::Finished(finished) => {
                add(&mut text, &finished.last);
                ended = Some(finished);
            }
            Event::Summary(summary) => return Ok((text, ended.expect("the output has ended"), summary)),
            Event::Refused(error) => return Err(error),
        }
    }
}

fn send(sender: &mpsc::Sender<Report>, reports: impl IntoIterator<Item = Report>) {
    reports.into_iter().for_each(|report| sender.send(report).expect("the engine reads"));
}

const ACCEPTED: Report = Report::Accepted { prompt: PROMPT.len(), cached: 1 };

#[test]
fn text_is_made_above_the_engine() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    for golden in goldens() {
        let Started { engine, senders, cancelled, .. } = start(1);
        let events = submit(&engine, request(&[]), None);
        send(&senders[0], [ACCEPTED].into_iter().chain(golden.greedy_ids.iter().map(|id| token(*id))));
        let (text, ended, summary) = read(events).expect("an answer");
        assert_eq!(text, tokenizer.decode(&golden.greedy_ids, true).expect("text"), "{}", golden.id);
        let at_eos = golden.greedy_ids.last() == Some(&2);
        assert_eq!(ended.reason, if at_eos { FinishReason::Stop } else { FinishReason::Length }, "{}", golden.id);
        assert_eq!((summary.prompt_tokens, summary.cached_tokens), (PROMPT.len(), 1));
        assert_eq!(summary.completion_tokens, golden.greedy_ids.len());
        wait_until("the engine is cancelled", || cancelled.load(Ordering::SeqCst) == 1);
    }
}

#[test]
fn a_stop_string_ends_the_output_and_cancels_the_engine() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    let Started { engine, senders, cancelled, .. } = start(1);
    let events = submit(&engine, request(&["lazy d"]), None);
    let ids = tokenizer.encode("The quick brown fox jumps over the lazy dog.", false).expect("ids");
    send(&senders[0], [ACCEPTED].into_iter().chain(ids.into_iter().map(token)));
    let (text, ended, _) = read(events).expect("an answer");
    assert_eq!(text, "The quick brown fox jumps over the ");
    assert_eq!(ended.matched, Some(Matched::StopString("lazy d".to_owned())));
    wait_until("the engine is cancelled", || cancelled.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_deadline_and_a_caller_that_is_gone_end_the_request() {
    let Started { engine, senders, cancelled, .. } = start(3);
    let soon = Some(Instant::now() + Duration::from_millis(100));
    let running = submit(&engine, request(&[]), soon);
    send(&senders[0], [ACCEPTED, token(500)]);
    assert_eq!(read(running).expect("an answer").1.reason, FinishReason::Deadline);
    let waiting = submit(&engine, request(&[]), soon);
    assert!(matches!(read(waiting), Err(RequestError::DeadlineInQueue)));
    drop(submit(&engine, request(&[]), None));
    wait_until("all are cancelled", || cancelled.load(Ordering::SeqCst) == 3);
    assert_eq!(engine.gauges().queued, 0);
}

#[test]
fn the_queue_is_limited_above_the_engine() {
    let Started { engine, senders, .. } = start(3);
    let prepare = || request(&[]).prepare(engine.model()).expect("a valid request");
    let held = [(); 2].map(|()| engine.submit(prepare(), None).expect("room"));
    assert!(matches!(engine.submit(prepare(), None), Err(RequestError::QueueFull { limit: 2 })));
    send(&senders[0], [ACCEPTED, token(2)]);
    let [first, _waiting] = held;
    read(first).expect("an answer");
    engine.submit(prepare(), None).expect("room");
}

#[test]
fn a_broken_engine_ends_the_request_so_that_another_can_resume_it() {
    let Started { engine, senders, .. } = start(1);
    let events = submit(&engine, request(&[]), None);
    send(&senders[0], [ACCEPTED, token(500), Report::Broken]);
    assert!(matches!(read(events), Err(RequestError::EngineFailed)));
    assert!(matches!(
        engine.submit(request(&[]).prepare(engine.model()).expect("valid"), None),
        Err(RequestError::EngineFailed)
    ));
}

#[test]
fn reports_that_contradict_the_request_fail_it() {
    let logprobs = |logprob, top: &[(u32, f32)]| Some(Logprobs { logprob, top: top.to_vec() });
    let with = |logprobs| Report::Token(0, Chosen { id: 500, logprobs });
    let prompt = |id| Report::Prompt(vec![(id, Logprobs { logprob: -1.0, top: Vec::new() })]);
    let plain = Returns { token_ids: true, ..Returns::default() };
    let scored = Returns { logprobs: Some(1), ..plain };
    let of_prompt = Returns { prompt_logprobs: Some(0), ..plain };
    let end = |reason, tokens| Report::End(0, reason, tokens);
    let cases: Vec<(&Returns, Vec<Report>)> = vec![
        (&plain, vec![Report::Accepted { prompt: 4, cached: 0 }]),
        (&plain, vec![Report::Accepted { prompt: 3, cached: 4 }]),
        (&plain, vec![ACCEPTED, token(49_152)]),
        (&plain, vec![ACCEPTED, Report::Token(1, Chosen { id: 500, logprobs: None })]),
        (&plain, vec![ACCEPTED, with(logprobs(-1.0, &[]))]),
        (&plain, vec![ACCEPTED, prompt(200)]),
        (&plain, vec![ACCEPTED, token(500), end(FinishReason::Stop, 1)]),
        (&plain, vec![ACCEPTED, token(500), end(FinishReason::Length, 1)]),
        (&plain, vec![ACCEPTED, token(500), end(FinishReason::GrammarLimit, 1)]),
        (&plain, vec![ACCEPTED, token(500), end(FinishReason::Error, 2)]),
        (&scored, vec![ACCEPTED, token(500)]),
        (&scored, vec![ACCEPTED, with(logprobs(0.5, &[]))]),
        (&scored, vec![ACCEPTED, with(logprobs(f32::NAN, &[]))]),
        (&scored, vec![ACCEPTED, with(logprobs(-1.0, &[(500, -1.0), (2, -2.0)]))]),
        (&scored, vec![ACCEPTED, with(logprobs(-1.0, &[(49_152, -1.0)]))]),
        (&of_prompt, vec![ACCEPTED, token(500)]),
        (&of_prompt, vec![ACCEPTED, prompt(200), prompt(300), prompt(300)]),
        (&of_prompt, vec![ACCEPTED, prompt(300)]),
        (&plain, vec![token(500)]),
        (&plain, vec![end(FinishReason::Error, 0)]),
        (&plain, vec![ACCEPTED, ACCEPTED]),
    ];
    let mut texts = Vec::new();
    for (returns, reports) in cases {
        let Started { engine, senders, contradictions, .. } = start(1);
        let asked = GenerateRequest { returns: *returns, ..request(&[]) };
        let events = submit(&engine, asked, None);
        send(&senders[0], reports.clone());
        assert!(matches!(read(events), Err(RequestError::EngineFailed)), "{reports:?}");
        texts.push(contradictions.lock().expect("no panic")[0].to_string());
    }
    error_texts::check_rows("engine/contradiction", texts);
}

#[test]
fn a_stop_token_before_the_least_number_of_tokens_contradicts_the_request() {
    let Started { engine, senders, contradictions, .. } = start(1);
    let stop = StopOptions { max_new_tokens: Some(64), min_new_tokens: 3, ..StopOptions::default() };
    let events = submit(&engine, GenerateRequest { stop, ..request(&[]) }, None);
    send(&senders[0], [ACCEPTED, token(500), token(500), token(2)]);
    assert!(matches!(read(events), Err(RequestError::EngineFailed)));
    let text = contradictions.lock().expect("no panic")[0].to_string();
    assert_eq!(text, "sent a stop token after 2 tokens, requested at least 3");
}

/// An engine with the same grammars chooses no token beyond them: a stop token only after a whole text.
#[test]
fn a_token_that_the_grammar_does_not_allow_contradicts_the_request() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    let ids = |text: &str| tokenizer.encode(text, false).expect("ids");
    let (number, word) = (ids("7"), ids("a"));
    for (tokens, error) in [
        (vec![number[0], 2], None),
        (vec![2], Some(2)),
        (vec![number[0], word[0]], Some(word[0])),
        (vec![number[0], number[0], number[0], 2], None),
    ] {
        let Started { engine, senders, contradictions, .. } = start(1);
        let grammar = Some(GrammarKind::Regex("7|77+".to_owned()).into());
        let events = submit(&engine, GenerateRequest { grammar, ..request(&[]) }, None);
        send(&senders[0], [ACCEPTED].into_iter().chain(tokens.iter().map(|&id| token(id))));
        match (read(events), error) {
            (Ok((text, finished, _)), None) => {
                assert_eq!((text, finished.reason), ("7".repeat(tokens.len() - 1), FinishReason::Stop));
            }
            (Err(RequestError::EngineFailed), Some(id)) => {
                let text = contradictions.lock().expect("no panic")[0].to_string();
                assert_eq!(text, format!("sent the token id {id}, which the grammar does not allow"));
            }
            (other, _) => panic!("{tokens:?}: {other:?}"),
        }
    }
}

#[test]
fn an_end_within_the_grammar_contradicts_the_request() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    let number = tokenizer.encode("7", false).expect("ids")[0];
    for (count, is_whole) in [(0, false), (1, false), (2, true), (3, true)] {
        let Started { engine, senders, contradictions, .. } = start(1);
        let grammar = Some(GrammarKind::Regex("777*".to_owned()).into());
        let events = submit(&engine, GenerateRequest { grammar, ..request(&[]) }, None);
        let end = Report::End(0, FinishReason::Stop, count);
        send(&senders[0], [ACCEPTED].into_iter().chain(vec![token(number); count]).chain([end]));
        assert_eq!(read(events).is_ok(), is_whole, "{count}");
        let texts: Vec<_> = contradictions.lock().expect("no panic").iter().map(Contradiction::to_string).collect();
        let text = format!("ended the output after {count} tokens, within its grammar");
        assert_eq!(texts, if is_whole { vec![] } else { vec![text] });
    }
}

/// Each output ends once, also those of a resumed request, and then comes the summary.
#[test]
fn a_deadline_ends_every_output_that_has_not_ended() {
    let Started { engine, senders, .. } = start(1);
    let asked = request(&[]);
    let sampling = SamplingOptions { n: Some(3), ..asked.sampling.clone() };
    let soon = Some(Instant::now() + Duration::from_millis(100));
    let mut events = submit(&engine, GenerateRequest { sampling, ..asked }, soon);
    let at = |output, id| Report::Token(output, Chosen { id, logprobs: None });
    send(&senders[0], [ACCEPTED, at(1, 500), at(0, 2), at(1, 600)]);
    let mut reasons = Vec::new();
    loop {
        match events.blocking_recv().expect("a summary comes last") {
            Event::Finished(finished) => reasons.push(finished.reason),
            Event::Summary(summary) => break assert_eq!(summary.completion_tokens, 3),
            _ => {}
        }
    }
    assert_eq!(reasons, [FinishReason::Stop, FinishReason::Deadline, FinishReason::Deadline]);
}

#[test]
fn a_token_for_which_the_caller_has_no_room_is_refused() {
    let model = served_with_all_tokens();
    let Started { engine, .. } = start(1);
    let prepared = request(&[]).prepare(engine.model()).expect("a valid request");
    let lifecycle = Lifecycle::default();
    lifecycle.serve();
    let slot = Queue::new(2, lifecycle, EVENTS, "model").reserve(&Arc::from("caller")).expect("room");
    let (answer, mut events) = Answer::new(prepared, slot, None, Arc::default());
    let mut answer = CheckedAnswer::new(Box::new(answer), &model);
    answer.accept(PROMPT.len(), 0).expect("accepted");
    let mut push = || answer.push(0, Chosen { id: 500, logprobs: None });
    let pushed = (0..64).take_while(|_| push().is_ok()).count();
    assert!(pushed > 0 && pushed < 64, "{pushed}");
    assert!(push().expect_err("no room").to_string().contains("no room"));
    answer.abort();
    drop(answer);
    let mut deltas = 0;
    while let Some(event) = events.blocking_recv() {
        deltas += usize::from(matches!(event, Event::Delta(_)));
    }
    assert_eq!(deltas, pushed, "no token is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_is_served_over_grpc() {
    let Started { engine, senders, .. } = start(1);
    let service = Generation::serving(engine, ServeArgs::default()).await;
    let mut client = GenerateServiceClient::new(service.running.channel().await);
    let input = pb::generate_request::Input::TokenIds(pb::TokenIds { ids: PROMPT.to_vec() });
    let request = pb::GenerateRequest { input: Some(input), ..pb::GenerateRequest::default() };
    let ids = service.tokenizer.encode("Hello there.", false).expect("ids");
    send(&senders[0], [ACCEPTED].into_iter().chain(ids.into_iter().chain([2]).map(token)));
    let mut stream = client.generate(request).await.expect("a stream").into_inner();
    let mut text = String::new();
    while let Some(response) = stream.message().await.expect("an event") {
        match response.event.expect("an event") {
            pb::generate_response::Event::Delta(delta) => text += &delta.text,
            pb::generate_response::Event::Finished(finished) => {
                assert_eq!(finished.reason(), pb::FinishReason::Stop);
            }
            _ => {}
        }
    }
    assert_eq!(text, "Hello there.");
}

/// The deadline's event arrives although the engine computes a long step.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_engine_does_not_delay_the_end_at_the_deadline() {
    let Started { engine, senders, .. } = start(2);
    let service = Generation::serving(engine, ServeArgs::default()).await;
    let client = GenerateServiceClient::new(service.running.channel().await);
    let ask = |reports: [Report; 2], sender: usize| {
        send(&senders[sender], reports);
        let input = pb::generate_request::Input::TokenIds(pb::TokenIds { ids: PROMPT.to_vec() });
        let sampling = Some(pb::Sampling { n: Some(2), seed: Some(7), ..pb::Sampling::default() });
        let message = pb::GenerateRequest { input: Some(input), sampling, ..pb::GenerateRequest::default() };
        let mut request = tonic::Request::new(message);
        request.set_timeout(Duration::from_secs(1));
        request
    };
    let busy = || Report::Busy(Duration::from_secs(5));
    let running = ask([ACCEPTED, busy()], 0);
    let mut stream = client.clone().generate(running).await.expect("a stream").into_inner();
    let (mut ended, mut summary) = (Vec::new(), None);
    while let Some(response) = stream.message().await.expect("the stream ends before its deadline") {
        match response.event.expect("an event") {
            pb::generate_response::Event::Finished(finished) => ended.push((finished.output_index, finished.reason())),
            pb::generate_response::Event::Summary(last) => summary = Some(last),
            _ => {}
        }
    }
    assert_eq!(ended, [(0, pb::FinishReason::Deadline), (1, pb::FinishReason::Deadline)]);
    let summary = summary.expect("a summary");
    let usage = summary.usage.expect("usage");
    assert_eq!((summary.seed, usage.prompt_tokens, usage.completion_tokens), (7, PROMPT.len() as u32, 0));

    let waiting = ask([busy(), ACCEPTED], 1);
    let answer = client.clone().generate(waiting).await;
    let status = match answer {
        Ok(stream) => {
            let mut stream = stream.into_inner();
            loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it is not accepted"),
                    Err(status) => break status,
                }
            }
        }
        Err(status) => status,
    };
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (tonic::Code::DeadlineExceeded, "DEADLINE_IN_QUEUE"));
}
