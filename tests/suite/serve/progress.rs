//! Generate sends an event at least once a second, and health follows the engine's steps.

use std::time::Duration;

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_core::engine::{Config, Engine};
use tandem_core::models::Model;
use tandem_tests::fakes::model::Echo;
use tandem_tests::served_model::served_model;
use tandem_tests::{Generation, default_model};
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Serves a model whose steps take this long. It runs one request at a time and computes four prompt
/// tokens in a step.
async fn serve(step: Duration) -> Generation {
    let load = move |_: &Config| Ok((served_model(), Box::new(Echo::paced(step)) as Box<dyn Model>));
    let config = Config { max_running: 1, prefill_chunk: 4, kv_memory: Some(1 << 20), ..Config::new(default_model()) };
    let (engine, _thread) = Engine::start_with(config, load).expect("starts");
    Generation::serving(engine, ServeArgs::default()).await
}

fn request() -> pb::GenerateRequest {
    pb::GenerateRequest {
        input: Some(Input::TokenIds(pb::TokenIds { ids: (1..9).collect() })),
        stop: Some(pb::Stop { max_new_tokens: Some(1), ignore_eos: true, ..pb::Stop::default() }),
        ..pb::GenerateRequest::default()
    }
}

/// The progress events of an answer, and the longest time without an event.
#[derive(Debug, Default)]
struct Answer {
    /// The progress events before `accepted`.
    queued: Vec<pb::Progress>,
    /// The progress events after it.
    running: Vec<pb::Progress>,
    silence: Duration,
}

async fn ask(channel: Channel) -> Answer {
    let mut events = GenerateServiceClient::new(channel).generate(request()).await.expect("accepted").into_inner();
    let (mut answer, mut is_accepted, mut last) = (Answer::default(), false, Instant::now());
    while let Some(response) = events.message().await.expect("an event") {
        answer.silence = answer.silence.max(last.elapsed());
        last = Instant::now();
        match response.event.expect("an event") {
            Event::Accepted(_) => is_accepted = true,
            Event::Progress(progress) if is_accepted => answer.running.push(progress),
            Event::Progress(progress) => answer.queued.push(progress),
            _ => {}
        }
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_another_event_gets_progress_each_second() {
    let service = serve(Duration::from_millis(2500)).await;
    let channel = service.running.channel().await;
    let first = tokio::spawn(ask(channel.clone()));
    while service.engine.gauges().running == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    let waits: Vec<_> = (0..2).map(|_| tokio::spawn(ask(channel.clone()))).collect();
    let first = first.await.expect("no panic");
    // Two steps compute the prompt.
    let computed: Vec<_> = first.running.iter().map(|progress| progress.computed_prompt_tokens).collect();
    assert!(computed.contains(&0) && computed.contains(&4), "{computed:?}");
    let age =
        |progress: &pb::Progress| Duration::try_from(progress.last_step_age.expect("an age")).expect("not negative");
    assert!(first.running.iter().any(|progress| age(progress) > Duration::from_secs(1)), "{first:?}");
    assert!(first.running.iter().all(|progress| progress.queue_place.is_none()), "{first:?}");
    let mut places = Vec::new();
    for wait in waits {
        let answer = wait.await.expect("no panic");
        assert!(answer.queued.len() >= 2, "{answer:?}");
        eprintln!("longest time without an event: {:?}", answer.silence);
        places.push(answer.queued[0].queue_place);
    }
    // Two that arrive together can both see the other.
    assert!(places.contains(&Some(2)) && places.iter().all(|place| matches!(place, Some(1 | 2))), "{places:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_not_serving_while_a_step_does_not_end() {
    let service = serve(Duration::from_secs(34)).await;
    let channel = service.running.channel().await;
    let health = async || {
        let answer = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
        answer.expect("an answer").into_inner().status()
    };
    let answer = tokio::spawn(ask(channel.clone()));
    let start = Instant::now();
    for expected in [ServingStatus::Serving, ServingStatus::NotServing, ServingStatus::Serving] {
        while health().await != expected {
            assert!(start.elapsed() < Duration::from_secs(120), "no {expected:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    answer.abort();
    service.engine.lifecycle().stop();
}
