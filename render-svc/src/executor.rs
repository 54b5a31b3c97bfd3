//! The render pool: runs the work of requests on as many threads as there are cores, within the
//! server's limits.
//!
//! A long conversation never blocks the threads that serve connections. A short one is rendered at
//! once on such a thread, because handing it over takes about as long as rendering it. If it
//! exceeds the limits of short ones, it is rendered again in the pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use serde_json::Value;
use tandem_common::admission::FairQueue;
use tandem_common::field::{Path, Step};
use tandem_common::telemetry::Span;
use tandem_common::thread_priority;
use tandem_model_files::tokenizer::{CancelScope, Encoding};
use tandem_template::{ChatTemplate, CompileError, RenderError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::catalog::ModelCatalog;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::job::RenderJob;
use crate::limits::Limits;
use crate::metrics::RenderMetrics;
use crate::parse::{Answer, Rules};
use crate::parse_output::{Output, ParseJob, ParseStart, RunningParse, parse, rules_of};
use crate::render::{Rendered, render};
use crate::tokenize::{TokenizeJob, check_count, detokenize, tokenize};
use crate::tool_choice::CallLimits;
use crate::warning::Warning;

/// Maximum number of requests in a batch.
const MAX_BATCH_REQUESTS: usize = 1024;
/// Maximum size of a batch's results in bytes.
const MAX_BATCH_RESULT_BYTES: usize = 256 << 20;
/// Maximum number of warnings of a request that are logged.
const MAX_LOGGED_WARNINGS: usize = 8;

/// Maximum size in bytes of a request that is expected to render in a fraction of a millisecond.
const MAX_SHORT_REQUEST_BYTES: usize = 4 << 10;

/// The size in bytes from which work takes long: some ten milliseconds.
const LONG_BYTES: usize = 64 << 10;

/// The expected cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The size of the encoded message.
    bytes: usize,
    /// True if it takes a fraction of a millisecond.
    is_short: bool,
}

impl Cost {
    /// Returns the expected cost of rendering and tokenizing a request with an encoded message of
    /// this size. `is_plain`: neither offsets nor LITERAL control tokens are requested.
    #[must_use]
    pub fn of(message_bytes: usize, is_plain: bool) -> Self {
        Self { bytes: message_bytes, is_short: is_plain && message_bytes <= MAX_SHORT_REQUEST_BYTES }
    }
}

/// Renders, tokenizes and compiles for every transport.
#[derive(Debug, Clone)]
pub struct Executor {
    catalog: Arc<ModelCatalog>,
    limits: Limits,
    /// As many places as cores.
    short: FairQueue,
    /// The places for work on at least [`LONG_BYTES`]: one less, so that other work does not wait for
    /// it.
    long: FairQueue,
    metrics: RenderMetrics,
}

