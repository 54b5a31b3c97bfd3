//! Several models behind one render service: a task goes only to replicas of its model.

use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use render_svc::adapters::Registry;
use render_svc::args::GenerationArgs;
use render_svc::catalog::{ModelCatalog, Sources};
use render_svc::generation::{Config, GenerationClient};
use render_svc::task::model_names::ModelNames;
use tandem_common::call::Credentials;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateServiceServer, SERVICE_NAME};
use tandem_common::pb::generate::v1::{self as generate, FinishReason};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event as TaskEvent;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::pb::task::v1::task_service_server;
use tandem_common::process::Signal;
use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::fakes::replica::{Replica, accepted, at_once, ended, part};
use tandem_tests::{ModelFolder, Process, Running, serve_catalog_with_generation};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service};
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Returns a replica that answers each request for its model with the model's id.
fn replica(id: &str, tokenizer_sha256: &str) -> Replica {
    let (id, tokenizer_sha256) = (id.to_owned(), tokenizer_sha256.to_owned());
    let model = generate::LoadedModel { id, tokenizer_sha256, ..generate::LoadedModel::default() };
    let known = model.clone();
    let play = move |request: &Request<generate::GenerateRequest>, _| {
        let request = request.get_ref();
        if (&request.model, request.expected_tokenizer_sha256()) != (&known.id, &*known.tokenizer_sha256) {
            return Err(Status::not_found(format!("{} is not {}", request.model, known.id)));
        }
        Ok(at_once([vec![accepted(), part(&known.id, &[1])], ended(FinishReason::Length)].concat()))
    };
    Replica::new(play).with_model(model)
}

/// Two model folders with the same tokenizer, and replicas of the generation service.
struct Fleet {
    folder: TempDir,
    models: [ModelFolder; 2],
    tokenizer_sha256: String,
    addresses: Vec<String>,
    /// Dropping the sender ends the server.
    servers: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Fleet {
    fn new() -> Self {
        let models = ["alpha", "beta"]
            .map(|name| ModelFolder::new(name).with_template("{{ messages[0].content }}").with_tokenizer());
        let model = render_svc::model::Model::load(&models[0].path()).expect("it loads");
        let tokenizer_sha256 = model.tokenizer().expect("a tokenizer").sha256().to_owned();
        let folder = TempDir::new().expect("a folder");
        Self { folder, models, tokenizer_sha256, addresses: Vec::new(), servers: Vec::new() }
    }

    async fn add(&mut self, id: &str) {
        let replica = replica(id, &self.tokenizer_sha256);
        self.add_replica(replica, "127.0.0.1:0").await;
    }

    async fn add_replica(&mut self, replica: Replica, address: &str) {
        let listener = TcpListener::bind(address).await.expect("a free port");
        self.addresses.push(format!("http://{}", listener.local_addr().expect("an address")));
        let server = Server::builder().add_service(GenerateServiceServer::new(replica));
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(async move {
            server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stopped).await.expect("it serves");
        });
        self.servers.push((stop, served));
    }

    /// Ends the first replica, with its connections.
    async fn end_first(&mut self) -> String {
        let (stop, served) = self.servers.remove(0);
        drop(stop);
        served.await.expect("no panic");
        self.addresses.remove(0)
    }

    /// Starts a render service in front of the replicas. `settings` are lines of the second model's
    /// configuration.
    async fn serve(&self, settings: &str) -> (Running, TaskServiceClient<Channel>) {
        let [first, second] = self.models.each_ref().map(|model| model.path().display().to_string());
        self.serve_models(format!("[[models]]\npath = \"{first}\"\n[[models]]\npath = \"{second}\"\n{settings}")).await
    }

    /// Starts a render service with the second model only, under the id "mine".
    async fn serve_second(&self, settings: &str) -> (Running, TaskServiceClient<Channel>) {
        let path = self.models[1].path().display().to_string();
        self.serve_models(format!("[[models]]\npath = \"{path}\"\nid = \"mine\"\n{settings}")).await
    }

