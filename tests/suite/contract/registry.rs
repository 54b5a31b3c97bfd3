//! RegistryService: the order of adapters, and the reason for each model's adapter.

use std::collections::BTreeSet;

use render_svc::adapter::Kind;
use render_svc::adapters::ADAPTERS;
use tandem_common::pb::chat::v1::media_block::Source;
use tandem_common::pb::generate::v1::MediaKind;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_tests::conversations::{blocks, conversation, image_block};
use tandem_tests::failure::is_failed;
use tandem_tests::{ModelFolder, Running, error_texts, render_service};
use tonic::transport::Channel;
use tonic::{Code, Status};

async fn serve(models: &[&ModelFolder]) -> (Running, RegistryServiceClient<Channel>) {
    let paths: Vec<_> = models.iter().map(|model| model.path()).collect();
    let service = render_service(&paths, None).await;
    let client = RegistryServiceClient::new(service.channel().await);
    (service, client)
}

async fn explained(
    client: &mut RegistryServiceClient<Channel>,
    request: pb::ExplainResolutionRequest,
) -> Result<pb::Resolution, Status> {
    Ok(client.explain_resolution(request).await?.into_inner().resolution.expect("a resolution"))
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_are_listed_in_order_of_precedence() {
    let (_service, mut client) = serve(&[&ModelFolder::new("tiny")]).await;
    let adapters = client.list_adapters(pb::ListAdaptersRequest {}).await.expect("lists").into_inner().adapters;
    let listed: Vec<_> = adapters.iter().map(|adapter| (adapter.name.as_str(), adapter.kind())).collect();
    let kind = |kind| match kind {
        Kind::Family => pb::AdapterKind::Family,
        Kind::Template => pb::AdapterKind::Template,
        Kind::Format => pb::AdapterKind::Format,
    };
    let expected: Vec<_> = ADAPTERS.iter().map(|adapter| (adapter.name, kind(adapter.kind))).collect();
    assert_eq!(listed, expected);
    assert!(adapters.iter().all(|adapter| !adapter.description.is_empty()));
    assert!(ADAPTERS.is_sorted_by_key(|adapter| adapter.kind), "families come first, then templates, then formats");
    assert_eq!(ADAPTERS.last().map(|adapter| adapter.name), Some("plain"), "the last adapter matches every model");
}

#[test]
fn adapter_names_are_unique() {
    let names: BTreeSet<_> = ADAPTERS.iter().map(|adapter| adapter.name).collect();
    assert_eq!(names.len(), ADAPTERS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_an_image_processor_has_the_limits_of_images() {
    let texts = ModelFolder::new("tiny");
    let images = ModelFolder::new("seeing");
    std::fs::write(images.path().join("preprocessor_config.json"), "{}").expect("the folder is writable");
    let (_service, mut client) = serve(&[&texts, &images]).await;
    let models = client.list_models(pb::ListModelsRequest {}).await.expect("lists").into_inner().models;
    let limits = pb::ImageLimits { max_images: 256, max_image_pixels: 128 << 20 };
    let expected = [("seeing", vec![MediaKind::Image.into()], Some(limits)), ("tiny", vec![], None)];
    let found: Vec<_> =
        models.iter().map(|model| (&*model.id, model.media_kinds.clone(), model.image_limits)).collect();
    assert_eq!(found, expected);
    let request = pb::GetModelRequest { model: "seeing".to_owned() };
    let described = client.get_model(request).await.expect("describes").into_inner().model;
    assert_eq!(described.as_ref(), models.first());
}

#[tokio::test(flavor = "multi_thread")]
async fn resolution_names_its_rule_and_each_earlier_rejection() {
    let (_service, mut client) = serve(&[&ModelFolder::new("qwen-tiny")]).await;
    let resolution = explained(&mut client, pb::ExplainResolutionRequest::default()).await.expect("explains");
    assert_eq!(resolution.adapter, "chatml");
    error_texts::check("resolution/name", &resolution.reason);
    let rejected: Vec<_> = resolution.rejected.iter().map(|rejected| rejected.adapter.as_str()).collect();
    let before = ADAPTERS.iter().map(|adapter| adapter.name).take_while(|name| *name != "chatml");
    assert_eq!(rejected, before.collect::<Vec<_>>());
    assert!(resolution.rejected.iter().all(|rejected| !rejected.reason.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_resolution_covers_pinned_adapters_and_images() {
    let (_service, mut client) = serve(&[&ModelFolder::new("tiny").with_template("{{ messages }}")]).await;
    let image = blocks("user", vec![image_block(Source::Base64("QUJD".to_owned()))]);
    let of = |adapter: Option<&str>| pb::ExplainResolutionRequest {
        adapter: adapter.map(str::to_owned),
        conversation: Some(conversation(vec![image.clone()])),
        ..Default::default()
    };
    let images = explained(&mut client, of(None)).await.expect("explains");
    assert_eq!(images.adapter, "");
    let pinned = explained(&mut client, of(Some("plain"))).await.expect("explains");
    assert_eq!(pinned.adapter, "plain");
    error_texts::check_rows("resolution/image-and-pin", [images.reason, pinned.reason]);
    let unknown = explained(&mut client, of(Some("x"))).await;
    is_failed("registry/adapter-not-found", unknown, Code::NotFound, "ADAPTER_NOT_FOUND", Some("adapter"));
}

#[tokio::test(flavor = "multi_thread")]
async fn template_adapter_is_rejected_for_a_model_without_template() {
    let (_service, mut client) = serve(&[&ModelFolder::new("tiny")]).await;
    let adapter = Some("tokenizer-template".to_owned());
    let request = pb::ExplainResolutionRequest { adapter, ..Default::default() };
    let refused = explained(&mut client, request).await;
    is_failed(
        "registry/adapter-not-applicable",
        refused,
        Code::FailedPrecondition,
        "ADAPTER_NOT_APPLICABLE",
        Some("adapter"),
    );
}
