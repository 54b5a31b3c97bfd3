//! A render-svc with fixed answers, which records the requests.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::chat_message::Content;
use tandem_common::pb::chat::v1::{Block, ChatMessage};
use tandem_common::pb::generate::v1::{Delta, FinishReason, Finished, Usage};
use tandem_common::pb::render::v1 as render;
use tandem_common::pb::render::v1::registry_service_server::{RegistryService, RegistryServiceServer};
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::task_service_server::{TaskService, TaskServiceServer};
use tandem_common::pb::task::v1::{RunTaskRequest, RunTaskResponse, TaskFinished};
use tandem_common::serve::{DeferredRoutes, Health, SecureListener, Security, SecurityArgs, ServeArgs};
use tandem_common::status::Reason;
use tandem_tests::{Running, Terminal, binary};
use tokio::sync::SetOnce;
use tokio_stream::{Stream, StreamExt as _};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The model's id; that of a model whose authors recommend sampling values.
pub(super) const MODEL: &str = "SmolLM2-135M-Instruct-Q4_1";

/// The service. It answers the user's last message by these rules:
///
/// - `print TEXT`: TEXT, with `\n` as newline and `\e` as escape, in deltas of three characters.
/// - `slow`: a word, and then nothing.
/// - `too long`: a refusal.
/// - `no images`: a refusal of images.
/// - any other: `answer N` to request number N.
#[derive(Clone)]
pub(super) struct Fake {
    requests: Arc<Mutex<Vec<RunTaskRequest>>>,
    running: Arc<Running>,
}

impl Fake {
    pub(super) async fn start() -> Self {
        Self::start_with_args(SecurityArgs::default()).await
    }

    pub(super) async fn start_with_args(security: SecurityArgs) -> Self {
        let requests: Arc<Mutex<Vec<_>>> = Arc::default();
        let api = Api { requests: Arc::clone(&requests) };
        let routes = Routes::new(TaskServiceServer::new(api.clone())).add_service(RegistryServiceServer::new(api));
        Self { requests, running: Arc::new(serve(routes, security).await) }
    }

    pub(super) fn address(&self) -> String {
        self.running.address.to_string()
    }

    pub(super) fn port(&self) -> u16 {
        self.running.address.port()
    }

    /// Starts a chat with this service at a terminal, and waits for its prompt.
    pub(super) fn chat(&self, arguments: &[&str], columns: u16) -> Terminal {
        let address = self.address();
        let all = [&["--connect", &address], arguments].concat();
        let mut terminal = Terminal::start(&client(), &all, columns);
        terminal.wait_for("/help lists the commands.");
        terminal.wait_for("> ");
        terminal
    }

    /// Returns the last request's messages as role and text, after its answer was printed.
    pub(super) fn last(&self) -> Vec<(String, String)> {
        let requests = self.requests.lock().expect("no panic");
        let request = requests.last().expect("a request");
        let messages = &request.conversation.as_ref().expect("a conversation").messages;
        messages.iter().map(|message| (message.role.clone(), text(message).to_owned())).collect()
    }

    /// Returns the content blocks of the last request's last message.
    pub(super) fn last_blocks(&self) -> Vec<Block> {
        let request = self.requests().pop().expect("a request");
        match request.conversation.and_then(|mut it| it.messages.pop()).and_then(|message| message.content) {
            Some(Content::Blocks(list)) => list.blocks,
            other => panic!("no blocks: {other:?}"),
        }
    }

    /// Returns the text of the last request's last message.
    pub(super) fn last_text(&self) -> String {
        self.last().pop().expect("a message").1
    }

    pub(super) fn requests(&self) -> Vec<RunTaskRequest> {
        self.requests.lock().expect("no panic").clone()
    }
}

pub(super) fn client() -> PathBuf {
    binary("tandem-chat")
}

/// Runs the client without a terminal.
pub(super) fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(client());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Serves these routes as render-svc does.
pub(super) async fn serve(routes: Routes, security: SecurityArgs) -> Running {
    let args = ServeArgs { security, ..ServeArgs::default() };
    Running::start(move |listener, shutdown| async move {
        let security = Security::open(&args.security)?;
        let routes = DeferredRoutes::new(SetOnce::from(routes));
        let health = Health::new(render_svc::serve::SERVICE_NAMES);
        render_svc::serve::serve(SecureListener { listener, security }, &args, health, routes, shutdown).await
    })
    .await
}

