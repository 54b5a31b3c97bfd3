//! What the suite stands on: where things are, and real services started in-process on free loopback ports.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};

use gen_svc::engine::{Config, DtypeChoice, Engine};
use gen_svc::serve::{Control, Served};
use render_svc::adapters::{Dialect, Input, Registry};
use render_svc::args::GenerationArgs;
use render_svc::chat::Conversation;
use render_svc::grpc::Renderer;
use render_svc::limits::Limits;
use render_svc::models::{Library, Model, Models, Sources};
use render_svc::render::render;
use render_svc::task::TaskRunner;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tandem_common::serve::{Later, Security, ServeArgs, ServeError};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_process::{Service, Signal};
use tandem_template::LocalTime;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{SetOnce, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

/// SplitMix64 of a counter: numbers that Python makes just so for the goldens. Source: Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014.
#[must_use]
pub fn scramble(counter: u64) -> u64 {
    let z = counter.wrapping_add(SCRAMBLE_STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const SCRAMBLE_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers as random as tests need them, the same for the same seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        let bits = scramble(self.0);
        self.0 = self.0.wrapping_add(SCRAMBLE_STEP);
        bits
    }

    /// One of the numbers below `end`, nearly all as likely.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Within -1..1.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// So many, each within -1..1.
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }
}

/// The repository's root.
#[must_use]
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// The default model's file.
///
/// # Panics
/// It is not there: `cargo xtask setup` fetches it.
#[must_use]
pub fn default_model() -> PathBuf {
    let path = repository().join(".tandem/models/SmolLM2-135M-Instruct-Q4_1.gguf");
    assert!(path.is_file(), "{} is missing: run `cargo xtask setup`", path.display());
    path
}

/// The corpus beside the repository, where there is one.
#[must_use]
pub fn corpus() -> Option<PathBuf> {
    let path = repository().parent()?.join("shared/corpus");
    path.is_dir().then_some(path)
}

/// The Python that has the client's packages: TANDEM_PYTHON, or the environment that `cargo xtask test` makes.
#[must_use]
pub fn python() -> Command {
    let made = repository().join(".tandem/venv/bin/python");
    Command::new(std::env::var_os("TANDEM_PYTHON").map_or(made, PathBuf::from))
}

/// Envoy: TANDEM_ENVOY, or the one that `cargo xtask test` fetches.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn envoy() -> PathBuf {
    let fetched = repository().join(".tandem/envoy/envoy");
    let path = std::env::var_os("TANDEM_ENVOY").map_or(fetched, PathBuf::from);
    assert!(path.is_file(), "{} is missing: `cargo xtask test` fetches it", path.display());
    path
}

/// One of the project's binaries, built first if need be: a test's own build makes only the test.
///
/// # Panics
/// It does not build.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static BUILT: LazyLock<bool> = LazyLock::new(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "--quiet", "--workspace", "--bins"];
        Command::new(cargo).current_dir(repository()).args(build).status().is_ok_and(|status| status.success())
    });
    assert!(*BUILT, "the binaries do not build");
    let suite = std::env::current_exe().expect("a path");
    let folder = suite.ancestors().nth(2).expect("the suite lies in target/PROFILE/deps");
    folder.join(name)
}

/// What transformers makes of the default model, from `goldens/make_smollm2.py`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Golden {
    /// Names the case.
    pub id: String,
    /// Role and content.
    pub messages: Vec<Value>,
    /// The prompt that the model's template makes of them.
    pub prompt: String,
    /// Its token ids.
    pub prompt_ids: Vec<u32>,
    /// The 64 ids that greedy decoding goes on with in f32, fewer where an eos ended it.
    pub greedy_ids: Vec<u32>,
}

/// Every golden of `goldens/smollm2.json`.
///
/// # Panics
/// The file is not what its script writes.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    let path = repository().join("tests/goldens/smollm2.json");
    let text = std::fs::read_to_string(path).expect("the goldens");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    serde_json::from_value(file["cases"].take()).expect("cases")
}

