//! The gRPC surface: wire → domain → wire. Thin handlers, nothing decided here.

pub(crate) mod convert;

use std::sync::Arc;

use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_server::RegistryService;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_server::TaskService;
use tandem_common::serve::deadline;
use tonic::{Request, Response, Status};

use crate::error::Error;
use crate::models::Models;
use crate::render::{RenderJob, Rendered, render};
use crate::task::{Answer, Task, TaskRunner};

/// Serves [`RenderService`] and [`RegistryService`].
#[derive(Debug, Clone)]
pub struct RenderApi {
    models: Arc<Models>,
}

impl RenderApi {
    /// Serves these models.
    #[must_use]
    pub fn new(models: Arc<Models>) -> Self {
        Self { models }
    }
}

/// Renders off the threads that serve connections: a long conversation must not hold up others.
async fn render_aside(models: &Arc<Models>, job: RenderJob) -> Result<Rendered, Error> {
    let models = Arc::clone(models);
    tokio::task::spawn_blocking(move || render(&models, job)).await?
}

#[tonic::async_trait]
impl RenderService for RenderApi {
    async fn render(&self, request: Request<pb::RenderRequest>) -> Result<Response<pb::RenderResponse>, Status> {
        let job = convert::render_job(request.into_inner()).map_err(Error::from)?;
        Ok(Response::new(convert::rendered(render_aside(&self.models, job).await?)))
    }

    async fn tokenize(&self, request: Request<pb::TokenizeRequest>) -> Result<Response<pb::TokenizeResponse>, Status> {
        let pb::TokenizeRequest { model, text, add_special_tokens } = request.into_inner();
        let model = Arc::clone(self.models.get(&model)?);
        let encode = move || Ok::<_, Error>(model.tokenizer()?.encode(&text, add_special_tokens)?);
        let token_ids = tokio::task::spawn_blocking(encode).await.map_err(Error::from)??;
        Ok(Response::new(pb::TokenizeResponse { token_ids }))
    }

    async fn detokenize(
        &self,
        request: Request<pb::DetokenizeRequest>,
    ) -> Result<Response<pb::DetokenizeResponse>, Status> {
        let pb::DetokenizeRequest { model, token_ids, skip_special_tokens } = request.into_inner();
        let tokenizer = self.models.get(&model)?.tokenizer()?;
        if let Some((index, &id)) = token_ids.iter().enumerate().find(|&(_, &id)| tokenizer.token_bytes(id).is_none()) {
            return Err(Error::UnknownTokenId { index, id }.into());
        }
        let text = tokenizer.decode(&token_ids, skip_special_tokens).map_err(Error::from)?;
        Ok(Response::new(pb::DetokenizeResponse { text }))
    }
}

#[tonic::async_trait]
impl RegistryService for RenderApi {
    async fn list_models(&self, _: Request<pb::ListModelsRequest>) -> Result<Response<pb::ListModelsResponse>, Status> {
        let models = self.models.iter().map(|model| convert::model_info(model)).collect::<Result<_, _>>()?;
        Ok(Response::new(pb::ListModelsResponse { models }))
    }

    async fn get_model(&self, request: Request<pb::GetModelRequest>) -> Result<Response<pb::GetModelResponse>, Status> {
        let model = convert::model_info(self.models.get(&request.into_inner().model)?)?;
        Ok(Response::new(pb::GetModelResponse { model: Some(model) }))
    }
}

/// Serves [`TaskService`].
#[derive(Debug, Clone)]
pub struct TaskApi {
    models: Arc<Models>,
    runner: TaskRunner,
}

impl TaskApi {
    /// Serves these models with this runner.
    #[must_use]
    pub fn new(models: Arc<Models>, runner: TaskRunner) -> Self {
        Self { models, runner }
    }
}

#[tonic::async_trait]
impl TaskService for TaskApi {
    type RunTaskStream = Answer;

    async fn run_task(&self, request: Request<RunTaskRequest>) -> Result<Response<Answer>, Status> {
        let deadline = deadline(request.metadata());
        let RunTaskRequest { model, conversation, options, sampling, stop, return_options } = request.into_inner();
        let job = convert::job(model, conversation, options, true).map_err(Error::from)?;
        let rendered = render_aside(&self.models, job).await?;
        let task = Task { rendered, sampling, stop, return_options, deadline };
        Ok(Response::new(self.runner.run(task).await?))
    }
}
