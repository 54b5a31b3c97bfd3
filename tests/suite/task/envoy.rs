//! A real Envoy, configured by `deploy/envoy.yaml`, balances calls over three render services and
//! three generation services. Of each kind, one service drains and one is killed. `cargo xtask
//! test` fetches Envoy.

use std::fmt::Debug;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::failover::{ask, generation, task};
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::{self as generate, Sampling, Stop};
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::render::v1::{RenderRequest, RenderResponse};
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_tests::{Process, default_model, repository};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// A timeout that is far longer than any step of this test.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// The pause between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(10);
/// The number of callers of each kind.
const RENDERS: usize = 2;
const TASKS: usize = 5;
const STREAMS: usize = 2;
/// The number of tokens of an answer.
const TOKENS: u32 = 24;

/// The address of the admin page in `deploy/envoy.yaml`.
const ADMIN: &str = "127.0.0.1, port_value: 9901";
/// Envoy's listener and the services of each tier, with the names and addresses in
/// `deploy/envoy.yaml`.
const RENDER: Tier = Tier {
    name: "render",
    listener: "127.0.0.1, port_value: 50061",
    services: ["10.0.0.11, port_value: 50051", "10.0.0.12, port_value: 50051", "10.0.0.13, port_value: 50051"],
};
const GENERATE: Tier = Tier {
    name: "generate",
    listener: "127.0.0.1, port_value: 50062",
    services: ["10.0.0.21, port_value: 50052", "10.0.0.22, port_value: 50052", "10.0.0.23, port_value: 50052"],
};

struct Tier {
    name: &'static str,
    listener: &'static str,
    services: [&'static str; 3],
}

impl Tier {
    /// Returns the example's addresses with the addresses that replace them.
    fn addresses(&self, port: &Port, services: &[Process]) -> Vec<(&'static str, SocketAddr)> {
        let services = self.services.into_iter().zip(services.iter().map(address));
        services.chain([(self.listener, port.address)]).collect()
    }
}

fn address(process: &Process) -> SocketAddr {
    process.address.parse().expect("an address")
}

/// A port that is reserved until this value is dropped. Envoy can still listen there, because both
/// set SO_REUSEPORT.
struct Port {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Port {
    fn reserve() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseport(true).expect("a port that can be shared");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        Self { address: socket.local_addr().expect("an address"), _socket: socket }
    }

    fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a function that creates channels. Each channel connects at its first use.
    fn channel(&self) -> impl Fn() -> Channel + use<> {
        let endpoint = Endpoint::from_shared(self.uri()).expect("an address");
        move || endpoint.connect_lazy()
    }
}

/// Returns the example with other addresses.
fn configuration(addresses: &[(&str, SocketAddr)]) -> String {
    let example = fs::read_to_string(repository().join("deploy/envoy.yaml")).expect("the example");
    addresses.iter().fold(example, |text, (old, new)| {
        let old = format!("{{address: {old}}}");
        assert_eq!(text.matches(&old).count(), 1, "{old}");
        text.replace(&old, &format!("{{address: {}, port_value: {}}}", new.ip(), new.port()))
    })
}

/// Envoy, as a separate process.
struct Envoy {
    child: Child,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Envoy {
    async fn start(configuration: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let [file, admin] = ["envoy.yaml", "admin"].map(|name| folder.path().join(name));
        fs::write(&file, configuration).expect("a file");
        let mut envoy = Command::new(tandem_tests::envoy());
        envoy.arg("--config-path").arg(file).arg("--admin-address-path").arg(&admin);
        envoy.args(["--disable-hot-restart", "--concurrency", "2"]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = envoy.spawn().expect("it starts");
        let admin = soon("Envoy writes the address of its admin page", async || reported_address(&admin)).await;
        Self { child, admin, _folder: folder }
    }

    /// Returns the lines of Envoy's page about the services: `TIER::ADDRESS::NAME::VALUE`.
    async fn cluster_lines(&self) -> Vec<String> {
        let mut stream = TcpStream::connect(self.admin).await.expect("it listens");
        let request = b"GET /clusters HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it is sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("an answer");
        page.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Returns the number of healthy services of a tier.
    async fn healthy_count(&self, tier: &Tier) -> usize {
        let begins = format!("{}::", tier.name);
        let is_healthy = |line: &&String| line.starts_with(&begins) && line.ends_with("::health_flags::healthy");
        self.cluster_lines().await.iter().filter(is_healthy).count()
    }

    /// Returns the number of active calls of a service.
    async fn calls(&self, tier: &Tier, service: &Process) -> usize {
        let begins = format!("{}::{}::rq_active::", tier.name, service.address);
        let page = self.cluster_lines().await;
        let count = page.iter().find_map(|line| line.strip_prefix(&begins)).expect("a line");
        count.parse().expect("a number")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address that Envoy writes to the file once it listens.
fn reported_address(file: &Path) -> Option<SocketAddr> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Calls `look` until it returns a result. Fails after [`WAIT_LIMIT`].
async fn soon<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < WAIT_LIMIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Envoy and the services to which it forwards calls.
struct Site {
    envoy: Envoy,
    rendering: Vec<Process>,
    generation: Vec<Process>,
    /// Envoy's ports: rendering, then generation.
    ports: [Port; 2],
}

impl Site {
    async fn start() -> Self {
        let ports = [Port::reserve(), Port::reserve()];
        let generate = ports[1].uri();
        let (rendering, generation) = tokio::join!(three(move || rendering(&generate)), three(generation));
        let mut addresses = vec![(ADMIN, "127.0.0.1:0".parse().expect("an address"))];
        addresses.extend(RENDER.addresses(&ports[0], &rendering));
        addresses.extend(GENERATE.addresses(&ports[1], &generation));
        let envoy = Envoy::start(&configuration(&addresses)).await;
        let site = Self { envoy, rendering, generation, ports };
        site.wait_for_healthy([3, 3]).await;
        site
    }

    /// Waits until Envoy finds this number of healthy services in each tier.
    async fn wait_for_healthy(&self, well: [usize; 2]) {
        let now = async || [self.envoy.healthy_count(&RENDER).await, self.envoy.healthy_count(&GENERATE).await];
        soon("Envoy reports the healthy endpoints", async || (now().await == well).then_some(())).await;
    }

    /// Returns the first service of a tier that has more than `than` calls.
    async fn with_more_calls(&self, tier: &Tier, services: &[Process], than: usize) -> usize {
        let look = async || {
            for (number, service) in services.iter().enumerate() {
                if self.envoy.calls(tier, service).await > than {
                    return Some(number);
                }
            }
            None
        };
        soon("a service has calls", look).await
    }
}

fn rendering(generate: &str) -> Process {
    let model = default_model().display().to_string();
    Process::start("127.0.0.1:0", &["render-svc", "--models", &model, "--generate", generate])
}

async fn three(start: impl Fn() -> Process + Send + 'static) -> Vec<Process> {
    tokio::task::spawn_blocking(move || (0..3).map(|_| start()).collect()).await.expect("they start")
}

async fn drained(mut service: Process) {
    let ended = tokio::task::spawn_blocking(move || service.terminate());
    assert_eq!(ended.await.expect("it ends"), Some(0));
}

/// A caller that repeats one request and checks that every answer equals the first.
struct Caller {
    answers: watch::Receiver<usize>,
    broken: Arc<Mutex<Vec<Status>>>,
    asking: JoinHandle<()>,
}

impl Caller {
    fn start<T, F>(ask: impl Fn() -> F + Send + 'static, stop: watch::Receiver<bool>) -> Self
    where
        T: Debug + PartialEq + Send + Sync + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let (counter, answers) = watch::channel(0);
        let broken = Arc::new(Mutex::new(Vec::new()));
        let statuses = Arc::clone(&broken);
        let asking = tokio::spawn(async move {
            let first = ask().await.expect("no service has ended yet");
            while !*stop.borrow() {
                tokio::time::sleep(PAUSE).await;
                match ask().await {
                    Ok(answer) => {
                        assert_eq!(answer, first);
                        counter.send_modify(|count| *count += 1);
                    }
                    Err(status) => statuses.lock().expect("no panic").push(status),
                }
            }
        });
        Self { answers, broken, asking }
    }

    /// Waits for two more answers. The request of the second answer starts after this call.
    fn wait_for_answers(&self) -> impl Future<Output = ()> {
        let mut answers = self.answers.clone();
        let enough = *answers.borrow() + 2;
        async move {
            let more = answers.wait_for(|count| *count >= enough);
            tokio::time::timeout(WAIT_LIMIT, more).await.expect("further answers").expect("all answers are equal");
        }
    }
}

/// Callers of one kind.
struct Callers(Vec<Caller>);

impl Callers {
    /// Returns the number of calls that failed since the last check. Panics if a caller has more
    /// than one failed call, or if a call failed before its answer began. Envoy ends a broken call
    /// with INTERNAL. A broken stream reports ABORTED, to distinguish it from a rejected call.
    fn broken(&self) -> usize {
        let is_cut = |status: &Status| matches!(status.code(), Code::Internal | Code::Aborted);
        let broken = |caller: &Caller| {
            let statuses = std::mem::take(&mut *caller.broken.lock().expect("no panic"));
            assert!(statuses.len() < 2 && statuses.iter().all(is_cut), "{statuses:?}");
            statuses.len()
        };
        self.0.iter().map(broken).sum()
    }

    /// Ends the callers and returns the number of answers.
    async fn end(self) -> usize {
        let mut answers = 0;
        for caller in self.0 {
            caller.asking.await.expect("all answers are equal");
            answers += *caller.answers.borrow();
        }
        answers
    }
}

/// All callers.
struct Load {
    renders: Callers,
    tasks: Callers,
    streams: Callers,
    stop: watch::Sender<bool>,
}

impl Load {
    fn start(site: &Site) -> Self {
        let stop = watch::Sender::new(false);
        let [rendering, generation] = site.ports.each_ref().map(Port::channel);
        let renders = (0..RENDERS).map(|number| {
            let channel = rendering();
            Caller::start(move || render(channel.clone(), number), stop.subscribe())
        });
        let tasks = (0..TASKS).map(|number| {
            let client = TaskServiceClient::new(rendering());
            Caller::start(move || ask(client.clone(), task(number, TOKENS), watch::Sender::new(0)), stop.subscribe())
        });
        let streams = (0..STREAMS).map(|number| {
            let channel = generation();
            Caller::start(move || stream(channel.clone(), number), stop.subscribe())
        });
        let (renders, tasks, streams) = (renders.collect(), tasks.collect(), streams.collect());
        Self { renders: Callers(renders), tasks: Callers(tasks), streams: Callers(streams), stop }
    }

    async fn wait_for_answers(&self) {
        let callers = [&self.renders, &self.tasks, &self.streams];
        let more: Vec<_> = callers.iter().flat_map(|callers| &callers.0).map(Caller::wait_for_answers).collect();
        for more in more {
            more.await;
        }
    }

    /// Returns the number of broken renders, tasks and streams.
    fn broken(&self) -> [usize; 3] {
        [&self.renders, &self.tasks, &self.streams].map(Callers::broken)
    }

    /// Returns the number of answered renders, tasks and streams.
    async fn end(self) -> [usize; 3] {
        self.stop.send_replace(true);
        [self.renders.end().await, self.tasks.end().await, self.streams.end().await]
    }
}

async fn render(channel: Channel, number: usize) -> Result<RenderResponse, Status> {
    let request = RenderRequest { conversation: task(number, 1).conversation, ..RenderRequest::default() };
    let response = RenderServiceClient::new(channel).render(request).await?.into_inner();
    Ok(RenderResponse { timings: None, ..response })
}

/// Returns the text of an answer and its number of tokens. An answer that breaks off is ABORTED.
async fn stream(channel: Channel, number: usize) -> Result<(String, u32), Status> {
    let ids = (1..33).map(|id| id + number as u32).collect();
    let request = generate::GenerateRequest {
        input: Some(Input::TokenIds(generate::TokenIds { ids })),
        sampling: Some(Sampling { seed: Some(1), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(TOKENS), ignore_eos: true, ..Stop::default() }),
        ..generate::GenerateRequest::default()
    };
    let mut events = GenerateServiceClient::new(channel).generate(request).await?.into_inner();
    let (mut text, mut usage) = (String::new(), None);
    while let Some(response) = events.message().await.map_err(|status| Status::aborted(format!("{status:?}")))? {
        match response.event {
            Some(Event::Delta(delta)) => text.push_str(&delta.text),
            Some(Event::Summary(summary)) => usage = summary.usage,
            _ => {}
        }
    }
    Ok((text, usage.expect("an end").completion_tokens))
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_behind_envoy_breaks_no_call_and_kill_only_active_calls() {
    let mut site = Site::start().await;
    let load = Load::start(&site);
    load.wait_for_answers().await;

    drained(site.generation.remove(0)).await;
    drained(site.rendering.remove(0)).await;
    site.wait_for_healthy([2, 2]).await;
    load.wait_for_answers().await;
    assert_eq!(load.broken(), [0; 3], "renders, tasks and streams while one of each tier drains");

    // Two render services watch the victim's health. All streams may be among its calls. The
    // threshold requires at least one more call.
    let victim = site.with_more_calls(&GENERATE, &site.generation, 2 + STREAMS).await;
    site.generation.remove(victim).kill();
    site.wait_for_healthy([2, 1]).await;
    load.wait_for_answers().await;
    let [renders, tasks, streams] = load.broken();
    assert_eq!([renders, tasks], [0; 2], "renders and tasks when a generation service is killed");

    let victim = site.with_more_calls(&RENDER, &site.rendering, RENDERS).await;
    site.rendering.remove(victim).kill();
    site.wait_for_healthy([1, 1]).await;
    load.wait_for_answers().await;
    // A render's answer may be complete except for its trailers. Envoy then cannot retry it at
    // another service.
    let [renders, tasks, none] = load.broken();
    assert_eq!(none, 0, "streams when a render service is killed");

    load.wait_for_answers().await;
    assert_eq!(load.broken(), [0; 3], "renders, tasks and streams when one of each tier is left");
    let answered = load.end().await;
    let broken = [renders, tasks, streams];
    eprintln!("renders, tasks and streams: {answered:?} answered, {broken:?} broke while they were");
}
