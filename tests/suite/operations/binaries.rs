//! The programs from an operator's view: start, output and stop.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::pb::task::v1::{RunTaskRequest, RunTaskResponse};
use tandem_common::process::{Service, Signal};
use tandem_tests::failure::failed;
use tandem_tests::{Process, binary, default_model, error_texts, program};
use tempfile::TempDir;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Starts a program's `serve` on a free port.
fn start(name: &str, arguments: &[&str]) -> Process {
    Process::start("127.0.0.1:0", &[&[name], arguments].concat())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn task(max_new_tokens: u32) -> RunTaskRequest {
    let content = Some(chat::chat_message::Content::Text("Count to one hundred.".to_owned()));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..Default::default() };
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages: vec![message], ..Default::default() }),
        sampling: Some(generate::Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(generate::Stop { max_new_tokens: Some(max_new_tokens), ignore_eos: true, ..Default::default() }),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_running_requests_and_exits_with_0() {
    let model = default_model();
    let mut generation = start("gen-svc", &["--model", path(&model)]);
    let endpoint = format!("http://{}", generation.address);
    let mut render = start("render-svc", &["--models", path(&model), "--generate", &endpoint]);
    let mut client = TaskServiceClient::connect(format!("http://{}", render.address)).await.expect("it answers");
    let mut stream = client.run_task(task(40)).await.expect("accepted").into_inner();
    for _ in 0..3 {
        stream.message().await.expect("streams").expect("more");
    }
    render.signal(Signal::TERM);
    generation.signal(Signal::TERM);
    let mut finished = None;
    while let Some(response) = stream.message().await.expect("continues") {
        if let Some(Event::Finished(end)) = response.event {
            finished = Some(end);
        }
    }
    assert_eq!(finished.expect("finished").usage.expect("usage").completion_tokens, 40);
    drop(client);
    assert_eq!((render.wait().code(), generation.wait().code()), (Some(0), Some(0)));
}

#[test]
fn sigterm_while_the_model_loads_exits_with_0() {
    for pause in [0, 100, 300] {
        let mut command = Command::new(binary("gen-svc"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--model"]);
        command.arg(default_model()).stderr(Stdio::null());
        let mut service = Service::spawn("gen-svc", &mut command).expect("it starts");
        while service.metrics().is_none() {
            let is_ready = service.is_ready(Duration::from_millis(1)).expect("it runs");
            assert!(!is_ready || service.metrics().is_some(), "the line with the metrics' address comes first");
        }
        std::thread::sleep(Duration::from_millis(pause));
        service.signal(Signal::TERM).expect("it is signalled");
        assert_eq!(service.wait().expect("it ends").code(), Some(0), "after {pause} ms");
    }
}

#[test]
fn libtorchs_threads_spin_shortly_unless_the_environment_decides() {
    let spinning = |variables: &[(&str, &str)]| {
        let mut command = Command::new(binary("gen-svc"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--model"]).arg(default_model()).stderr(Stdio::null());
        command.env_remove("GOMP_SPINCOUNT").env_remove("OMP_WAIT_POLICY").envs(variables.iter().copied());
        let service = Service::start("gen-svc", &mut command).expect("it starts");
        let environment = std::fs::read(format!("/proc/{}/environ", service.id())).expect("the process runs");
        let mut variables = environment.split(|&byte| byte == 0).filter_map(|line| str::from_utf8(line).ok());
        variables.find_map(|line| line.strip_prefix("GOMP_SPINCOUNT=")).map(str::to_owned)
    };
    assert_eq!(spinning(&[]).as_deref(), Some("10000"));
    assert_eq!(spinning(&[("GOMP_SPINCOUNT", "7")]).as_deref(), Some("7"));
    assert_eq!(spinning(&[("OMP_WAIT_POLICY", "active")]), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_interrupt_kills_a_draining_service() {
    let model = default_model();
    let generation = start("gen-svc", &["--model", path(&model)]);
    let render = start("render-svc", &["--models", path(&model), "--generate", &generation.address]);
    let mut client = TaskServiceClient::connect(format!("http://{}", render.address)).await.expect("it answers");
    let mut stream = client.run_task(task(8000)).await.expect("accepted").into_inner();
    stream.message().await.expect("streams").expect("more");
    for mut service in [generation, render] {
        let endpoint = Endpoint::from_shared(format!("http://{}", service.address)).expect("an address");
        let mut health = HealthClient::new(endpoint.connect().await.expect("it answers"));
        let mut changes = health.watch(HealthCheckRequest::default()).await.expect("known").into_inner();
        assert_eq!(changes.message().await.expect("no error").expect("a state").status(), ServingStatus::Serving);
        service.signal(Signal::INT);
        let change = changes.message().await.expect("no error").expect("a state");
        assert_eq!(change.status(), ServingStatus::NotServing, "it drains");
        service.signal(Signal::INT);
        let status = service.wait();
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_fails_as_unavailable_if_its_generation_service_is_killed() {
    let model = default_model();
    let generation = start("gen-svc", &["--model", path(&model)]);
    let render = start("render-svc", &["--models", path(&model), "--generate", &generation.address]);
    let mut client = TaskServiceClient::connect(format!("http://{}", render.address)).await.expect("it answers");
    let mut stream = client.run_task(task(8000)).await.expect("accepted").into_inner();
    for _ in 0..4 {
        stream.message().await.expect("streams").expect("more");
    }
    drop(generation);
    let failure = failed(&error_of(stream).await);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "GENERATION_UNAVAILABLE"));
    // No service listens. The stream begins while one is looked for.
    let status = match client.run_task(task(1)).await {
        Ok(response) => error_of(response.into_inner()).await,
        Err(status) => status,
    };
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "GENERATION_UNAVAILABLE"));
}

/// Returns the error at the end of a stream.
async fn error_of(mut stream: Streaming<RunTaskResponse>) -> Status {
    loop {
        match stream.message().await {
            Ok(event) => assert!(event.is_some(), "an incomplete answer must end with an error"),
            Err(status) => break status,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_loads_new_models_while_requests_are_served() {
    let folder = TempDir::new().expect("a temporary folder");
    let write = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        let config = r#"{"chat_template": "{{ messages[0].content }}"}"#;
        std::fs::write(path.join("tokenizer_config.json"), config).expect("a file");
    };
    write("old");
    let mut service = start("render-svc", &["--models", path(folder.path())]);
    let mut client = RenderServiceClient::connect(format!("http://{}", service.address)).await.expect("it answers");
    let request = |model: &str| {
        let content = Some(chat::chat_message::Content::Text("hello".to_owned()));
        let message = chat::ChatMessage { role: "user".to_owned(), content, ..Default::default() };
        let conversation = chat::Conversation { messages: vec![message], ..Default::default() };
        RenderRequest { model: model.to_owned(), conversation: Some(conversation), ..Default::default() }
    };
    write("new");
    assert_eq!(client.render(request("new")).await.expect_err("not yet").code(), Code::NotFound);
    service.signal(Signal::HUP);
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.render(request("new")).await.is_err() {
        assert!(Instant::now() < deadline, "the new model never came");
        client.render(request("old")).await.expect("the old model is served all the while");
    }
    client.render(request("old")).await.expect("the old model is served");
    assert_eq!(service.terminate(), Some(0));
}

#[test]
fn help_names_every_command_and_setting() {
    let help = |name: &str, arguments: &[&str]| {
        let output = Command::new(binary(name)).args(arguments).arg("--help").output().expect("it runs");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let check = |help: String, words: &[&str]| words.iter().for_each(|word| assert!(help.contains(word), "{word}"));
    check(help("render-svc", &[]), &["serve", "render", "check"]);
    check(
        help("render-svc", &["serve"]),
        &["--models", "--config", "SIGHUP", "--generate", "--listen", "TANDEM_MODELS", "--drain-seconds"],
    );
    check(help("render-svc", &["render"]), &["--jsonl", "messages", "template_args"]);
    check(help("gen-svc", &[]), &["serve", "generate"]);
    check(help("gen-svc", &["serve"]), &["--model", "--device", "--dtype", "--max-queue", "TANDEM_MODEL"]);
}

#[test]
fn failed_service_start_names_its_cause() {
    let fails = |name: &str, arguments: &[&str]| {
        let output = program(name).arg("serve").args(arguments).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{name} {arguments:?}: {errors}");
        let is_no_log = |line: &&str| !line.contains(" INFO ");
        errors.split_inclusive('\n').filter(is_no_log).collect::<String>()
    };
    let listen = ["--listen", "127.0.0.1:0"];
    let model = default_model();
    let nonsense = ["--models", path(&model), "--generate", "nonsense"];
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let errors = [
        fails("render-svc", &[&listen[..], &["--models", "/nowhere"]].concat()),
        fails("gen-svc", &[&listen[..], &["--model", "/nowhere.gguf"]].concat()),
        fails("render-svc", &[&listen[..], &nonsense].concat()),
        fails("gen-svc", &["--model", "x", "--listen", "localhost:50999"]),
        fails("gen-svc", &["--model", "x", "--control-listen", "50999"]),
        fails("gen-svc", &["--model", "x", "--log", "zzz=q"]),
        fails("render-svc", &["--models", path(&model), "--listen", &address]).replace(&address, "ADDRESS"),
    ];
    error_texts::check_rows("program/cannot-start", errors);
}

/// Runs `check` of a program. Returns the exit code and both outputs.
fn check(name: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary(name)).arg("check").args(arguments).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn check_exits_with_the_health_of_a_service() {
    let model = default_model();
    let mut render = start("render-svc", &["--models", path(&model)]);
    let (address, service) = (render.address.clone(), "tandem.render.v1.RenderService");
    for name in ["render-svc", "gen-svc"] {
        assert_eq!(check(name, &[&address]), (Some(0), "SERVING\n".to_owned()));
        assert_eq!(check(name, &[&format!("http://{address}"), "--service", service]).0, Some(0));
        let (code, text) = check(name, &[&address, "--service", "no.such.Service"]);
        assert!(code == Some(1) && text.contains("NOT_FOUND"), "{code:?} {text}");
    }
    render.kill();
    let (code, text) = check("render-svc", &[&address]);
    assert!(code == Some(1) && text.contains(&address) && text.contains("refused"), "{code:?} {text}");
    assert_eq!(check("render-svc", &["no-port"]).0, Some(2));
}

/// Gets a page over HTTP/1.1. Returns the status code.
fn get(address: &str, page: &str) -> u16 {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {page} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("received");
    response.split(' ').nth(1).expect("a status").parse().expect("a number")
}

#[test]
fn probes_are_readable_without_tls_and_token() {
    let (folder, model) = (TempDir::new().expect("a folder"), default_model());
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "secret\n").expect("a file");
    let free =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").to_string();
    let mut service =
        start("render-svc", &["--models", path(&model), "--token-file", path(&tokens), "--health-listen", &free]);
    let pages = ["/livez", "/readyz", "/", "/metrics"].map(|page| get(&free, page));
    assert_eq!(pages, [200, 200, 404, 404]);
    assert_eq!(service.terminate(), Some(0));
}

/// Waits until a probe's page has this status.
fn wait_for(address: &str, page: &str, wanted: u16) {
    let limit = Instant::now() + Duration::from_secs(120);
    while get(address, page) != wanted {
        assert!(Instant::now() < limit, "{page} is not {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ready_with_replica_follows_the_replicas() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (model, probes, replica) = (default_model(), free().to_string(), free().to_string());
    let generate = format!("http://{replica}");
    let arguments = ["--models", path(&model), "--generate", &generate, "--ready-with-replica"];
    let mut render = start("render-svc", &[&arguments[..], &["--health-listen", &probes]].concat());
    assert_eq!(["/livez", "/readyz"].map(|page| get(&probes, page)), [200, 503]);
    let mut generation = Process::start(&replica, &["gen-svc", "--model", path(&model)]);
    wait_for(&probes, "/readyz", 200);
    assert_eq!(generation.terminate(), Some(0));
    wait_for(&probes, "/readyz", 503);
    assert_eq!(get(&probes, "/livez"), 200);
    assert_eq!(render.terminate(), Some(0));
}

#[test]
fn probes_tell_loading_from_ready() {
    let (model, free) = (default_model(), std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let mut command = Command::new(binary("gen-svc"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--health-listen", &address, "--model", path(&model)]);
    let mut service = Service::spawn("gen-svc", command.stderr(Stdio::null())).expect("it starts");
    let limit = Instant::now() + Duration::from_secs(120);
    let mut statuses = Vec::new();
    while statuses.last() != Some(&(200, 200)) {
        assert!(Instant::now() < limit, "{statuses:?}");
        if std::net::TcpStream::connect(&address).is_ok() {
            statuses.push((get(&address, "/livez"), get(&address, "/readyz")));
        }
    }
    statuses.dedup();
    assert_eq!(statuses, [(200, 503), (200, 200)]);
    service.signal(Signal::TERM).expect("it is signalled");
    assert_eq!(service.wait().expect("it ends").code(), Some(0));
}
