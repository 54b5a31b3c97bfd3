//! The gRPC surface: wire → domain → wire. Thin handlers, nothing decided here.

mod convert;
mod registry;
pub mod task;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use prost::Message as _;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tandem_common::telemetry::Span;
use tandem_model_files::tokenizer::{Around, EncodeOptions};
use tandem_template::{ChatTemplate, RenderError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

use crate::adapters::Warning;
use crate::error::Error;
use crate::limits::Limits;
use crate::meters::RenderMeters;
use crate::models::{Library, Model};
use crate::render::{ControlTokens, Rendered, render};

/// Bytes of a request that is short: rendering it takes about as long as handing it to another thread and back.
const SHORT: usize = 4 << 10;
/// The most warnings of one request that are logged.
const LOGGED_WARNINGS: usize = 8;
/// Bytes of a warning's path that are logged; names in it are the caller's.
const LOGGED_PATH_BYTES: usize = 256;
/// The most requests of one batch.
const BATCH: usize = 1024;
/// Bytes of the most that its results may take.
const BATCH_BYTES: usize = 256 << 20;

/// Does the work of requests off the threads that serve connections, on as many as there are cores: a long conversation must not hold
/// up others. What is short, and proves to be, is done at once.
#[derive(Debug, Clone)]
pub struct Renderer {
    library: Arc<Library>,
    limits: Limits,
    cores: Arc<Semaphore>,
    meters: RenderMeters,
}

impl Renderer {
    /// Works with these models, within these limits.
    #[must_use]
    pub fn new(library: Arc<Library>, limits: Limits) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { library, limits, cores: Arc::new(Semaphore::new(cores)), meters: RenderMeters::default() }
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let start = Instant::now();
        let span = Span::current();
        let wait = span.part("wait", || []);
        let core = Arc::clone(&self.cores).acquire_owned().await;
        drop(wait);
        self.meters.waited(start.elapsed());
        let work = move || {
            let _core = core;
            span.in_scope(work)
        };
        Ok(tokio::task::spawn_blocking(work).await?)
    }

    /// Reads and renders a request, at once if it is short, and does with what came out what `answer` says.
    async fn render<T: Send + 'static>(
        &self,
        request: pb::RenderRequest,
        answer: impl FnOnce(Rendered) -> T + Send + 'static,
    ) -> Result<T, Error> {
        if is_short(&request)
            && let Some(rendered) = self.render_short(request.clone())
        {
            return rendered.map(answer);
        }
        self.render_in_turn(request, answer).await
    }

    /// The same when it is its turn. All of it may be long.
    async fn render_in_turn<T: Send + 'static>(
        &self,
        request: pb::RenderRequest,
        answer: impl FnOnce(Rendered) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let this = self.clone();
        self.run(move || Ok(answer(this.render_here(request, this.limits)?))).await?
    }

    /// Renders a short request on this thread. None if it takes longer than short ones should.
    fn render_short(&self, request: pb::RenderRequest) -> Option<Result<Rendered, Error>> {
        // What panics does so once more, where it harms nobody.
        let rendered = catch_unwind(AssertUnwindSafe(|| self.render_here(request, self.limits.short()))).ok()?;
        if matches!(rendered, Err(Error::Template(RenderError::Limit { .. }) | Error::PromptTooLarge { .. })) {
            return None;
        }
        self.meters.waited(Duration::ZERO);
        Some(rendered)
    }

    fn render_here(&self, request: pb::RenderRequest, limits: Limits) -> Result<Rendered, Error> {
        let mut job = convert::render_job(request)?;
        job.options.limits = limits;
        let rendered = render(&self.library.models(), self.library.registry(), job)?;
        self.meters.rendered(&rendered);
        log_warnings(&rendered);
        Ok(rendered)
    }

    fn model(&self, id: &str) -> Result<Arc<Model>, Error> {
        self.library.models().get(id).cloned()
    }
}

/// Logs the code, path and model of each warning. Its text may hold what the caller sent.
fn log_warnings(rendered: &Rendered) {
    let model = rendered.model.id.as_str();
    for Warning { code, path, .. } in rendered.warnings.iter().take(LOGGED_WARNINGS) {
        let path = &path[..path.floor_char_boundary(LOGGED_PATH_BYTES)];
        tracing::warn!(code = code.name(), ?path, model, "render warning");
    }
    let others = rendered.warnings.len().saturating_sub(LOGGED_WARNINGS);
    if others > 0 {
        tracing::warn!(others, model, "further render warnings of this request are not logged");
    }
}

/// Whether a request looks as if it were rendered and tokenized in a fraction of a millisecond.
fn is_short(request: &pb::RenderRequest) -> bool {
    let control_tokens = request.options.as_ref().map_or(0, |options| options.control_tokens);
    let is_plain = !request.return_offsets && control_tokens != i32::from(pb::ControlTokens::Literal);
    is_plain && request.encoded_len() <= SHORT
}

