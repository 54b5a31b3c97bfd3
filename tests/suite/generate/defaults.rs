//! The sampling defaults of a model: where they are, and which requests they apply to.

use std::fs;
use std::path::Path;

use gen_svc::load::{self, WithoutLibrary};
use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_core::engine::{Config, DtypeChoice};
use tandem_tests::{Generation, default_model, error_texts};
use tempfile::TempDir;

/// Returns a folder with a link to the default model, and this file beside it.
fn model_with(defaults: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    std::os::unix::fs::symlink(default_model(), folder.path().join("m.gguf")).expect("a link");
    fs::write(folder.path().join("m.generation_config.json"), defaults).expect("a file");
    folder
}

fn config(model: &Path) -> Config {
    Config { threads: 1, dtype: DtypeChoice::F32, ..Config::new(model.to_owned()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_beside_the_model_apply_to_unset_values_and_are_shown() {
    let folder = model_with(r#"{"temperature": 0.2, "top_p": 0.9}"#);
    let service = Generation::start_with(config(folder.path())).await;
    let mut client = GenerateServiceClient::new(service.running.channel().await);
    let model = client.get_loaded_model(pb::GetLoadedModelRequest::default()).await.expect("it answers").into_inner();
    let model = model.model.expect("a model");
    assert_eq!(model.id, "m");
    let shown = model.default_sampling.expect("defaults");
    assert_eq!((shown.temperature, shown.top_p, shown.top_k), (Some(0.2), Some(0.9), Some(0)));
    assert_eq!((shown.n, shown.seed, shown.logit_bias.len()), (None, None, 0));
    let request = |sampling: Option<pb::Sampling>| pb::GenerateRequest {
        input: Some(Input::Prompt("Once".to_owned())),
        sampling,
        stop: Some(pb::Stop { max_new_tokens: Some(1), ..Default::default() }),
        ..Default::default()
    };
    for (sampling, temperature) in
        [(None, 0.2), (Some(pb::Sampling { temperature: Some(0.7), ..Default::default() }), 0.7)]
    {
        let mut events = client.generate(request(sampling)).await.expect("it is accepted").into_inner();
        let Some(Event::Accepted(accepted)) = events.message().await.expect("streams").expect("an event").event else {
            panic!("the first event is `accepted`");
        };
        let sampling = accepted.sampling.expect("the values in force");
        assert_eq!((sampling.temperature, sampling.top_p), (Some(temperature), Some(0.9)));
    }
}

#[test]
fn default_out_of_range_fails_the_load_with_its_name() {
    let values = [r#"{"temperature": -1}"#, r#"{"temperature": 1e99}"#, r#"{"top_p": 0}"#, r#"{"min_p": 2}"#];
    let texts = values.map(|values| {
        let folder = model_with(values);
        let error = load::start(config(folder.path()), &WithoutLibrary).expect_err(values);
        assert_eq!(error.reason().name(), "MODEL_UNREADABLE");
        error.chain().replace(&folder.path().display().to_string(), "FOLDER")
    });
    error_texts::check_rows("load/sampling-default", texts);
}
