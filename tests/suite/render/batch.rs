//! BatchRender: each request has a result, independent of the other requests.

use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_result::Outcome;
use tandem_tests::conversations::{conversation, prompt, request, serve, text};
use tandem_tests::error_texts;
use tandem_tests::failure::{details, field, is_failed};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn batch_results_keep_request_order() {
    let (_service, mut client) =
        serve("{{ messages[0].content }}{{ raise_exception('7') if messages[0].content == '7' }}").await;
    let requests = (0..100).map(|i| request(conversation(vec![text("user", &i.to_string())]))).collect();
    let response = client.batch_render(pb::BatchRenderRequest { requests }).await.expect("renders").into_inner();
    assert_eq!(response.results.len(), 100);
    for (i, result) in response.results.into_iter().enumerate() {
        match result.outcome.expect("an outcome") {
            Outcome::Response(response) => assert_eq!(prompt(response), i.to_string()),
            Outcome::Failure(failure) => {
                let details = details(&failure);
                let info = details.error_info().expect("an ErrorInfo");
                assert_eq!((i, failure.code, failure.message.as_str()), (7, Code::InvalidArgument.into(), "7"));
                assert_eq!((info.reason.as_str(), info.metadata["line"].as_str()), ("TEMPLATE_RAISED", "1"));
                assert_eq!(field(&details), "requests[7].conversation.messages");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_request_fails_alone_and_names_its_field() {
    let (_service, mut client) = serve("{{ messages[0].content }}").await;
    let good = request(conversation(vec![text("user", "a")]));
    let unknown = pb::RenderRequest { model: "x".to_owned(), ..good.clone() };
    let requests = vec![request(conversation(vec![text("", "a")])), unknown, good];
    let response = client.batch_render(pb::BatchRenderRequest { requests }).await.expect("renders").into_inner();
    let mut messages = Vec::new();
    let outcomes = response.results.into_iter().map(|result| match result.outcome.expect("an outcome") {
        Outcome::Response(response) => prompt(response),
        Outcome::Failure(failure) => {
            let details = details(&failure);
            let reason = &details.error_info().expect("an ErrorInfo").reason;
            let row = format!("{} {reason} {}", failure.code, field(&details));
            messages.push(failure.message);
            row
        }
    });
    let role = "3 INVALID_REQUEST requests[0].conversation.messages[0].role";
    assert_eq!(outcomes.collect::<Vec<_>>(), [role, "5 MODEL_NOT_FOUND requests[1].model", "a"]);
    error_texts::check_rows("render/batch", messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_be_empty_but_not_too_large() {
    let (_service, mut client) = serve("").await;
    let batch = |count| pb::BatchRenderRequest { requests: vec![pb::RenderRequest::default(); count] };
    assert_eq!(client.batch_render(batch(0)).await.expect("an empty batch").into_inner().results, []);
    assert_eq!(client.batch_render(batch(1024)).await.expect("each fails").into_inner().results.len(), 1024);
    let large = client.batch_render(batch(1025)).await;
    is_failed("render/batch-too-large", large, Code::InvalidArgument, "INVALID_REQUEST", Some("requests"));
}
