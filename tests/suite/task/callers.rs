//! The callers of tasks, as the generation service learns of them.

use std::sync::{Arc, Mutex};

use render_svc::args::GenerationArgs;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::{SecurityArgs, ServeArgs};
use tandem_tests::fakes::replica::{Replica, accepted, at_once, ended, part};
use tandem_tests::{default_catalog, serve_catalog_with_generation};
use tempfile::TempDir;
use tonic::Request;

/// Returns a replica that records the caller and the priority of each call.
fn recording(calls: &Arc<Mutex<Vec<(String, i32)>>>) -> Replica {
    let calls = Arc::clone(calls);
    Replica::new(move |request, _| {
        let caller = request.metadata().get("x-tandem-caller").and_then(|value| value.to_str().ok());
        calls.lock().expect("no panic").push((caller.unwrap_or_default().to_owned(), request.get_ref().priority));
        Ok(at_once([vec![accepted(), part("", &[7])], ended(FinishReason::Length)].concat()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_sent_with_its_caller_and_at_most_the_priority_of_its_token() {
    let calls = Arc::default();
    let address = format!("http://{}", recording(&calls).serve().await);
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
    let found = calls.lock().expect("no panic").clone();
    let expected = [("token:low", 3), ("token:low", -2), ("token:high", 7), ("token:plain", 0), ("token:plain", -2)];
    assert_eq!(found, expected.map(|(caller, priority)| (caller.to_owned(), priority)));
}