/// Returns a message's text, or that of its last block.
fn text(message: &ChatMessage) -> &str {
    match &message.content {
        Some(Content::Text(text)) => text,
        Some(Content::Blocks(list)) => match list.blocks.last().and_then(|block| block.kind.as_ref()) {
            Some(Kind::Text(block)) => &block.text,
            other => panic!("no text: {other:?}"),
        },
        None => panic!("no content"),
    }
}

/// The services of [`Fake`].
#[derive(Clone)]
pub(super) struct Api {
    requests: Arc<Mutex<Vec<RunTaskRequest>>>,
}

type Events = Pin<Box<dyn Stream<Item = Result<RunTaskResponse, Status>> + Send>>;

#[tonic::async_trait]
impl TaskService for Api {
    type RunTaskStream = Events;

    async fn run_task(&self, request: Request<RunTaskRequest>) -> Result<Response<Events>, Status> {
        let request = request.into_inner();
        let last = request.conversation.as_ref().and_then(|conversation| conversation.messages.last());
        let question = text(last.expect("a message")).to_owned();
        let number = {
            let mut requests = self.requests.lock().expect("no panic");
            requests.push(request);
            requests.len()
        };
        match question.as_str() {
            "too long" => {
                Err(refusal(Reason::PromptTooLong, Code::InvalidArgument, "prompt has 9000 tokens, limit 8192"))
            }
            "no images" => {
                Err(refusal(Reason::ImagesNotSupported, Code::FailedPrecondition, "images are not supported"))
            }
            "slow" => Ok(Response::new(Box::pin(tokio_stream::once(delta("word ")).chain(tokio_stream::pending())))),
            _ => {
                Ok(Response::new(answer(question.strip_prefix("print ").map_or_else(
                    || format!("answer {number}"),
                    |text| text.replace("\\n", "\n").replace("\\e", "\x1b"),
                ))))
            }
        }
    }
}

fn refusal(reason: Reason, code: Code, message: &str) -> Status {
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason.name(), "tandem", []))
}

/// Streams a text in parts of three characters, with pauses, as tokens do not end with words.
fn answer(text: String) -> Events {
    let chars: Vec<char> = text.chars().collect();
    let parts: Vec<_> = chars.chunks(3).map(|part| delta(&part.iter().collect::<String>())).collect();
    let finished = TaskFinished {
        message: Some(ChatMessage {
            role: "assistant".to_owned(),
            content: Some(Content::Text(text)),
            ..ChatMessage::default()
        }),
        finish: Some(Finished { reason: FinishReason::Stop.into(), ..Finished::default() }),
        usage: Some(Usage {
            prompt_tokens: 2,
            completion_tokens: 1,
            total_tokens: 3,
            cached_tokens: 0,
            image_tokens: 0,
        }),
        timings: None,
        seed: 7,
        parsed: None,
    };
    let end = tokio_stream::once(Ok(RunTaskResponse { event: Some(Event::Finished(finished)) }));
    let parts = tokio_stream::iter(parts).throttle(Duration::from_millis(1));
    Box::pin(parts.chain(end))
}

fn delta(text: &str) -> Result<RunTaskResponse, Status> {
    let delta = Delta { text: text.to_owned(), ..Delta::default() };
    Ok(RunTaskResponse { event: Some(Event::Delta(delta)) })
}

#[tonic::async_trait]
impl RegistryService for Api {
    async fn list_models(
        &self,
        _: Request<render::ListModelsRequest>,
    ) -> Result<Response<render::ListModelsResponse>, Status> {
        let model = render::ModelInfo { id: MODEL.to_owned(), context_length: 8192, ..render::ModelInfo::default() };
        Ok(Response::new(render::ListModelsResponse { models: vec![model] }))
    }

    async fn get_model(
        &self,
        _: Request<render::GetModelRequest>,
    ) -> Result<Response<render::GetModelResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_adapters(
        &self,
        _: Request<render::ListAdaptersRequest>,
    ) -> Result<Response<render::ListAdaptersResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn explain_resolution(
        &self,
        _: Request<render::ExplainResolutionRequest>,
    ) -> Result<Response<render::ExplainResolutionResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}