/// A request to an adapter: a JSON object with `messages`, `tools`, `documents` and `template_args`.
#[derive(Debug)]
pub struct AdapterRequest {
    conversation: Conversation,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

impl AdapterRequest {
    /// The keys `continue_final_message` and `add_generation_prompt`, whatever their values, continue the last message and leave
    /// out the beginning of an answer.
    ///
    /// # Panics
    /// There are no messages.
    #[must_use]
    pub fn new(request: &Value) -> Self {
        let continue_final_message = request.get("continue_final_message").is_some();
        Self {
            conversation: Conversation {
                messages: request["messages"].as_array().expect("messages").clone(),
                tools: request.get("tools").cloned(),
                documents: request.get("documents").cloned(),
                template_args: request.get("template_args").and_then(Value::as_object).cloned().unwrap_or_default(),
            },
            add_generation_prompt: !continue_final_message && request.get("add_generation_prompt").is_none(),
            continue_final_message,
        }
    }

    /// What an adapter is given.
    #[must_use]
    pub fn input(&self) -> Input<'_> {
        Input {
            conversation: &self.conversation,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            template: None,
            dialect: Dialect::HuggingFace,
            now: LocalTime::EPOCH,
            limits: Limits::default(),
            marks: None,
        }
    }
}

/// What the command line answers to a JSON request.
///
/// # Panics
/// The request cannot be read.
#[must_use]
pub fn answer(models: &Models, request: &Value) -> Value {
    let job = render_svc::json::request(&request.to_string(), LocalTime::EPOCH);
    render_svc::json::answer(job.and_then(|job| render(models, &Registry::default(), job)))
}

/// A `tokenizer.json` of bytes and these tokens, each with whether it is special; the first has the id 256.
#[must_use]
pub fn byte_tokenizer(added: &[(&str, bool)]) -> Value {
    let token = |(id, (content, special)): (usize, &(&str, bool))| {
        json!({"id": id, "content": content, "special": special, "normalized": false, "single_word": false,
               "lstrip": false, "rstrip": false})
    };
    let added: Vec<_> = (256..).zip(added).map(token).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let model = json!({"type": "BPE", "vocab": byte_vocabulary(), "merges": []});
    json!({"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": bytes, "decoder": bytes})
}

/// The byte-level alphabet: printable Latin-1 bytes as themselves, the others as what follows U+00FF.
fn byte_vocabulary() -> Map<String, Value> {
    let mut others = '\u{100}'..;
    let is_printable = |byte: u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let spelled = |byte: u8| if is_printable(byte) { char::from(byte) } else { others.next().expect("enough") };
    let spelled: Vec<char> = (0..=255).map(spelled).collect();
    spelled.iter().enumerate().map(|(id, char)| (char.to_string(), id.into())).collect()
}

/// A model folder without weights, in a temporary place.
#[derive(Debug)]
pub struct ModelFolder {
    parent: TempDir,
    name: String,
    config: Value,
    tokenizer: Option<Value>,
    architecture: Option<String>,
}