    async fn serve_models(&self, text: String) -> (Running, TaskServiceClient<Channel>) {
        let config = self.folder.path().join("models.toml");
        std::fs::write(&config, text).expect("a file");
        let sources = Sources { models: Vec::new(), config: Some(config) };
        let catalog = Arc::new(ModelCatalog::open(sources, Registry::default()).expect("the models load"));
        let generate = self.addresses.iter().map(|address| address.parse().expect("an address")).collect();
        let args = GenerationArgs { generate, generate_patience_seconds: 2, ..GenerationArgs::default() };
        let service = serve_catalog_with_generation(catalog, args, ServeArgs::default()).await;
        let client = TaskServiceClient::new(service.channel().await);
        (service, client)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generate_id_that_no_replica_has_is_reported() {
    let mut fleet = Fleet::new();
    fleet.add("alpha").await;
    let targets = fleet.addresses.iter().map(|address| address.parse().expect("an address")).collect();
    let config = Config {
        targets,
        patience: Duration::from_secs(1),
        max_stall: Duration::from_secs(60),
        credentials: Credentials::default(),
    };
    let client = GenerationClient::connect(&config).expect("no credentials");
    let names = |id: &str| ModelNames {
        id: "mine".to_owned(),
        own: [id.to_owned()].into(),
        tokenizer_sha256: fleet.tokenizer_sha256.clone(),
        ..ModelNames::default()
    };
    let mut availability = client.availability();
    while !availability.serves(&names("alpha")) {
        availability.changed().await;
    }
    assert_eq!(availability.unserved(&names("alpha")), None);
    let problem = availability.unserved(&names("alpha.gguf")).expect("no replica has the id");
    assert!(problem.contains("\"mine\"") && problem.contains("\"alpha\""), "{problem}");
}

/// Runs a task. Returns the answer's text.
async fn ask(mut client: TaskServiceClient<Channel>, model: &str) -> Result<String, Status> {
    let content = Some(chat::chat_message::Content::Text("hello".to_owned()));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    let request = RunTaskRequest {
        model: model.to_owned(),
        conversation: Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() }),
        ..RunTaskRequest::default()
    };
    let mut stream = client.run_task(request).await?.into_inner();
    let mut text = String::new();
    while let Some(response) = stream.message().await? {
        if let Some(TaskEvent::Delta(delta)) = response.event {
            text.push_str(&delta.text);
        }
    }
    Ok(text)
}

