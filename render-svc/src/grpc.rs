//! The gRPC services. A handler converts the request, calls the domain and converts the answer. It
//! contains no domain logic.

mod convert;
mod parse_stream;
mod registry;
pub mod task;
mod task_paths;

use std::sync::Arc;

use prost::Message as _;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tonic::{Request, Response, Status, Streaming};

use crate::error::Error;
use crate::executor::Executor;
use crate::field_paths::RequestPaths;

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
        let (cost, paths) = (convert::cost(&request), RequestPaths::new(request.conversation.as_ref()));
        let paths = Arc::new(paths);
        let answer = {
            let paths = Arc::clone(&paths);
            move |rendered| convert::rendered(paths.rendered(rendered))
        };
        let rendered = self.executor.render(request, cost, answer).await;
        Ok(Response::new(rendered.map_err(|error| paths.status(error))?))
    }

    async fn batch_render(
        &self,
        request: Request<pb::BatchRenderRequest>,
    ) -> Result<Response<pb::BatchRenderResponse>, Status> {
        let pb::BatchRenderRequest { requests } = request.into_inner();
        let size = pb::RenderResponse::encoded_len;
        let paths =
            |(i, request): (usize, &pb::RenderRequest)| RequestPaths::new(request.conversation.as_ref()).in_batch(i);
        let paths: Arc<[_]> = requests.iter().enumerate().map(paths).collect();
        let answer = {
            let paths = Arc::clone(&paths);
            move |i: usize, rendered| convert::rendered(paths[i].rendered(rendered))
        };
        let results = self.executor.render_batch(requests, convert::cost, answer, size).await?;
        let results = results.into_iter().zip(paths.iter());
        let results = results.map(|(result, paths)| convert::result(result, paths)).collect();
        Ok(Response::new(pb::BatchRenderResponse { results }))
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

    async fn parse_output(
        &self,
        request: Request<pb::ParseOutputRequest>,
    ) -> Result<Response<pb::ParseOutputResponse>, Status> {
        let job = convert::parse::job(request.into_inner()).map_err(Error::from)?;
        let (answer, rules) = self.executor.parse(job).await.map_err(convert::parse::status)?;
        let (output, rules) = (Some(convert::parse::output(answer)), rules.name.to_string());
        Ok(Response::new(pb::ParseOutputResponse { output, rules }))
    }

    type StreamParseOutputStream = parse_stream::Events;

    async fn stream_parse_output(
        &self,
        request: Request<Streaming<pb::StreamParseOutputRequest>>,
    ) -> Result<Response<Self::StreamParseOutputStream>, Status> {
        Ok(Response::new(parse_stream::events(self.executor.clone(), request.into_inner())))
    }
}
