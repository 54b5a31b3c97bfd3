//! A new family is one file and one line. This is the file. The line is in `registry`.

use render_svc::adapter::{Adapter, AdapterOutput, Input, Kind, Match};
use render_svc::adapters::{ADAPTERS, Registry};
use render_svc::catalog::{ModelCatalog, Sources};
use render_svc::conversation::{Content, content};
use render_svc::error::Error;
use render_svc::model::Model;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::registry_service_client::RegistryServiceClient;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_tests::conversations::{conversation, prompt, request, text};
use tandem_tests::{ModelFolder, serve_catalog};

/// An adapter that prints the last message in capitals.
const SHOUT: Adapter = Adapter {
    kind: Kind::Family,
    stops_at_images: |_| false,
    ..Adapter::new("shout", "the last message, in capitals", is_shouter, shout)
};

fn is_shouter(model: &Model) -> Match {
    match model.artifacts.name.as_str() {
        "shouter" => Match::Selected("the model shouts".to_owned()),
        name => Match::NotSelected(format!("{name:?} does not shout")),
    }
}

fn shout(_: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let last = input.conversation.messages.last().map(content);
    let Some(Content::Text(text)) = last else { panic!("the last message is a text") };
    Ok(AdapterOutput { prompt: text.to_uppercase(), attachments: Vec::new(), warnings: Vec::new() })
}

fn registry() -> Registry {
    [&[SHOUT], ADAPTERS].concat().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_family_adapter_is_listed_and_renders() {
    let (shouter, other) = (ModelFolder::new("shouter"), ModelFolder::new("other").with_template("a template"));
    let sources = Sources { models: vec![shouter.path(), other.path()], config: None };
    let catalog = ModelCatalog::open(sources, registry()).expect("the models load");
    let service = serve_catalog(catalog.into(), None).await;

    let mut render = RenderServiceClient::new(service.channel().await);
    let hello = |model: &str| pb::RenderRequest {
        model: model.to_owned(),
        ..request(conversation(vec![text("user", "hello")]))
    };
    assert_eq!(prompt(render.render(hello("shouter")).await.expect("renders").into_inner()), "HELLO");
    assert_eq!(prompt(render.render(hello("other")).await.expect("renders").into_inner()), "a template");

    let mut registry = RegistryServiceClient::new(service.channel().await);
    let adapters = registry.list_adapters(pb::ListAdaptersRequest {}).await.expect("lists").into_inner().adapters;
    assert_eq!((adapters[0].name.as_str(), adapters[0].kind()), ("shout", pb::AdapterKind::Family));
    let model = pb::GetModelRequest { model: "shouter".to_owned() };
    let model = registry.get_model(model).await.expect("known").into_inner().model.expect("a model");
    assert_eq!(model.adapter, "shout");
}