/// Serves [`RenderService`] and `RegistryService`.
#[derive(Debug, Clone)]
pub struct RenderApi {
    renderer: Renderer,
}

impl RenderApi {
    /// Serves what `renderer` does.
    #[must_use]
    pub fn new(renderer: Renderer) -> Self {
        Self { renderer }
    }

    async fn render_one(&self, request: pb::RenderRequest) -> Result<pb::RenderResponse, Error> {
        self.renderer.render(request, convert::rendered).await
    }

    /// Renders one of a batch whose results take `bytes` by now.
    async fn render_of_batch(
        &self,
        request: pb::RenderRequest,
        bytes: &AtomicUsize,
    ) -> Result<pb::RenderResponse, Error> {
        let too_large = Error::BatchResultsTooLarge { limit: BATCH_BYTES };
        if bytes.load(Ordering::Relaxed) > BATCH_BYTES {
            return Err(too_large);
        }
        // Many that are short are not.
        let response = self.renderer.render_in_turn(request, convert::rendered).await?;
        let size = response.encoded_len();
        match bytes.fetch_add(size, Ordering::Relaxed) + size > BATCH_BYTES {
            true => Err(too_large),
            false => Ok(response),
        }
    }
}

#[tonic::async_trait]
impl RenderService for RenderApi {
    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<pb::RenderResponse>, Status> {
        Ok(Response::new(self.render_one(request.into_inner()).await?))
    }

    async fn batch_render(
        &self,
        request: Request<pb::BatchRenderRequest>,
    ) -> Result<Response<pb::BatchRenderResponse>, Status> {
        let pb::BatchRenderRequest { requests } = request.into_inner();
        if requests.len() > BATCH {
            return Err(Error::BatchTooLarge { limit: BATCH, found: requests.len() }.into());
        }
        let mut results = vec![pb::RenderResult::default(); requests.len()];
        // Dropping the set, as when the caller goes away, cancels what has not begun.
        let mut set = JoinSet::new();
        let bytes = Arc::new(AtomicUsize::new(0));
        for (i, request) in requests.into_iter().enumerate() {
            let (api, bytes) = (self.clone(), Arc::clone(&bytes));
            set.spawn(Span::current().around(async move { (i, api.render_of_batch(request, &bytes).await) }));
        }
        while let Some(done) = set.join_next().await {
            let (i, result) = done.map_err(Error::from)?;
            results[i] = convert::result(result);
        }
        Ok(Response::new(pb::BatchRenderResponse { results }))
    }

    async fn validate_template(
        &self,
        request: Request<pb::ValidateTemplateRequest>,
    ) -> Result<Response<pb::ValidateTemplateResponse>, Status> {
        let pb::ValidateTemplateRequest { template } = request.into_inner();
        let outcome = self.renderer.run(move || convert::template(ChatTemplate::compile(&template))).await?;
        Ok(Response::new(pb::ValidateTemplateResponse { outcome: Some(outcome) }))
    }

    async fn tokenize(&self, request: Request<pb::TokenizeRequest>) -> Result<Response<pb::TokenizeResponse>, Status> {
        let pb::TokenizeRequest { model, text, add_special_tokens, return_offsets, control_tokens } =
            request.into_inner();
        let is_literal =
            convert::control_tokens("control_tokens", control_tokens).map_err(Error::from)? == ControlTokens::Literal;
        let model = self.renderer.model(&model)?;
        let encode = move || {
            let whole = 0..text.len();
            let literal = if is_literal { slice::from_ref(&whole) } else { &[] };
            let around = if add_special_tokens { Around::Both } else { Around::Nothing };
            let options = EncodeOptions { around, literal, offsets: return_offsets };
            Ok::<_, Error>(model.tokenizer()?.encode_with(&text, &options)?)
        };
        let encoding = self.renderer.run(encode).await??;
        let offsets = convert::offsets(encoding.offsets);
        Ok(Response::new(pb::TokenizeResponse { token_ids: encoding.ids, offsets }))
    }

    async fn detokenize(
        &self,
        request: Request<pb::DetokenizeRequest>,
    ) -> Result<Response<pb::DetokenizeResponse>, Status> {
        let pb::DetokenizeRequest { model, token_ids, skip_special_tokens } = request.into_inner();
        let model = self.renderer.model(&model)?;
        let decode = move || {
            let tokenizer = model.tokenizer()?;
            let mut ids = token_ids.iter().enumerate();
            if let Some((index, &id)) = ids.find(|&(_, &id)| tokenizer.token_bytes(id).is_none()) {
                return Err(Error::UnknownTokenId { index, id });
            }
            Ok(tokenizer.decode(&token_ids, skip_special_tokens)?)
        };
        let text = self.renderer.run(decode).await??;
        Ok(Response::new(pb::DetokenizeResponse { text }))
    }
}
