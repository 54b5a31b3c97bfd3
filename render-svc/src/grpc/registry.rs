//! `RegistryService`: models, adapters, and the adapter of each model.

use prost::Message as _;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_server::RegistryService;
use tonic::{Request, Response, Status};

use super::{RenderApi, convert};
use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::resolve;

#[tonic::async_trait]
impl RegistryService for RenderApi {
    async fn list_models(&self, _: Request<pb::ListModelsRequest>) -> Result<Response<pb::ListModelsResponse>, Status> {
        let (models, limits) = (self.executor.catalog().models(), self.executor.limits());
        let models = models.entries().map(|(id, entry)| convert::model_info(id, entry, limits)).collect();
        Ok(Response::new(pb::ListModelsResponse { models }))
    }

    async fn get_model(&self, request: Request<pb::GetModelRequest>) -> Result<Response<pb::GetModelResponse>, Status> {
        let pb::GetModelRequest { model } = request.into_inner();
        let models = self.executor.catalog().models();
        let (id, entry) = models.entry(&model)?;
        let info = convert::model_info(id, entry, self.executor.limits());
        Ok(Response::new(pb::GetModelResponse { model: Some(info) }))
    }

    async fn list_adapters(
        &self,
        _: Request<pb::ListAdaptersRequest>,
    ) -> Result<Response<pb::ListAdaptersResponse>, Status> {
        let adapters = self.executor.catalog().registry().adapters().iter().map(convert::adapter_info).collect();
        Ok(Response::new(pb::ListAdaptersResponse { adapters }))
    }

    async fn explain_resolution(
        &self,
        request: Request<pb::ExplainResolutionRequest>,
    ) -> Result<Response<pb::ExplainResolutionResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.encoded_len();
        let pb::ExplainResolutionRequest { model, adapter, conversation } = request;
        let paths = RequestPaths::new(conversation.as_ref()).with_flat_options();
        let models = self.executor.catalog().models();
        let explain = move || {
            let conversation = convert::conversation_of(conversation)?;
            let adapter = adapter.as_deref();
            let served = models.get_for(&model, adapter)?;
            let resolution = resolve::explain(served, adapter, &conversation)?;
            let rules = convert::parse::rules(served.resolve(adapter)?.format.answer_rules());
            Ok((convert::resolution(&resolution), rules))
        };
        let explained = self.executor.run(bytes, explain).await.and_then(|explained| explained);
        let (resolution, rules) = explained.map_err(|error: Error| paths.status(error))?;
        let (resolution, output_rules) = (Some(resolution), Some(rules));
        Ok(Response::new(pb::ExplainResolutionResponse { resolution, output_rules }))
    }
}