#[track_caller]
fn is_unavailable(answer: Result<String, Status>, model: &str) {
    let status = answer.expect_err("no replica of the model");
    assert_eq!(failed(&status).reason, "GENERATION_UNAVAILABLE");
    assert!(status.message().contains(model), "{status}");
    assert!(!status.message().contains("127.0.0.1"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_two_models_go_to_their_replicas() {
    let mut fleet = Fleet::new();
    for id in ["alpha", "beta", "beta", "alpha"] {
        fleet.add(id).await;
    }
    let (_service, client) = fleet.serve("").await;
    for number in 0..100 {
        let model = ["alpha", "beta"][number % 2];
        assert_eq!(ask(client.clone(), model).await.expect("an answer"), model, "task {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_stays_within_the_model() {
    let mut fleet = Fleet::new();
    fleet.add("alpha").await;
    fleet.add("beta").await;
    let (_service, client) = fleet.serve("").await;
    assert_eq!(ask(client.clone(), "alpha").await.expect("an answer"), "alpha");
    fleet.end_first().await;
    for _ in 0..3 {
        is_unavailable(ask(client.clone(), "alpha").await, r#"model "alpha""#);
        assert_eq!(ask(client.clone(), "beta").await.expect("an answer"), "beta");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn model_without_a_replica_is_named_with_the_served_models() {
    let mut fleet = Fleet::new();
    fleet.add("alpha").await;
    let (_service, client) = fleet.serve("").await;
    let start = Instant::now();
    let answer = ask(client.clone(), "beta").await;
    assert!(answer.as_ref().is_err_and(|status| status.message().contains(r#"replicas serve "alpha""#)), "{answer:?}");
    is_unavailable(answer, r#""beta""#);
    assert!(start.elapsed() < Duration::from_secs(60), "it does not hang");
    assert_eq!(ask(client, "alpha").await.expect("an answer"), "alpha");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_is_found_by_file_name_alias_and_generate_id() {
    let cases = [
        ("id = \"mine\"\naliases = [\"default\"]", "beta"),
        ("id = \"mine\"\naliases = [\"default\"]", "default"),
        ("id = \"mine\"\ngenerate_id = \"elsewhere-7b\"", "elsewhere-7b"),
    ];
    for (settings, id) in cases {
        let mut fleet = Fleet::new();
        fleet.add(id).await;
        let (_service, client) = fleet.serve(settings).await;
        assert_eq!(ask(client, "mine").await.expect("an answer"), id, "{settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_one_other_id_serve_the_only_model_with_their_tokenizer() {
    let mut fleet = Fleet::new();
    fleet.add("quantized").await;
    fleet.add("quantized").await;
    let (_service, client) = fleet.serve_second("").await;
    assert_eq!(ask(client, "mine").await.expect("an answer"), "quantized");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tokenizer_alone_selects_no_replica_if_the_model_is_in_doubt() {
    let cases: [(&str, &[&'static str], &str); 4] = [
        ("a configured id", &["quantized"], "generate_id = \"elsewhere\""),
        ("two ids", &["quantized", "finetuned"], ""),
        ("an empty id", &[""], ""),
        ("a replica of the id and another", &["mine", "quantized"], ""),
    ];
    for (case, ids, settings) in cases {
        let mut fleet = Fleet::new();
        for id in ids {
            fleet.add(id).await;
        }
        let (_service, client) = fleet.serve_second(settings).await;
        if ids.contains(&"mine") {
            assert_eq!(ask(client.clone(), "mine").await.expect(case), "mine");
            fleet.end_first().await;
        }
        is_unavailable(ask(client, "mine").await, r#"model "mine""#);
    }
    let mut fleet = Fleet::new();
    fleet.add("quantized").await;
    let (_service, client) = fleet.serve("id = \"mine\"").await;
    is_unavailable(ask(client, "mine").await, "quantized");
    // The model of this replica is not known.
    fleet.addresses.push("http://127.0.0.1:1".to_owned());
    let (_service, client) = fleet.serve_second("").await;
    is_unavailable(ask(client, "mine").await, r#"model "mine""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_with_another_tokenizer_gets_no_task() {
    let mut fleet = Fleet::new();
    fleet.add_replica(replica("alpha", &"0".repeat(64)), "127.0.0.1:0").await;
    let (_service, client) = fleet.serve("").await;
    is_unavailable(ask(client, "alpha").await, "another tokenizer");
    fleet.add("alpha").await;
    let (_service, client) = fleet.serve("").await;
    for _ in 0..10 {
        assert_eq!(ask(client.clone(), "alpha").await.expect("an answer"), "alpha");
    }
}

/// A replica whose GetLoadedModel begins its response and never ends it.
#[derive(Debug, Clone)]
struct Stuck;

impl NamedService for Stuck {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<http::Request<Body>> for Stuck {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let body = Full::new(Bytes::new()).with_trailers(pending());
        let response = http::Response::builder().header("content-type", "application/grpc").body(Body::new(body));
        ready(Ok(response.expect("a response")))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_never_names_its_model_is_unhealthy() {
    let mut fleet = Fleet::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    fleet.addresses.push(format!("http://{}", listener.local_addr().expect("an address")));
    tokio::spawn(Server::builder().add_service(Stuck).serve_with_incoming(TcpIncoming::from(listener)));
    let start = Instant::now();
    let (_service, client) = fleet.serve("").await;
    loop {
        let answer = ask(client.clone(), "alpha").await.expect_err("no replica names its model");
        if answer.message().contains(r#"no replica of model "alpha" is healthy"#) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_is_asked_again_after_its_restart_with_another_model() {
    let mut fleet = Fleet::new();
    fleet.add("alpha").await;
    let (_service, client) = fleet.serve("").await;
    assert_eq!(ask(client.clone(), "alpha").await.expect("an answer"), "alpha");
    let address = fleet.end_first().await;
    let replica = replica("beta", &fleet.tokenizer_sha256);
    fleet.add_replica(replica, address.trim_start_matches("http://")).await;
    let limit = Instant::now() + Duration::from_secs(60);
    while !ask(client.clone(), "beta").await.is_ok_and(|text| text == "beta") {
        assert!(Instant::now() < limit, "the new model is not found");
    }
    is_unavailable(ask(client, "alpha").await, r#""beta""#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_adds_the_served_model_makes_tasks_available() {
    let mut fleet = Fleet::new();
    fleet.add("beta").await;
    let [alpha, beta] = fleet.models.each_ref().map(|model| format!("[[models]]\npath = {:?}\n", model.path()));
    let config = fleet.folder.path().join("models.toml");
    // Both have one tokenizer: without this id, the replica would be taken for alpha's.
    let alpha = alpha + "generate_id = \"elsewhere\"\n";
    std::fs::write(&config, &alpha).expect("a file");
    let command = ["render-svc", "--config", &config.display().to_string(), "--generate", &fleet.addresses[0]];
    let mut service = Process::start("127.0.0.1:0", &command);
    let channel = Endpoint::from_shared(format!("http://{}", service.address)).expect("a URI");
    let mut health = HealthClient::new(channel.connect_lazy());
    soon(&mut health, ServingStatus::NotServing).await;
    std::fs::write(&config, alpha + &beta).expect("a file");
    service.signal(Signal::HUP);
    soon(&mut health, ServingStatus::Serving).await;
}

/// Waits until the task service reports a status.
async fn soon(health: &mut HealthClient<Channel>, expected: ServingStatus) {
    let start = Instant::now();
    loop {
        let request = HealthCheckRequest { service: task_service_server::SERVICE_NAME.to_owned() };
        let found = health.check(request).await.expect("health is checked").into_inner().status();
        if found == expected {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