impl ModelFolder {
    /// A model of that id about which nothing is known but a bos token.
    ///
    /// # Panics
    /// There is no temporary place.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let parent = TempDir::new().expect("a temporary folder");
        Self { parent, name: name.to_owned(), config: json!({"bos_token": "<s>"}), tokenizer: None, architecture: None }
    }

    /// The same with a chat template.
    #[must_use]
    pub fn with_template(mut self, template: &str) -> Self {
        self.config["chat_template"] = template.into();
        self
    }

    /// The same with a tokenizer of one letter.
    #[must_use]
    pub fn with_tokenizer(mut self) -> Self {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let model = json!({"type": "BPE", "vocab": {"a": 0}, "merges": []});
        self.tokenizer = Some(json!({"version": "1.0", "model": model, "pre_tokenizer": bytes, "decoder": bytes}));
        self
    }

    /// The same with a tokenizer of bytes and these tokens, each with whether it is special; the first has the id 256.
    #[must_use]
    pub fn with_tokens(mut self, added: &[(&str, bool)]) -> Self {
        self.tokenizer = Some(byte_tokenizer(added));
        self
    }

    /// The same with a tokenizer that puts the token `<s>`, id 256, before a text and `</s>`, id 257, after it.
    #[must_use]
    pub fn with_tokens_around(self) -> Self {
        let mut model = self.with_tokens(&[("<s>", true), ("</s>", true)]);
        let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let single = json!([special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>")]);
        let ids = |token: &str, id: u32| json!({"id": token, "ids": [id], "tokens": [token]});
        let special_tokens = json!({"<s>": ids("<s>", 256), "</s>": ids("</s>", 257)});
        let tokenizer = model.tokenizer.as_mut().expect("set above");
        tokenizer["post_processor"] =
            json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special_tokens});
        model
    }

    /// The same with this entry in tokenizer_config.json.
    #[must_use]
    pub fn with_setting(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    /// The same with a config.json of this architecture.
    #[must_use]
    pub fn with_architecture(mut self, name: &str) -> Self {
        self.architecture = Some(name.to_owned());
        self
    }

    /// The same in a folder of this name inside the temporary place, such as `owner/name`.
    #[must_use]
    pub fn at(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Writes the model and loads it.
    ///
    /// # Panics
    /// It does not load.
    #[must_use]
    pub fn models(&self) -> Models {
        Model::load(&self.path()).expect("the model loads").into()
    }

    /// Writes the model. The folder lives as long as this.
    ///
    /// # Panics
    /// It cannot be written.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let path = self.parent.path().join(&self.name);
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("tokenizer_config.json"), self.config.to_string()).expect("a file");
        if let Some(architecture) = &self.architecture {
            let config = json!({"model_type": architecture});
            std::fs::write(path.join("config.json"), config.to_string()).expect("a file");
        }
        if let Some(tokenizer) = &self.tokenizer {
            std::fs::write(path.join("tokenizer.json"), tokenizer.to_string()).expect("a file");
        }
        path
    }
}

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    /// Starts what `serve` makes of a listener on a free loopback port and a signal to stop.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start<F, S>(serve: F) -> Self
    where
        F: FnOnce(TcpListener, oneshot::Receiver<()>) -> S,
        S: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, stopped));
        Self { address, stop: Some(stop), served }
    }

    /// A connection to it.
    ///
    /// # Panics
    /// It does not answer.
    pub async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        endpoint.connect().await.expect("the service answers")
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// It failed.
    pub async fn ended(self) {
        self.served.await.expect("no panic").expect("a clean end");
    }

    /// Why it failed.
    ///
    /// # Panics
    /// It did not.
    pub async fn failure(self) -> ServeError {
        self.served.await.expect("no panic").expect_err("should fail")
    }

    /// Drains it.
    ///
    /// # Panics
    /// It failed.
    pub async fn stop(mut self) {
        self.stop.take();
        self.served.await.expect("no panic").expect("a clean end");
    }
}

/// A render service for these models, in front of `generation` where there is one.
///
/// # Panics
/// A model does not load.
pub async fn render_service(models: &[PathBuf], generation: Option<SocketAddr>) -> Running {
    let sources = Sources { models: models.to_owned(), config: None };
    serve_library(Library::open(sources, Registry::default()).expect("the models load").into(), generation).await
}

/// The default model alone.
///
/// # Panics
/// It does not load.
#[must_use]
pub fn default_library() -> Arc<Library> {
    let sources = Sources { models: vec![default_model()], config: None };
    Library::open(sources, Registry::default()).expect("the model loads").into()
}

/// A render service for these models, served in this way.
///
/// # Panics
/// A model does not load.
pub async fn render_service_as(models: &[PathBuf], args: ServeArgs) -> Running {
    let sources = Sources { models: models.to_owned(), config: None };
    let library = Library::open(sources, Registry::default()).expect("the models load").into();
    serve_library_as(library, None, args).await
}

/// A render service with this library, in front of `generation` where there is one.
///
/// # Panics
/// No port is free.
pub async fn serve_library(library: Arc<Library>, generation: Option<SocketAddr>) -> Running {
    serve_library_as(library, generation, ServeArgs::default()).await
}

async fn serve_library_as(library: Arc<Library>, generation: Option<SocketAddr>, args: ServeArgs) -> Running {
    let generate = generation.iter().map(|address| format!("http://{address}").parse().expect("an address")).collect();
    serve_library_before(library, GenerationArgs { generate, ..GenerationArgs::default() }, args).await
}

