//! ControlService: the state that an operator reads from a generation server, and the operator's
//! actions.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use gen_svc::command::CommandError;
use gen_svc::grpc;
use gen_svc::serve::{Control, Server, StallLimits};
use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::control_service_client::ControlServiceClient;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::serve::{SecureListener, Security, SecurityArgs, ServeArgs};
use tandem_common::status::Reason;
use tandem_core::cache::StateUsage;
use tandem_core::engine::{Config, Engine};
use tandem_core::error::LoadError;
use tandem_core::lifecycle::ServerState;
use tandem_core::models::Model;
use tandem_core::request::ServedModel;
use tandem_tests::failure::{failed, is_failed};
use tandem_tests::fakes::model::Echo;
use tandem_tests::served_model::served_model;
use tandem_tests::{Generation, Running, default_model, error_texts, wait_until};
use tandem_tests_full::faulty_model::{DEVICE_LOST, FaultyModel};
use tandem_torch::Libtorch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

type Clients = (Generation, ControlServiceClient<Channel>, GenerateServiceClient<Channel>);

async fn serve() -> Clients {
    clients_of(Generation::start().await).await
}

async fn clients_of(service: Generation) -> Clients {
    let control = Endpoint::from_shared(format!("http://{}", service.control)).expect("an address");
    let control = ControlServiceClient::new(control.connect().await.expect("it answers"));
    let generate = GenerateServiceClient::new(service.running.channel().await);
    (service, control, generate)
}

fn request(max_new_tokens: u32) -> pb::GenerateRequest {
    let prompt =
        "Once upon a time there was a girl who lived by the sea, and every morning she went out to swim.".repeat(2);
    pb::GenerateRequest {
        input: Some(Input::Prompt(prompt)),
        stop: Some(pb::Stop { max_new_tokens: Some(max_new_tokens), ignore_eos: true, ..pb::Stop::default() }),
        ..pb::GenerateRequest::default()
    }
}

async fn cached_tokens(generate: &mut GenerateServiceClient<Channel>) -> u32 {
    let mut answer = generate.generate(request(2)).await.expect("accepted").into_inner();
    let mut cached = 0;
    while let Some(response) = answer.message().await.expect("no error") {
        if let Some(pb::generate_response::Event::Summary(summary)) = response.event {
            cached = summary.usage.expect("usage").cached_tokens;
        }
    }
    cached
}

#[tokio::test(flavor = "multi_thread")]
async fn get_server_and_get_load_report_the_engine_state() {
    let (service, mut control, mut generate) = serve().await;
    let server = control.get_server(pb::GetServerRequest {}).await.expect("an answer").into_inner();
    assert_eq!(server.state(), pb::ServerState::Serving);
    assert_eq!(server.model.expect("a model").id, service.engine.model().id);
    assert_eq!((server.max_queue, server.max_running, server.prefill_chunk), (256, 64, 512));
    assert!(server.uptime_seconds > 0.0 && !server.version.is_empty());

    let idle = control.get_load(pb::GetLoadRequest {}).await.expect("an answer").into_inner();
    assert_eq!((idle.queued, idle.running, idle.generated_tokens), (0, 0, 0));
    let mut answer = generate.generate(request(4_000)).await.expect("accepted").into_inner();
    // The first step is counted before the second one begins.
    let mut deltas = 0;
    while deltas < 2 {
        let event = answer.message().await.expect("no error").expect("more").event;
        deltas += usize::from(matches!(event, Some(pb::generate_response::Event::Delta(_))));
    }
    let busy = control.get_load(pb::GetLoadRequest {}).await.expect("an answer").into_inner();
    let (idle, cache) = (idle.kv_cache.expect("a cache"), busy.kv_cache.expect("a cache"));
    assert_eq!((busy.queued, busy.running), (0, 1));
    assert!(busy.generated_tokens > 0 && cache.held_blocks > 0);
    assert_eq!(busy.recurrent_states, None);
    assert_eq!((cache.block_size, cache.total_blocks), (16, idle.total_blocks));
}

