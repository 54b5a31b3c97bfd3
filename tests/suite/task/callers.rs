//! The callers of tasks, as the generation service learns of them.

use std::sync::{Arc, Mutex};

use render_svc::args::GenerationArgs;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateService, GenerateServiceServer};
use tandem_common::pb::generate::v1::{self as generate, FinishReason};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::{SecurityArgs, ServeArgs};
use tandem_tests::{default_catalog, serve_catalog_with_generation};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_health::server::health_reporter;

use super::failover::{accepted, ended, part, reported, responses};

/// A replica that records the caller and the priority of each call.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(String, i32)>>>);

#[tonic::async_trait]
impl GenerateService for Recorder {
    type GenerateStream = tokio_stream::Iter<std::vec::IntoIter<Result<generate::GenerateResponse, Status>>>;

    async fn generate(
        &self,
        request: Request<generate::GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let caller = request.metadata().get("x-tandem-caller").and_then(|value| value.to_str().ok());
        self.0.lock().expect("no panic").push((caller.unwrap_or_default().to_owned(), request.get_ref().priority));
        let events =
            reported(request.get_ref(), [vec![accepted(), part("", &[7])], ended(FinishReason::Length)].concat());
        Ok(Response::new(tokio_stream::iter(responses(events))))
    }

    async fn get_loaded_model(
        &self,
        _request: Request<generate::GetLoadedModelRequest>,
    ) -> Result<Response<generate::GetLoadedModelResponse>, Status> {
        Err(Status::unimplemented("any model"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_sent_with_its_caller_and_at_most_the_priority_of_its_token() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (recorder, (reporter, health)) = (Recorder::default(), health_reporter());
    reporter.set_serving::<GenerateServiceServer<Recorder>>().await;
    let server = Server::builder().add_service(health).add_service(GenerateServiceServer::new(recorder.clone()));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(
        &file,
        "low-secret name=low max-priority=3\nhigh-secret name=high max-priority=7\nplain-secret name=plain\n",
    )
    .expect("a file");
    let security = SecurityArgs { token_file: Some(file), ..SecurityArgs::default() };
    let generation = GenerationArgs { generate: vec![address.parse().expect("an address")], ..Default::default() };
    let args = ServeArgs { security, ..ServeArgs::default() };
    let service = serve_catalog_with_generation(default_catalog(), generation, args).await;
    let mut client = TaskServiceClient::new(service.channel().await);
    for (caller, priority) in [("low", 9), ("low", -2), ("high", 9), ("plain", 9), ("plain", -2)] {
        let content = Some(chat::chat_message::Content::Text("hello".to_owned()));
        let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
        let conversation = Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() });
        let mut request = Request::new(RunTaskRequest { conversation, priority, ..RunTaskRequest::default() });
        request.metadata_mut().insert("authorization", format!("Bearer {caller}-secret").parse().expect("a value"));
        let mut stream = client.run_task(request).await.expect("accepted").into_inner();
        while stream.message().await.expect("an event").is_some() {}
    }
    let found = recorder.0.lock().expect("no panic").clone();
    let expected = [("token:low", 3), ("token:low", -2), ("token:high", 7), ("token:plain", 0), ("token:plain", -2)];
    assert_eq!(found, expected.map(|(caller, priority)| (caller.to_owned(), priority)));
}
