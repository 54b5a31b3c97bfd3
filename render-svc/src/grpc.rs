//! The gRPC surface. A handler converts the request, calls the domain and converts the answer; it
//! decides nothing.

pub(crate) mod convert;
mod registry;

use prost::Message as _;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_server::TaskService;
use tandem_common::serve::deadline;
use tonic::{Request, Response, Status};

use crate::error::Error;
use crate::executor::Executor;
use crate::task::{Answer, Task, TaskRunner};

/// Serves [`RenderService`] and `RegistryService`.
#[derive(Debug, Clone)]
pub struct RenderApi {
    executor: Executor,
}

impl RenderApi {
    /// Serves with this executor.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        Self { executor }
    }
}

#[tonic::async_trait]
impl RenderService for RenderApi {
    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<pb::RenderResponse>, Status> {
        let request = request.into_inner();
        let cost = convert::cost(&request);
        Ok(Response::new(self.executor.render(request, cost, convert::rendered).await?))
    }

    async fn batch_render(
        &self,
        request: Request<pb::BatchRenderRequest>,
    ) -> Result<Response<pb::BatchRenderResponse>, Status> {
        let pb::BatchRenderRequest { requests } = request.into_inner();
        let size = pb::RenderResponse::encoded_len;
        let results = self.executor.render_batch(requests, convert::rendered, size).await?;
        Ok(Response::new(pb::BatchRenderResponse { results: results.into_iter().map(convert::result).collect() }))
    }

    async fn validate_template(
        &self,
        request: Request<pb::ValidateTemplateRequest>,
    ) -> Result<Response<pb::ValidateTemplateResponse>, Status> {
        let pb::ValidateTemplateRequest { template } = request.into_inner();
        let outcome = self.executor.compile_template(template, convert::template).await?;
        Ok(Response::new(pb::ValidateTemplateResponse { outcome: Some(outcome) }))
    }

    async fn tokenize(&self, request: Request<pb::TokenizeRequest>) -> Result<Response<pb::TokenizeResponse>, Status> {
        let job = convert::tokenize_job(request.into_inner()).map_err(Error::from)?;
        Ok(Response::new(convert::tokenized(self.executor.tokenize(job).await?)))
    }

    async fn detokenize(
        &self,
        request: Request<pb::DetokenizeRequest>,
    ) -> Result<Response<pb::DetokenizeResponse>, Status> {
        let pb::DetokenizeRequest { model, token_ids, skip_special_tokens } = request.into_inner();
        let text = self.executor.detokenize(&model, token_ids, skip_special_tokens).await?;
        Ok(Response::new(pb::DetokenizeResponse { text }))
    }
}

/// Serves [`TaskService`].
#[derive(Debug, Clone)]
pub struct TaskApi {
    render: RenderApi,
    runner: TaskRunner,
}

impl TaskApi {
    /// Renders with the executor of `render`, and generates with `runner`.
    #[must_use]
    pub fn new(render: RenderApi, runner: TaskRunner) -> Self {
        Self { render, runner }
    }
}

#[tonic::async_trait]
impl TaskService for TaskApi {
    type RunTaskStream = Answer;

    async fn run_task(&self, request: Request<RunTaskRequest>) -> Result<Response<Answer>, Status> {
        let deadline = deadline(request.metadata());
        let RunTaskRequest {
            model,
            conversation,
            options,
            sampling,
            stop,
            return_options,
            priority,
            cache_salt,
            grammar,
            output_spec,
        } = request.into_inner();
        let request = pb::RenderRequest { model, conversation, options, return_token_ids: true, return_offsets: false };
        let cost = convert::cost(&request);
        let rendered = self.render.executor.render(request, cost, |rendered| rendered).await?;
        let task =
            Task { rendered, sampling, stop, return_options, priority, cache_salt, grammar, output_spec, deadline };
        Ok(Response::new(self.runner.run(task).await?))
    }
}