impl Executor {
    /// Creates a pool for these models.
    #[must_use]
    pub fn new(catalog: Arc<ModelCatalog>, limits: Limits) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let [short, long] = [cores, cores - 1].map(FairQueue::new);
        Self { catalog, limits, short, long, metrics: RenderMetrics::default() }
    }

    /// Returns the limits of a conversation.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the models and adapters.
    #[must_use]
    pub fn catalog(&self) -> &ModelCatalog {
        &self.catalog
    }

    /// Reads and renders a request, and passes the result to `answer`, all on one thread.
    ///
    /// # Errors
    /// The request is invalid, or does not render.
    pub async fn render<R, T>(
        &self,
        request: R,
        cost: Cost,
        answer: impl FnOnce(Rendered) -> T + Send + 'static,
    ) -> Result<T, Error>
    where
        R: TryInto<RenderJob, Error = Invalid> + Clone + Send + 'static,
        T: Send + 'static,
    {
        if cost.is_short
            && let Some(rendered) = self.render_short(request.clone())
        {
            return rendered.map(answer);
        }
        self.render_in_pool(request, cost, answer).await
    }

    /// Renders the requests of a batch, and returns the results in their order. `cost` estimates a
    /// request. `answer` also gets the index of the request. `size` measures a result in bytes.
    ///
    /// # Errors
    /// The batch has too many requests.
    pub async fn render_batch<R, T>(
        &self,
        requests: Vec<R>,
        cost: fn(&R) -> Cost,
        answer: impl Fn(usize, Rendered) -> T + Clone + Send + 'static,
        size: fn(&T) -> usize,
    ) -> Result<Vec<Result<T, Error>>, Error>
    where
        R: TryInto<RenderJob, Error = Invalid> + Send + 'static,
        T: Send + 'static,
    {
        if requests.len() > MAX_BATCH_REQUESTS {
            return Err(Error::BatchTooLarge { limit: MAX_BATCH_REQUESTS, found: requests.len() });
        }
        let budget = Arc::new(ResultBudget::default());
        // Dropping the set, as when the caller cancels, cancels every request that has not started.
        let mut set = JoinSet::new();
        for (i, request) in requests.into_iter().enumerate() {
            let (this, budget, answer) = (self.clone(), Arc::clone(&budget), answer.clone());
            let answer = move |rendered| answer(i, rendered);
            let cost = cost(&request);
            let render = async move { (i, this.render_within(request, cost, answer, size, &budget).await) };
            set.spawn(Span::current().around(render));
        }
        let mut results = Vec::with_capacity(set.len());
        while let Some(done) = set.join_next().await {
            results.push(done?);
        }
        results.sort_by_key(|(i, _)| *i);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }

    /// Renders one request of a batch in the pool, since many short requests together are long.
    async fn render_within<R, T>(
        &self,
        request: R,
        cost: Cost,
        answer: impl FnOnce(Rendered) -> T + Send + 'static,
        size: fn(&T) -> usize,
        budget: &ResultBudget,
    ) -> Result<T, Error>
    where
        R: TryInto<RenderJob, Error = Invalid> + Send + 'static,
        T: Send + 'static,
    {
        budget.check()?;
        let result = self.render_in_pool(request, cost, answer).await?;
        budget.take(size(&result))?;
        Ok(result)
    }

    /// Tokenizes a text.
    ///
    /// # Errors
    /// The model does not exist or has no tokenizer, or the text is too long.
    pub async fn tokenize(&self, job: TokenizeJob) -> Result<Encoding, Error> {
        let served = Arc::clone(self.catalog.models().get(&job.model)?);
        self.run(job.text.len(), move || tokenize(&served.model, &job)).await?
    }

    /// Returns the text of token ids.
    ///
    /// # Errors
    /// The model does not exist or has no tokenizer, or an id is not in its vocabulary.
    pub async fn detokenize(&self, model: &str, token_ids: Vec<u32>, skip_special: bool) -> Result<String, Error> {
        let served = Arc::clone(self.catalog.models().get(model)?);
        check_count(token_ids.len())?;
        let bytes = size_of_val(token_ids.as_slice());
        self.run(bytes, move || detokenize(&served.model, &token_ids, skip_special)).await?
    }

    /// Returns the rules that read the answers to an adapter's prompts.
    ///
    /// # Errors
    /// The model or the adapter does not exist, or the model's rules cannot be used.
    pub async fn rules(&self, model: &str, adapter: Option<String>) -> Result<Arc<Rules>, Error> {
        let served = Arc::clone(self.catalog.models().get_for(model, adapter.as_deref())?);
        // The first call renders small conversations.
        self.run(0, move || rules_of(&served, adapter.as_deref(), None)).await?
    }

    /// Returns the grammar that keeps the answer to a prompt to limits of its calls, if they need one. `tools` is a JSON
    /// list.
    ///
    /// # Errors
    /// The model or the adapter does not exist, or no grammar can be made of the tools in the model's notation.
    pub async fn tool_grammar(
        &self,
        model: &str,
        adapter: Option<String>,
        limits: CallLimits,
        tools: Option<Value>,
        prompt: String,
    ) -> Result<Option<String>, Error> {
        let served = Arc::clone(self.catalog.models().get_for(model, adapter.as_deref())?);
        // The first call renders small conversations.
        let made = move || {
            let format = &served.resolve(adapter.as_deref())?.format;
            let rules = format.answer_rules().rules.as_ref().ok();
            limits.grammar(format.notation(), rules, tools.as_ref(), served.model.tokenizer()?, &prompt)
        };
        self.run(0, made).await?
    }

    /// Reads an answer. Also returns the rules.
    ///
    /// # Errors
    /// The model does not exist, it has no such rules, or the answer is too long or has unknown ids.
    pub async fn parse(&self, job: ParseJob) -> Result<(Answer, Arc<Rules>), Error> {
        let served = Arc::clone(self.catalog.models().get(&job.model)?);
        if let Output::Ids(ids) = &job.output {
            check_count(ids.len())?;
        }
        let bytes = job.output.bytes() + job.prompt.len();
        self.run(bytes, move || parse(&served, job)).await?
    }

    /// Starts to read an answer that is still written.
    ///
    /// # Errors
    /// The model does not exist, or it has no such rules.
    pub async fn start_parse(&self, start: ParseStart) -> Result<RunningParse, Error> {
        let served = Arc::clone(self.catalog.models().get(&start.model)?);
        self.run(start.prompt.len(), move || RunningParse::start(served, &start)).await?
    }

    /// Compiles a chat template, and passes the result to `answer`.
    ///
    /// # Errors
    /// A defect of the service.
    pub async fn compile_template<T: Send + 'static>(
        &self,
        source: String,
        answer: fn(Result<ChatTemplate, CompileError>) -> T,
    ) -> Result<T, Error> {
        let bytes = source.len();
        let work = move || {
            let _scope = tandem_template::CancelScope::start(|| CancelScope::check().is_err());
            answer(ChatTemplate::compile(&source))
        };
        self.run(bytes, work).await
    }

    /// Runs `work` on this number of bytes in the pool, when it is the caller's turn. If the returned
    /// future is dropped, rendering and encoding end early.
    ///
    /// # Errors
    /// A defect of the service.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let start = Instant::now();
        let span = Span::current();
        let wait = span.part("wait", || []);
        let is_long = bytes >= LONG_BYTES;
        let queue = if is_long { &self.long } else { &self.short };
        let core = queue.place(&span.caller_id()).await;
        drop(wait);
        self.metrics.waited(start.elapsed());
        let cancelled = CancellationToken::new();
        let _gone = cancelled.clone().drop_guard();
        let work = move || {
            let (_core, _scope) = (core, CancelScope::start(cancelled));
            span.in_scope(work)
        };
        Ok(thread_priority::spawn_work(is_long, work).await?)
    }

    async fn render_in_pool<R, T>(
        &self,
        request: R,
        cost: Cost,
        answer: impl FnOnce(Rendered) -> T + Send + 'static,
    ) -> Result<T, Error>
    where
        R: TryInto<RenderJob, Error = Invalid> + Send + 'static,
        T: Send + 'static,
    {
        let this = self.clone();
        self.run(cost.bytes, move || Ok(answer(this.render_here(request, &this.limits)?))).await?
    }

    /// Renders a short request on this thread. None if it exceeds the limits of short requests.
    fn render_short(&self, request: impl TryInto<RenderJob, Error = Invalid>) -> Option<Result<Rendered, Error>> {
        let limits = self.limits.short();
        // A request that panics is rendered again in the pool, where the panic becomes an error.
        let rendered = catch_unwind(AssertUnwindSafe(|| self.render_here(request, &limits))).ok()?;
        if matches!(rendered, Err(Error::Template(RenderError::Limit { .. }) | Error::PromptTooLarge { .. })) {
            return None;
        }
        self.metrics.waited(Duration::ZERO);
        Some(rendered)
    }

    fn render_here(
        &self,
        request: impl TryInto<RenderJob, Error = Invalid>,
        limits: &Limits,
    ) -> Result<Rendered, Error> {
        let rendered = render(&self.catalog.models(), request.try_into()?, limits)?;
        self.metrics.rendered(&rendered);
        log_warnings(&rendered);
        Ok(rendered)
    }
}

