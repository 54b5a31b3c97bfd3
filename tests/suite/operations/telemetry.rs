//! Telemetry of the services: traces, metrics and logs, exported to a collector, scraped, and
//! written to stderr. None contains text of a caller.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::{Grammar, ReturnOptions, Stop, grammar};
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_tests::{ModelFolder, Process, default_model, repository};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tower::Service as _;

/// The trace id and the parent span id of a caller, in the format of W3C Trace Context.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// Text that only callers send.
const SECRET: &str = "xyzzy";
/// Longer than telemetry takes to arrive.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A collector that stores every export.
#[derive(Debug, Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    spans: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    logs: Vec<ExportLogsServiceRequest>,
}

impl Collector {
    async fn start() -> (Self, SocketAddr) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let gzip = CompressionEncoding::Gzip;
        let server = Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()).accept_compressed(gzip))
            .add_service(MetricsServiceServer::new(collector.clone()).accept_compressed(gzip))
            .add_service(LogsServiceServer::new(collector.clone()).accept_compressed(gzip));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        (collector, address)
    }

    fn look<T>(&self, look: impl FnOnce(&mut Collected) -> T) -> T {
        look(&mut self.0.lock().expect("no panic"))
    }

    /// Returns every span with the name of its service.
    fn spans(&self) -> Vec<(String, Span)> {
        let resources = self.look(|collected| collected.spans.clone()).into_iter().flat_map(|it| it.resource_spans);
        let named = resources.flat_map(|resource| {
            let attributes = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
            let service = text(&attributes, "service.name").expect("a service");
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.map(move |span| (service.clone(), span)).collect::<Vec<_>>()
        });
        named.collect()
    }

    fn metrics(&self) -> BTreeSet<String> {
        let resources = self.look(|collected| collected.metrics.clone()).into_iter().flat_map(|it| it.resource_metrics);
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name).collect()
    }

    /// Returns the trace id of each log line.
    fn logs(&self) -> BTreeMap<String, String> {
        let resources = self.look(|collected| collected.logs.clone()).into_iter().flat_map(|it| it.resource_logs);
        let records = resources.flat_map(|resource| resource.scope_logs).flat_map(|scope| scope.log_records);
        records.map(|record| (format!("{:?}", record.body), hex(&record.trace_id))).collect()
    }

    /// Returns every export, encoded as it was received.
    fn bytes(&self) -> Vec<u8> {
        self.look(|Collected { spans, metrics, logs }| {
            let spans = spans.iter().map(|it| it.encode_to_vec());
            let metrics = metrics.iter().map(|it| it.encode_to_vec());
            spans.chain(metrics).chain(logs.iter().map(|it| it.encode_to_vec())).flatten().collect()
        })
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.look(|collected| collected.spans.push(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.look(|collected| collected.metrics.push(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.look(|collected| collected.logs.push(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        other => Some(format!("{other:?}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts both services, which export all telemetry at short intervals.
fn services(arguments: &[&str], collector: Option<SocketAddr>, logs: &Path) -> [Process; 2] {
    let model = default_model().display().to_string();
    let endpoint = collector.map(|address| format!("http://{address}"));
    let soon =
        [("OTEL_BSP_SCHEDULE_DELAY", "50"), ("OTEL_BLRP_SCHEDULE_DELAY", "50"), ("OTEL_METRIC_EXPORT_INTERVAL", "200")];
    let start = |name: &str, own: &[&str]| {
        let mut command = vec![name, "--log", "debug", "--log-format", "json", "--metrics-listen", "127.0.0.1:0"];
        command.extend(own);
        command.extend(arguments);
        if let Some(endpoint) = &endpoint {
            command.extend(["--otlp-endpoint", endpoint]);
        }
        let log = File::create(logs.join(name)).expect("a file");
        Process::start_in("127.0.0.1:0", &command, &soon, Stdio::from(log))
    };
    let generation = start("gen-svc", &["--model", &model, "--threads", "1", "--kv-memory-mib", "64"]);
    let target = format!("http://{}", generation.address);
    let rendering = start("render-svc", &["--models", &model, "--generate", &target]);
    [generation, rendering]
}

fn conversation() -> Option<chat::Conversation> {
    let content = Some(chat::chat_message::Content::Text(format!("Say {SECRET}.")));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() })
}

fn task() -> RunTaskRequest {
    RunTaskRequest {
        conversation: conversation(),
        cache_salt: SECRET.to_owned(),
        grammar: Some(Grammar {
            kind: Some(grammar::Kind::Regex(format!("{SECRET}[a-z ]{{400}}"))),
            ..Grammar::default()
        }),
        stop: Some(Stop { max_new_tokens: Some(8), stop_strings: vec![format!("{SECRET}!")], ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    }
}

fn traced<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{CALLER}-01").parse().expect("a header");
    request.metadata_mut().insert("traceparent", parent);
    request
}

async fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("it answers")
}

/// Runs a task to its end.
async fn run(address: &str, task: RunTaskRequest) -> Result<(), Status> {
    let mut client = TaskServiceClient::new(channel(address).await);
    let mut answer = client.run_task(traced(task)).await?.into_inner();
    while answer.message().await?.is_some() {}
    Ok(())
}

/// Waits until a condition is true.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT_LIMIT, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const RUN_TASK: &str = "tandem.task.v1.TaskService/RunTask";
const GENERATE: &str = "tandem.generate.v1.GenerateService/Generate";

/// Each span of a task with its parent span: service and name of both.
const TREE: [[&str; 4]; 11] = [
    ["render-svc", RUN_TASK, "", ""],
    ["render-svc", "render", "render-svc", RUN_TASK],
    ["render-svc", "tokenize", "render-svc", RUN_TASK],
    ["render-svc", GENERATE, "render-svc", RUN_TASK],
    ["gen-svc", GENERATE, "render-svc", GENERATE],
    ["gen-svc", "prepare", "gen-svc", GENERATE],
    ["gen-svc", "generation", "gen-svc", GENERATE],
    ["gen-svc", "queue", "gen-svc", "generation"],
    ["gen-svc", "prefill", "gen-svc", "generation"],
    ["gen-svc", "decode", "gen-svc", "generation"],
    ["caller", "", "", ""],
];

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_covers_the_caller_and_both_services() {
    let (collector, address) = Collector::start().await;
    let logs = TempDir::new().expect("a folder");
    let [generation, rendering] = services(&[], Some(address), logs.path());
    run(&rendering.address, task()).await.expect("an answer");
    let expected = TREE.len() - 1;
    let count = || collector.spans().iter().filter(|(_, span)| !span.name.ends_with("/GetLoadedModel")).count();
    until("all spans arrive", || count() >= expected).await;

    let mut spans = BTreeMap::new();
    // render-svc asks for the model of a replica by itself, outside any trace of a caller.
    let of_caller = collector.spans().into_iter().filter(|(_, span)| !span.name.ends_with("/GetLoadedModel"));
    for (service, span) in of_caller {
        assert_eq!(hex(&span.trace_id), TRACE, "{service} {}", span.name);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{}", span.name);
        let key = (service, span.name.clone());
        assert!(spans.insert(key.clone(), span).is_none(), "{key:?} is there twice");
    }
    let named = |service: &str, name: &str| {
        spans.get(&(service.to_owned(), name.to_owned())).unwrap_or_else(|| panic!("{service} {name} is missing"))
    };
    for [service, name, parent_service, parent] in &TREE[..expected] {
        let span = named(service, name);
        let parent_id = match *parent {
            "" => CALLER.to_owned(),
            parent => hex(&named(parent_service, parent).span_id),
        };
        assert_eq!(hex(&span.parent_span_id), parent_id, "{service} {name}");
    }
    assert_eq!(spans.len(), expected, "{:?}", spans.keys());

    let call = named("render-svc", RUN_TASK);
    assert_eq!(call.kind(), SpanKind::Server);
    assert_eq!(named("render-svc", GENERATE).kind(), SpanKind::Client);
    assert_eq!(text(&call.attributes, "rpc.response.status_code").as_deref(), Some("OK"));
    // The span ends with the trailers, not with the headers.
    let decode = named("gen-svc", "decode");
    for outer in [call, named("render-svc", GENERATE), named("gen-svc", GENERATE)] {
        assert!(outer.end_time_unix_nano >= decode.end_time_unix_nano, "{}", outer.name);
    }
    let generated = text(&named("gen-svc", "generation").attributes, "gen_ai.usage.output_tokens");
    assert_eq!(generated.as_deref(), Some("IntValue(8)"));
    drop((generation, rendering));
}

/// A template that takes long for the text `spin`.
const SPIN: &str = "{% if messages[0].content == 'spin' %}{% for i in range(60000) %}{% endfor %}{% endif %}\
    {{ messages[0].content }}";

#[tokio::test(flavor = "multi_thread")]
async fn only_long_renders_record_a_wait_span() {
    let (collector, address) = Collector::start().await;
    let model = ModelFolder::new("tiny").with_template(SPIN);
    let (path, endpoint) = (model.path().display().to_string(), format!("http://{address}"));
    let command = ["render-svc", "--models", &path, "--otlp-endpoint", &endpoint];
    let soon = [("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let process = Process::start_in("127.0.0.1:0", &command, &soon, Stdio::null());
    let mut client = RenderServiceClient::new(channel(&process.address).await);
    let long = "long ".repeat(2000);
    for (text, waits) in [("short", 0), (&*long, 1), ("spin", 2)] {
        let content = Some(chat::chat_message::Content::Text(text.to_owned()));
        let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
        let conversation = Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() });
        let request = RenderRequest { conversation, ..RenderRequest::default() };
        let rendered = client.render(traced(request)).await.expect("a prompt").into_inner();
        assert!(format!("{rendered:?}").contains(text.trim_end()), "{rendered:?}");
        let count = |name: &str| collector.spans().iter().filter(|(_, span)| span.name == name).count();
        let calls = ["short", &long, "spin"].iter().position(|it| *it == text).expect("one of them") + 1;
        until("the call is counted", || count("tandem.render.v1.RenderService/Render") == calls).await;
        assert_eq!(count("wait"), waits, "{text}");
    }
}

const METRICS: [&str; 18] = [
    "rpc.server.call.duration",
    "rpc.client.call.duration",
    "tandem.render.duration",
    "tandem.task.resumed",
    "tandem.generation.replicas",
    "tandem.generation.replicas.ejected",
    "tandem.generation.ejections",
    "gen_ai.server.time_to_first_token",
    "gen_ai.server.time_per_output_token",
    "gen_ai.server.request.duration",
    "gen_ai.client.token.usage",
    "tandem.engine.queued",
    "tandem.engine.running",
    "tandem.engine.kv.blocks",
    "tandem.engine.kv.use",
    "tandem.service.info",
    "tandem.engine.kv.block_size",
    "tandem.engine.outputs",
];

/// Renders a conversation that causes a warning.
async fn warn(address: &str) {
    let args = format!(r#"{{"zone": "{SECRET}"}}"#);
    let conversation = conversation().map(|it| chat::Conversation { template_args_json: Some(args), ..it });
    let request = RenderRequest { conversation, ..Default::default() };
    let rendered = RenderServiceClient::new(channel(address).await).render(traced(request)).await.expect("renders");
    assert_eq!(rendered.into_inner().warnings.len(), 1);
}

/// Makes calls whose error messages may repeat the caller's text.
async fn fail(address: &str) {
    let status = run(address, RunTaskRequest { model: SECRET.to_owned(), ..task() }).await;
    assert_eq!(status.expect_err("no such model").code(), Code::NotFound);
    let request = RenderRequest { model: SECRET.to_owned(), conversation: conversation(), ..Default::default() };
    let mut client = RenderServiceClient::new(channel(address).await);
    let status = client.render(traced(request)).await.expect_err("no such model");
    assert_eq!(status.code(), Code::NotFound);
    let path = format!("/{SECRET}/{SECRET}").parse().expect("a path");
    let mut grpc = tonic::client::Grpc::new(channel(address).await);
    grpc.ready().await.expect("ready");
    let codec = tonic_prost::ProstCodec::<RenderRequest, RenderRequest>::default();
    let status = grpc.unary(Request::new(RenderRequest::default()), path, codec).await.expect_err("no such method");
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_contains_trace_ids_and_no_caller_text() {
    let (collector, address) = Collector::start().await;
    let logs = TempDir::new().expect("a folder");
    let [mut generation, mut rendering] = services(&[], Some(address), logs.path());
    run(&rendering.address, task()).await.expect("an answer");
    warn(&rendering.address).await;
    fail(&rendering.address).await;
    until("all metrics arrive", || METRICS.iter().all(|name| collector.metrics().contains(*name))).await;
    let is_ours = |line: &str| line.contains("generation ended");
    until("logs arrive", || collector.logs().keys().any(|line| is_ours(line))).await;
    let trace = collector.logs().into_iter().find(|(line, _)| is_ours(line)).map(|(_, trace)| trace);
    assert_eq!(trace.as_deref(), Some(TRACE));
    let failed = |(_, span): &(String, Span)| {
        let code = text(&span.attributes, "rpc.response.status_code");
        code.as_deref() == Some("NOT_FOUND")
            && text(&span.attributes, "error.type").as_deref() == Some("MODEL_NOT_FOUND")
    };
    until("the failure arrives", || collector.spans().iter().any(failed)).await;
    let is_unknown = |(_, span): &(String, Span)| span.name == "_OTHER";
    until("the unknown method arrives", || collector.spans().iter().any(is_unknown)).await;
    let unknown = collector.spans().into_iter().find(|(_, span)| span.name == "_OTHER").expect("an unknown method");
    assert_eq!(unknown.1.status.expect("a status").code(), StatusCode::Error);

    let (mut exposed, mut request_ids) = (String::new(), Vec::new());
    for (name, process) in [("gen-svc", &mut generation), ("render-svc", &mut rendering)] {
        let metrics = scrape(process.metrics.as_deref().expect("metrics"), None).await;
        assert_eq!(metrics.0, http::StatusCode::OK);
        assert!(!metrics.1.contains(SECRET), "{name}: the metrics contain text of a caller");
        exposed.push_str(&metrics.1);
        assert_eq!(process.terminate(), Some(0));
        let log = fs::read_to_string(logs.path().join(name)).expect("a log");
        let lines: Vec<serde_json::Value> = log.lines().map(object_with_unique_keys).collect();
        request_ids.push(logged_request_id(&lines));
        assert!(lines.iter().any(|line| line["trace_id"] == TRACE && line["span_id"].is_string()), "{name}");
        assert!(!log.contains(SECRET), "{name} logs it: {log}");
        if name == "render-svc" {
            let is_warning = |line: &&serde_json::Value| line.to_string().contains("render warning");
            let warning = lines.iter().find(is_warning).expect("a line").to_string();
            let said = ["WARN", "TEMPLATE_ARG_UNKNOWN", r#""field":"template_args""#, "SmolLM2"];
            assert!(said.iter().all(|part| warning.contains(part)), "{warning}");
            assert!(!warning.contains("zone"), "it has a key of the caller: {warning}");
        }
    }
    assert_eq!(request_ids[0], request_ids[1], "the request id crosses the hop");
    let counted = exposed.lines().find(|line| line.starts_with("tandem_render_warnings_total{"));
    assert!(counted.is_some_and(|line| line.contains("TEMPLATE_ARG_UNKNOWN")), "{counted:?}");
    let gauges = [
        "tandem_engine_load_duration_seconds",
        "tandem_engine_max_running",
        "tandem_engine_max_queued",
        "tandem_engine_steps_total",
        "tandem_server_connections",
    ];
    for name in gauges.into_iter().chain(["process_resident_memory_bytes", "process_cpu_seconds_total"]) {
        assert!(exposed.contains(&format!("\n{name}")), "{name} is not exported");
    }
    let autoscaling = "chart/templates/autoscaling-generation.yaml";
    for file in ["monitoring/dashboard.json", "monitoring/alerts.yaml", autoscaling, "README.md"] {
        let text = fs::read_to_string(repository().join("deploy").join(file)).expect("a file");
        let unknown: Vec<_> = metric_names(&text).filter(|name| !exposed.contains(&format!("\n{name}"))).collect();
        assert!(unknown.is_empty(), "{file} shows unknown metrics: {unknown:?}");
    }
    assert!(!collector.bytes().windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()), "a caller's text");
}

/// Parses a log line. Panics if a key occurs twice, which strict collectors reject.
fn object_with_unique_keys(line: &str) -> serde_json::Value {
    let serde_json::Value::Object(object) = serde_json::from_str(line).expect("an object") else { panic!("{line}") };
    // The printed object has each key once, so a line with a key twice is longer.
    let length = |object| serde_json::Value::to_string(&object).len();
    let object = serde_json::Value::Object(object);
    assert_eq!(length(object.clone()), line.len(), "a key occurs twice: {line}");
    object
}

/// Returns the request id in the line of the call that ran in the trace.
fn logged_request_id(lines: &[serde_json::Value]) -> String {
    let is_call = |line: &&serde_json::Value| line["trace_id"] == TRACE && line["message"] == "call";
    let call = lines.iter().find(is_call).expect("the line of a call");
    call["request_id"].as_str().expect("a request id").to_owned()
}

/// Finds words in a text that look like the services' metrics, without labels.
fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| {
        let is_ours = ["tandem_", "gen_ai_", "rpc_"].iter().any(|start| word.starts_with(start));
        let ends = ["_total", "_bucket", "_count", "_sum", "_running", "_queued", "_ratio", "_block_size"];
        is_ours && ends.iter().any(|end| word.ends_with(end))
    };
    words.filter(is_metric)
}

/// Scrapes the metrics over HTTP/2.
async fn scrape(address: &str, authorization: Option<&str>) -> (http::StatusCode, String) {
    let mut request = http::Request::get(format!("http://{address}/metrics"));
    if let Some(value) = authorization {
        request = request.header("authorization", value);
    }
    let mut channel = channel(address).await;
    std::future::poll_fn(|context| channel.poll_ready(context)).await.expect("ready");
    let response = channel.call(request.body(Body::empty()).expect("a request")).await.expect("an answer");
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (head.status, String::from_utf8(bytes.to_vec()).expect("text"))
}

/// Returns the value of a line of the metrics page.
fn value(metrics: &str, start: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {metrics}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_a_token_and_count_the_request() {
    let folder = TempDir::new().expect("a folder");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "let-me-in name=tester\n").expect("a file");
    let [generation, _rendering] = services(&["--token-file", &tokens.display().to_string()], None, folder.path());
    let metrics = generation.metrics.as_deref().expect("metrics");
    let mut silent = TcpStream::connect(metrics).await.expect("it listens");
    for wrong in [None, Some("Bearer other")] {
        assert_eq!(scrape(metrics, wrong).await.0, http::StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
    let mut client = tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient::new(
        channel(&generation.address).await,
    );
    let prompt = tandem_common::pb::generate::v1::generate_request::Input::Prompt("Once upon a time".to_owned());
    let mut request = Request::new(tandem_common::pb::generate::v1::GenerateRequest {
        input: Some(prompt),
        stop: Some(Stop { max_new_tokens: Some(8), ignore_eos: true, ..Stop::default() }),
        ..Default::default()
    });
    request.metadata_mut().insert("authorization", "Bearer let-me-in".parse().expect("a header"));
    let mut answer = client.generate(request).await.expect("an answer").into_inner();
    while answer.message().await.expect("an event").is_some() {}

    let start = Instant::now();
    let text = loop {
        let (status, text) = scrape(metrics, Some("Bearer let-me-in")).await;
        assert_eq!(status, http::StatusCode::OK);
        // The engine counts the tokens after the step that sends them to the caller.
        if value(&text, "tandem_engine_generated_tokens_total") == 8.0 {
            break text;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "{text}");
    };
    assert_eq!(value(&text, "gen_ai_server_time_to_first_token_seconds_count"), 1.0);
    assert_eq!(value(&text, "tandem_engine_kv_block_size"), 16.0);
    assert_eq!(value(&text, "tandem_engine_running"), 0.0);
    for (place, rows) in [("device", " 0"), ("host", " 8")] {
        let has_place = |line: &&str| line.contains(&format!("place=\"{place}\""));
        let mut lines = text.lines().filter(|line| line.starts_with("tandem_engine_sampled_rows_total{"));
        assert!(lines.find(has_place).is_some_and(|line| line.ends_with(rows)), "{place}: {text}");
    }
    let target = text.lines().find(|line| line.starts_with("target_info{")).expect("facts of the process");
    assert!(target.contains("vcs_ref_head_revision=\""), "{target}");
    assert!(text.contains(r#"finish="length""#), "{text}");
    let called =
        format!(r#"rpc_server_call_duration_seconds_count{{rpc_method="{GENERATE}",rpc_response_status_code="OK""#);
    assert_eq!(value(&text, &called), 1.0);
    assert!(text.lines().any(|line| line.starts_with(&called) && line.contains(r#"tandem_caller="tester""#)), "{text}");
    let log = fs::read_to_string(folder.path().join("gen-svc")).expect("a log");
    assert!(log.lines().any(|line| line.contains(r#""caller":"tester""#) && line.contains(GENERATE)), "{log}");
    // An unauthenticated connection that stays silent is closed.
    let ended = tokio::time::timeout(WAIT_LIMIT, silent.read(&mut [0])).await.expect("the connection ends");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_a_limited_number_of_callers() {
    const MAX_CALLERS: usize = 256;
    let folder = TempDir::new().expect("a folder");
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "let-me-in name=front delegate\n").expect("a file");
    let [generation, _rendering] = services(&["--token-file", &tokens.display().to_string()], None, folder.path());
    let mut client = tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient::new(
        channel(&generation.address).await,
    );
    for number in 0..MAX_CALLERS + 50 {
        let model = "unknown".to_owned();
        let mut request = Request::new(tandem_common::pb::generate::v1::GetLoadedModelRequest { model });
        request.metadata_mut().insert("authorization", "Bearer let-me-in".parse().expect("a header"));
        request.metadata_mut().insert("x-tandem-caller", format!("token:caller-{number}").parse().expect("a header"));
        client.get_loaded_model(request).await.expect_err("the model is unknown");
    }
    let metrics = generation.metrics.as_deref().expect("metrics");
    let (_, text) = scrape(metrics, Some("Bearer let-me-in")).await;
    let names: std::collections::HashSet<_> = text
        .lines()
        .filter_map(|line| line.split_once("tandem_caller=\"")?.1.split_once('"'))
        .map(|(name, _)| name)
        .collect();
    assert!(names.contains("caller-0") && names.contains("_OTHER"), "{names:?}");
    assert_eq!(names.len(), MAX_CALLERS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_collector_causes_one_warning_a_minute() {
    let folder = TempDir::new().expect("a folder");
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address");
    let [_generation, rendering] = services(&[], Some(closed), folder.path());
    let warnings = || {
        let log = fs::read_to_string(folder.path().join("render-svc")).expect("a log");
        log.lines().filter(|line| line.contains("telemetry is not exported")).map(str::to_owned).collect::<Vec<_>>()
    };
    until("the first warning", || !warnings().is_empty()).await;
    // Many exports fail within three seconds: metrics are exported every 200 ms.
    run(&rendering.address, task()).await.expect("an answer");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let [warning] = &warnings()[..] else { panic!("{:?}", warnings()) };
    assert!(warning.contains("WARN") && warning.contains(&closed.to_string()), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_does_not_prevent_the_shutdown() {
    let folder = TempDir::new().expect("a folder");
    // Connections are accepted by the operating system, and get no answer.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let services = services(&[], Some(silent.local_addr().expect("an address")), folder.path());
    for (mut service, name) in services.into_iter().zip(["gen-svc", "render-svc"]) {
        let start = Instant::now();
        assert_eq!(service.terminate(), Some(0), "{name}");
        eprintln!("{name} stopped after {:?}", start.elapsed());
        let log = fs::read_to_string(folder.path().join(name)).expect("a log");
        assert!(log.contains("telemetry not flushed"), "{name}: {log}");
    }
}
