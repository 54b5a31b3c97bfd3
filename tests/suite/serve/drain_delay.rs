//! The time between the request to shut down and the drain.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tandem_common::pb::generate::v1::control_service_client::ControlServiceClient;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{DrainRequest, GetLoadedModelRequest};
use tandem_common::pb::render::v1::ListModelsRequest;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_core::engine::Config;
use tandem_tests::Generation;
use tandem_tests::{Running, default_model, render_service_with_args};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Streaming;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Longer than a test may take.
const ENDLESS: u64 = 600;
/// The time for an event that takes milliseconds.
const SOON: Duration = Duration::from_secs(30);

fn args(drain_delay_seconds: u64) -> ServeArgs {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    ServeArgs { drain_delay_seconds, health_listen: Some(free), ..ServeArgs::default() }
}

async fn render_service(args: &ServeArgs) -> Running {
    render_service_with_args(&[default_model()], args.clone()).await
}

async fn generation_service(args: &ServeArgs) -> Generation {
    Generation::start_with_args(Config { threads: 1, ..Config::new(default_model()) }, args.clone()).await
}

/// Returns the status code of a probe.
async fn probe(address: SocketAddr, page: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(format!("GET {page} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("it answers");
    response.split(' ').nth(1).expect("a status").parse().expect("a number")
}

async fn wait_for(changes: &mut Streaming<HealthCheckResponse>, wanted: ServingStatus) {
    let reached = async { while changes.message().await.expect("no error").expect("a state").status() != wanted {} };
    tokio::time::timeout(SOON, reached).await.expect("the state is reported");
}

/// Requests the shutdown of a ready service, and waits until its health is NOT_SERVING.
async fn request_shutdown(running: &Running, args: &ServeArgs) {
    let probes = args.health_listen.expect("set");
    let mut health = HealthClient::new(running.channel().await);
    let mut changes = health.watch(HealthCheckRequest::default()).await.expect("known").into_inner();
    wait_for(&mut changes, ServingStatus::Serving).await;
    assert_eq!((probe(probes, "/livez").await, probe(probes, "/readyz").await), (200, 200));
    running.request_shutdown();
    wait_for(&mut changes, ServingStatus::NotServing).await;
    assert_eq!((probe(probes, "/livez").await, probe(probes, "/readyz").await), (200, 503));
}

async fn ends(running: Running) {
    tokio::time::timeout(SOON, running.ended()).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn render_service_accepts_calls_until_the_drain_delay_is_over() {
    let args = args(2);
    let running = render_service(&args).await;
    let start = Instant::now();
    request_shutdown(&running, &args).await;
    let mut client = RegistryServiceClient::new(running.channel().await);
    client.list_models(ListModelsRequest::default()).await.expect("a new connection is served");
    drop(client);
    ends(running).await;
    assert!(start.elapsed() >= args.drain_delay(), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_service_accepts_calls_until_the_drain_delay_is_over() {
    let args = args(2);
    let service = generation_service(&args).await;
    let start = Instant::now();
    request_shutdown(&service.running, &args).await;
    service.engine.reserve(&"caller".into()).expect("the engine accepts requests");
    let mut client = GenerateServiceClient::new(service.running.channel().await);
    client.get_loaded_model(GetLoadedModelRequest::default()).await.expect("a new connection is served");
    drop(client);
    let engine = service.engine.clone();
    ends(service.running).await;
    assert!(start.elapsed() >= args.drain_delay(), "{:?}", start.elapsed());
    engine.reserve(&"caller".into()).expect_err("the engine drains");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_request_ends_the_drain_delay() {
    let args = args(ENDLESS);
    let running = render_service(&args).await;
    request_shutdown(&running, &args).await;
    running.request_shutdown();
    ends(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_call_ends_the_drain_delay() {
    let args = args(ENDLESS);
    let service = generation_service(&args).await;
    request_shutdown(&service.running, &args).await;
    let mut control = ControlServiceClient::connect(format!("http://{}", service.control)).await.expect("it answers");
    control.drain(DrainRequest {}).await.expect("an answer");
    drop(control);
    ends(service.running).await;
}