/// The bytes that the results of a batch take.
#[derive(Debug, Default)]
struct ResultBudget {
    used: AtomicUsize,
}

impl ResultBudget {
    const EXCEEDED: Error = Error::BatchResultsTooLarge { limit: MAX_BATCH_RESULT_BYTES };

    /// Fails if the results exceed the limit already.
    fn check(&self) -> Result<(), Error> {
        if self.used.load(Ordering::Relaxed) > MAX_BATCH_RESULT_BYTES { Err(Self::EXCEEDED) } else { Ok(()) }
    }

    /// Adds a result. Fails if the results then exceed the limit.
    fn take(&self, bytes: usize) -> Result<(), Error> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > MAX_BATCH_RESULT_BYTES { Err(Self::EXCEEDED) } else { Ok(()) }
    }
}

/// Logs the code, field and model of each warning. The text and the rest of the path can contain caller
/// text, so they are not logged.
fn log_warnings(rendered: &Rendered) {
    let model = rendered.model.id.as_str();
    for Warning { code, path, .. } in rendered.warnings.iter().take(MAX_LOGGED_WARNINGS) {
        let field = match &path.steps()[..] {
            [root, index @ Step::Index(_), ..] => Path::default().join(&[*root, *index]),
            steps => Path::default().join(&steps[..steps.len().min(1)]),
        };
        tracing::warn!(code = code.name(), %field, model, "render warning");
    }
    let others = rendered.warnings.len().saturating_sub(MAX_LOGGED_WARNINGS);
    if others > 0 {
        tracing::warn!(others, model, "further render warnings of this request are not logged");
    }
}