/// A render service with this library, before this generation service, served in this way.
///
/// # Panics
/// The credentials cannot be used.
pub async fn serve_library_before(library: Arc<Library>, generation: GenerationArgs, args: ServeArgs) -> Running {
    let runner = TaskRunner::new(&generation).expect("credentials");
    Running::start(move |listener, stopped| async move {
        let stopped = async move {
            let _ = stopped.await;
        };
        let security = Security::open(&args.security)?;
        let renderer = Renderer::new(library, Limits::default());
        let routes = render_svc::serve::routes(renderer, runner, args.max_message_bytes);
        render_svc::serve::serve((listener, security), &args, Later::new(SetOnce::from(routes)), stopped).await
    })
    .await
}

/// A generation service with the default model.
#[derive(Debug)]
pub struct Generation {
    /// The service.
    pub running: Running,
    /// Where its control is.
    pub control: SocketAddr,
    /// Its engine, for a look at its gauges.
    pub engine: Engine,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
}

impl Generation {
    /// Loads the model and serves it.
    ///
    /// # Panics
    /// The model does not load.
    pub async fn start() -> Self {
        // Tests run side by side: one thread each keeps them out of one another's way.
        Self::start_with(Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(default_model()) }).await
    }

    /// The same, as configured.
    ///
    /// # Panics
    /// The model does not load.
    pub async fn start_with(config: Config) -> Self {
        Self::start_as(config, ServeArgs::default()).await
    }

    /// The same, served in this way.
    ///
    /// # Panics
    /// The model does not load.
    pub async fn start_as(config: Config, args: ServeArgs) -> Self {
        let load = || Engine::start(config).expect("the model loads");
        let (engine, _thread) = tokio::task::spawn_blocking(load).await.expect("no panic");
        Self::serving(engine, args).await
    }

    /// Serves an engine of the default model's tokenizer.
    ///
    /// # Panics
    /// No port is free.
    pub async fn serving(engine: Engine, args: ServeArgs) -> Self {
        let tokenizer = Artifacts::load(&default_model()).expect("artifacts").tokenizer().expect("a tokenizer");
        let served = engine.clone();
        let control_listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let control = control_listener.local_addr().expect("an address");
        let running = Running::start(move |listener, stopped| async move {
            let stopped = async move {
                let _ = stopped.await;
            };
            let security = Security::open(&args.security)?;
            let control = Control { listener: control_listener, security: security.clone() };
            let loaded = Served::default();
            loaded.set(served, args.max_message_bytes);
            gen_svc::serve::serve(loaded, (listener, security), Some(control), &args, stopped).await
        })
        .await;
        Self { running, control, engine, tokenizer }
    }
}

/// A service as a child process, which can be ended and started again at the same address. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    service: Service,
    /// The address that it listens on.
    pub address: String,
    /// The address of its metrics page, if it has one.
    pub metrics: Option<String>,
    command: Vec<String>,
}

impl Process {
    /// Runs `serve` of a program with arguments, and waits until it is ready.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(address: &str, command: &[impl AsRef<str>]) -> Self {
        Self::start_in(address, command, &[], Stdio::null())
    }

    /// The same with environment variables, and a destination of its log.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_in(address: &str, command: &[impl AsRef<str>], variables: &[(&str, &str)], log: Stdio) -> Self {
        let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let (name, arguments) = command.split_first().expect("a program");
        let mut program = Command::new(binary(name));
        program.args(["serve", "--drain-seconds", "60", "--listen", address]).args(arguments);
        program.envs(variables.iter().copied()).stderr(log);
        let service = Service::start(name, &mut program).unwrap_or_else(|error| panic!("{error}"));
        let (address, metrics) = (service.address().to_owned(), service.metrics().map(str::to_owned));
        Self { service, address, metrics, command }
    }

    /// Ends it with SIGKILL.
    ///
    /// # Panics
    /// It had ended.
    pub fn kill(&mut self) {
        self.service.kill().expect("it is killed");
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) {
        self.service.signal(signal).expect("it is signalled");
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// It cannot be waited for.
    pub fn wait(&mut self) -> ExitStatus {
        self.service.wait().expect("it ends")
    }

    /// Ends it with SIGTERM, and returns the exit code.
    ///
    /// # Panics
    /// It cannot be signalled or waited for.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait().code()
    }

    /// Starts it again, once it has ended.
    #[must_use]
    pub fn start_again(self) -> Self {
        Self::start(&self.address, &self.command)
    }

    /// Resident memory, in bytes.
    ///
    /// # Panics
    /// It has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.service.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.service.kill();
    }
}