#[tokio::test(flavor = "multi_thread")]
async fn load_of_a_model_with_recurrent_states_counts_them() {
    let model: Box<dyn Model> = Box::new(Echo::of_block(16).with_states(64));
    let load = |_: &Config| Ok((served_model(), model));
    let config = Config { kv_memory: Some(64 << 10), ..Config::new(default_model()) };
    let (engine, _thread) = Engine::start_with(config, load).expect("starts");
    let (service, mut control, mut generate) =
        clients_of(Generation::serving(engine, ServeArgs::default()).await).await;
    let input = Some(Input::TokenIds(pb::TokenIds { ids: (1..40).collect() }));
    let mut answer =
        generate.generate(pb::GenerateRequest { input, ..request(2) }).await.expect("accepted").into_inner();
    while answer.message().await.expect("no error").is_some() {}
    wait_until("the state is kept", || matches!(service.engine.gauges().states, StateUsage { held: 0, kept: 1.., .. }));
    let load = control.get_load(pb::GetLoadRequest {}).await.expect("an answer").into_inner();
    let (states, found) = (service.engine.gauges().states, load.recurrent_states.expect("states"));
    let counts = [found.total_states, found.held_states, found.kept_states].map(|count| count as usize);
    assert_eq!(counts, [states.total, states.held, states.kept]);
    assert!(states.total > 2 && states.held == 0, "{states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_prefix_is_computed_again() {
    let (_service, mut control, mut generate) = serve().await;
    assert_eq!(cached_tokens(&mut generate).await, 0);
    assert!(cached_tokens(&mut generate).await > 0);
    let flushed = control.flush_prefix_cache(pb::FlushPrefixCacheRequest {}).await.expect("an answer").into_inner();
    assert!(flushed.flushed_blocks > 0);
    let load = control.get_load(pb::GetLoadRequest {}).await.expect("an answer").into_inner();
    assert_eq!(load.kv_cache.expect("a cache").kept_blocks, 0);
    assert_eq!(cached_tokens(&mut generate).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_server_finishes_running_requests_and_exits() {
    let (service, mut control, mut generate) = serve().await;
    let mut answer = generate.generate(request(40)).await.expect("accepted").into_inner();
    answer.message().await.expect("no error").expect("accepted");
    control.drain(pb::DrainRequest {}).await.expect("an answer");
    let refused = service.engine.reserve(&"caller".into()).expect_err("a draining server rejects new requests");
    assert_eq!(refused.reason(), Reason::Draining);
    error_texts::check("control/DRAINING", refused);
    let mut reason = pb::FinishReason::Unspecified;
    while let Some(response) = answer.message().await.expect("no error") {
        if let Some(pb::generate_response::Event::Finished(finished)) = response.event {
            reason = finished.reason();
        }
    }
    assert_eq!(reason, pb::FinishReason::Length);
    tokio::time::timeout(Duration::from_secs(20), service.running.ended()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_refused_by_a_full_queue_before_its_input_is_read() {
    let (service, _control, mut generate) = serve().await;
    let call = pb::GenerateRequest { input: Some(Input::HfMessagesJson("[".to_owned())), ..request(1) };
    let slots = |caller: &str| std::iter::from_fn(|| service.engine.reserve(&caller.into()).ok()).collect::<Vec<_>>();
    let held = [slots("one"), slots("two")];
    let refused = generate.generate(call.clone()).await;
    is_failed("control/QUEUE_FULL", refused, Code::ResourceExhausted, "QUEUE_FULL", None);
    drop(held);
    let read = generate.generate(call).await;
    is_failed("control/messages", read, Code::InvalidArgument, "INVALID_REQUEST", Some("hf_messages_json"));
}

/// Loads a model that fails at the first step.
fn broken(_: &Config) -> Result<(ServedModel, Box<dyn Model>), LoadError> {
    Ok((served_model(), Box::new(Echo::default().before_step(|| panic!("as it is meant to")))))
}

fn small() -> Config {
    Config { kv_memory: Some(1 << 20), ..Config::new(default_model()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_reports_a_failed_engine_and_still_drains() {
    let (engine, _thread) = Engine::start_with(small(), broken).expect("starts");
    // The delay keeps the failed server until the test has looked at it.
    let args = ServeArgs { drain_delay_seconds: 3600, ..ServeArgs::default() };
    let (service, mut control, mut generate) = clients_of(Generation::serving(engine, args).await).await;
    let input = Some(Input::TokenIds(pb::TokenIds { ids: vec![1, 2] }));
    let request = pb::GenerateRequest { input, ..pb::GenerateRequest::default() };
    let mut answer = generate.generate(request.clone()).await.expect("accepted").into_inner();
    while let Ok(Some(_)) = answer.message().await {}
    let further = generate.generate(request).await;
    is_failed("control/ENGINE_FAILED", further, Code::Internal, "ENGINE_FAILED", None);
    let server = control.get_server(pb::GetServerRequest {}).await.expect("an answer").into_inner();
    assert_eq!(server.state(), pb::ServerState::Failed);
    // The health service reports the failure soon.
    let mut health = HealthClient::new(service.running.channel().await);
    let mut changes = health.watch(HealthCheckRequest::default()).await.expect("known").into_inner();
    let reported = async {
        while changes.message().await.expect("no error").expect("a state").status() != ServingStatus::NotServing {}
    };
    tokio::time::timeout(Duration::from_secs(20), reported).await.expect("the failure is reported");
    drop(changes);
    drop(answer);
    control.drain(pb::DrainRequest {}).await.expect("an answer");
    tokio::time::timeout(Duration::from_secs(20), service.running.ended()).await.expect("it ends");
}

/// Connects once the address listens.
async fn connected(address: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Returns the status line of a probe.
async fn probe(address: SocketAddr, path: &str) -> String {
    let connected = tokio::time::timeout(Duration::from_secs(20), connected(address));
    let mut stream = connected.await.expect("it listens");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("it answers");
    response.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_whose_device_failed_reports_it_and_ends_with_an_error() {
    let mut steps = 0;
    let (model, _) = FaultyModel::boxed(&served_model(), move |_| {
        steps += 1;
        (steps > 4).then_some(DEVICE_LOST)
    });
    let load = |_: &Config| Ok((served_model(), model));
    let (engine, thread) = Engine::start_with(Config::new(default_model()), load).expect("starts");
    let probes = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let args = ServeArgs { drain_delay_seconds: 3600, health_listen: Some(probes), ..ServeArgs::default() };
    let (service, mut control, mut generate) = clients_of(Generation::serving(engine.clone(), args).await).await;
    assert!(probe(probes, "/livez").await.contains("200"));

    let input = Some(Input::TokenIds(pb::TokenIds { ids: vec![1, 2] }));
    let request = pb::GenerateRequest { input, ..pb::GenerateRequest::default() };
    let mut answer = generate.generate(request).await.expect("accepted").into_inner();
    let mut deltas = 0;
    let ended = loop {
        match answer.message().await {
            Ok(Some(response)) => {
                deltas += usize::from(matches!(response.event, Some(pb::generate_response::Event::Delta(_))));
            }
            Ok(None) => panic!("a failed output has no complete end"),
            Err(status) => break failed(&status),
        }
    };
    assert_eq!((ended.code, ended.reason.as_str()), (Code::Internal, "ENGINE_FAILED"));
    assert!(deltas > 0, "the failure comes during the answer");
    engine.lifecycle().failed().await;
    while !probe(probes, "/livez").await.contains("503") {}

    control.drain(pb::DrainRequest {}).await.expect("the delay ends");
    drop((answer, generate, control));
    tokio::time::timeout(Duration::from_secs(20), service.running.ended()).await.expect("it ends");
    let ended = gen_svc::serve::end(engine, thread).await.expect_err("the program exits with an error");
    assert!(matches!(ended, CommandError::EngineFailed), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_whose_device_failed_ends_by_itself() {
    let (model, _) = FaultyModel::boxed(&served_model(), |_| Some(DEVICE_LOST));
    let load = |_: &Config| Ok((served_model(), model));
    let (engine, _thread) = Engine::start_with(Config::new(default_model()), load).expect("starts");
    let (service, control, mut generate) = clients_of(Generation::serving(engine, ServeArgs::default()).await).await;
    let input = Some(Input::TokenIds(pb::TokenIds { ids: vec![1, 2] }));
    let request = pb::GenerateRequest { input, ..pb::GenerateRequest::default() };
    // The server may end before the stream begins.
    if let Ok(answer) = generate.generate(request).await {
        let mut answer = answer.into_inner();
        while let Ok(Some(_)) = answer.message().await {}
    }
    drop((generate, control));
    tokio::time::timeout(Duration::from_secs(20), service.running.ended()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_a_step_that_does_not_end_and_recovers_after_it() {
    let (go, gate) = mpsc::channel::<()>();
    // Once the test has dropped its sender, no step waits.
    let (model, _) = FaultyModel::boxed(&served_model(), move |_| {
        let _ = gate.recv();
        None
    });
    let load = |_: &Config| Ok((served_model(), model));
    let (engine, _thread) = Engine::start_with(Config::new(default_model()), load).expect("starts");
    let [slow, most, check_interval] = [500, 1_000, 20].map(Duration::from_millis);
    let server = Server::of(engine, 1 << 20).with_stall_limits(StallLimits { slow, most, check_interval });
    let probes = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (running, _control) = serving(server, ServeArgs { health_listen: Some(probes), ..ServeArgs::default() }).await;
    let mut health = HealthClient::new(running.channel().await);
    let watched = HealthCheckRequest { service: grpc::SERVICE_NAME.to_owned() };
    let mut changes = health.watch(watched).await.expect("known").into_inner();
    let mut until = async |status| {
        while changes.message().await.expect("no error").expect("a state").status() != status {}
    };
    until(ServingStatus::Serving).await;

    let mut generate = GenerateServiceClient::new(running.channel().await);
    let input = Some(Input::TokenIds(pb::TokenIds { ids: vec![1, 2] }));
    let request = pb::GenerateRequest { input, ..request(4) };
    let mut answer = generate.generate(request).await.expect("accepted").into_inner();
    until(ServingStatus::NotServing).await;
    while !probe(probes, "/livez").await.contains("503") {}
    drop(go);
    until(ServingStatus::Serving).await;
    while !probe(probes, "/livez").await.contains("200") {}
    while let Some(response) = answer.message().await.expect("no error") {
        assert!(response.event.is_some(), "an event");
    }
    running.stop().await;
}

/// Starts a server whose model is not loaded yet.
async fn loading(server: Server) -> (Running, ControlServiceClient<Channel>) {
    serving(server, ServeArgs::default()).await
}

/// Starts a server, and connects to its control service.
async fn serving(server: Server, args: ServeArgs) -> (Running, ControlServiceClient<Channel>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let running = Running::start(move |served, shutdown| async move {
        let security = Security::open(&SecurityArgs::default())?;
        let control = Control { listener, security: security.clone() };
        gen_svc::serve::serve(server, SecureListener { listener: served, security }, Some(control), &args, shutdown)
            .await
    })
    .await;
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    (running, ControlServiceClient::new(endpoint.connect().await.expect("it answers")))
}

async fn load(server: &Server) -> Result<Engine, LoadError> {
    let server = server.clone();
    let config = Config { threads: 1, ..Config::new(default_model()) };
    let load = move || server.load(config, &Libtorch, 1 << 20).map(|(engine, _)| engine);
    tokio::task::spawn_blocking(load).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_during_model_load_ends_the_server_without_serving() {
    let server = Server::default();
    let (running, mut control) = loading(server.clone()).await;
    control.drain(pb::DrainRequest {}).await.expect("an answer");
    let cancelled = load(&server).await;
    assert!(matches!(cancelled, Err(LoadError::Cancelled)), "{cancelled:?}");
    // A load that finishes before it notices the drain.
    let (engine, _thread) = server.load_with(small(), 1 << 20, broken).expect("loads");
    assert_eq!(server.lifecycle().state(), ServerState::Draining);
    assert_eq!(engine.reserve(&"caller".into()).expect_err("no new requests").reason(), Reason::Draining);
    drop(control);
    tokio::time::timeout(Duration::from_secs(20), running.ended()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_during_model_load_are_rejected_as_loading() {
    let server = Server::default();
    let (running, mut control) = loading(server.clone()).await;
    let mut generate = GenerateServiceClient::new(running.channel().await);
    let mut health = HealthClient::new(running.channel().await);
    let request_of = || HealthCheckRequest { service: grpc::SERVICE_NAME.to_owned() };

    is_failed("serve/LOADING", generate.generate(request(1)).await, Code::Unavailable, "LOADING", None);
    assert_eq!(health.check(request_of()).await.expect("known").into_inner().status(), ServingStatus::NotServing);
    let state = control.get_server(pb::GetServerRequest {}).await.expect("an answer").into_inner();
    assert_eq!((state.state(), state.model), (pb::ServerState::Loading, None));
    let no_load = control.get_load(pb::GetLoadRequest {}).await;
    is_failed("control/no-load", no_load, Code::Unavailable, "LOADING", None);

    let mut changes = health.watch(request_of()).await.expect("known").into_inner();
    assert_eq!(changes.message().await.expect("no error").expect("a state").status(), ServingStatus::NotServing);
    load(&server).await.expect("loads");
    assert_eq!(server.lifecycle().state(), ServerState::Serving);
    assert_eq!(changes.message().await.expect("no error").expect("a state").status(), ServingStatus::Serving);
    drop(changes);
    cached_tokens(&mut generate).await;
    let state = control.get_server(pb::GetServerRequest {}).await.expect("an answer").into_inner();
    assert_eq!(state.state(), pb::ServerState::Serving);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_and_generate_services_have_separate_listeners() {
    let (service, _, _) = serve().await;
    let mut control = ControlServiceClient::new(service.running.channel().await);
    let status = control.drain(pb::DrainRequest {}).await.expect_err("is served elsewhere");
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unimplemented, "UNKNOWN_METHOD"));
    let other = Endpoint::from_shared(format!("http://{}", service.control)).expect("an address");
    let mut generate = GenerateServiceClient::new(other.connect().await.expect("it answers"));
    let status = generate.generate(request(1)).await.expect_err("is served elsewhere");
    assert_eq!(failed(&status).code, Code::Unimplemented);
}
