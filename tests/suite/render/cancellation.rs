//! Cancellation: work for a caller who has gone ends early.

use render_svc::adapters::ADAPTERS;
use render_svc::cli::json;
use render_svc::error::Error;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::json;
use tandem_model_files::tokenizer::{CancelScope, TokenizerError};
use tandem_template::{LocalTime, RenderError};
use tandem_tests::{AdapterRequest, ModelFolder};
use tokio_util::sync::CancellationToken;

/// Runs up to the limit on steps.
const LONG: &str = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";

fn cancelled() -> CancelScope {
    let token = CancellationToken::new();
    token.cancel();
    CancelScope::start(token)
}

#[test]
fn chat_template_ends_once_its_caller_has_gone() {
    let adapter = ADAPTERS.iter().find(|adapter| adapter.name == "tokenizer-template").expect("the adapter");
    let models = ModelFolder::new("tiny").with_template(LONG).models();
    let model = &models.get("").expect("one model").model;
    let request = AdapterRequest::new(&json!({"messages": [{"role": "user", "content": "Hi"}]}));
    let _scope = cancelled();
    let error = (adapter.render)(model, &request.input()).expect_err("it is cancelled");
    assert!(matches!(error, Error::Template(RenderError::Cancelled)), "{error:?}");
}

#[test]
fn requests_end_once_their_caller_has_gone() {
    let models = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").models();
    let text = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let images = json!({"messages": [{"role": "user", "content": [{"type": "image", "base64": "QUJD"}]}]});
    for request in [text, images] {
        let job = || json::request(&request.to_string(), LocalTime::EPOCH).expect("a request");
        render(&models, job(), &Limits::default()).expect("it renders");
        let _scope = cancelled();
        let error = render(&models, job(), &Limits::default()).expect_err("it is cancelled");
        assert!(matches!(error, Error::Tokenizer(TokenizerError::Cancelled)), "{error:?}");
    }
}
