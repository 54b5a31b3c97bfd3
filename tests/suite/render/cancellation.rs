//! Cancellation: work ends early once its caller has gone.

use std::sync::{Arc, Barrier};
use std::thread::available_parallelism;

use futures_util::future::join_all;
use render_svc::adapters::ADAPTERS;
use render_svc::cli::json;
use render_svc::conversation::Invalid;
use render_svc::error::Error;
use render_svc::executor::{Cost, Executor};
use render_svc::job::RenderJob;
use render_svc::limits::Limits;
use render_svc::render::render;
use serde_json::json;
use tandem_model_files::tokenizer::{CancelScope, TokenizerError};
use tandem_template::{LocalTime, RenderError};
use tandem_tests::{AdapterRequest, ModelFolder, catalog};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

/// Runs up to the limit on steps.
const LONG: &str = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";

/// Runs for days, if there is no limit on steps.
const ENDLESS: &str = "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}{% endfor %}\
                       {% endfor %}{% endfor %}";

/// A request that reports when its rendering begins.
#[derive(Clone)]
struct Reporting(UnboundedSender<()>);

impl TryFrom<Reporting> for RenderJob {
    type Error = Invalid;

    fn try_from(Reporting(begins): Reporting) -> Result<Self, Invalid> {
        begins.send(()).expect("the test waits for it");
        let request = json!({"messages": [{"role": "user", "content": "Hi"}]});
        Ok(json::request(&request.to_string(), LocalTime::EPOCH).expect("a request"))
    }
}

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

#[tokio::test(flavor = "multi_thread")]
async fn places_of_the_pool_are_free_once_their_callers_have_gone() {
    let folder = ModelFolder::new("tiny").with_template(ENDLESS);
    let limits = Limits { max_template_steps: u64::MAX, ..Limits::DEFAULT };
    let executor = Executor::new(catalog(&folder.path()), limits);
    let places = available_parallelism().map_or(1, usize::from);
    let (sender, mut begun) = unbounded_channel();
    let render = || {
        let (executor, request) = (executor.clone(), Reporting(sender.clone()));
        tokio::spawn(async move { executor.render(request, Cost::of(0, false), drop).await })
    };
    let renders: Vec<_> = (0..places).map(|_| render()).collect();
    for _ in 0..places {
        begun.recv().await.expect("a rendering begins");
    }
    renders.iter().for_each(|render| render.abort());
    // Each work waits until all places are in use.
    let all = Arc::new(Barrier::new(places));
    let works = (0..places).map(|_| {
        let all = Arc::clone(&all);
        executor.run(0, move || _ = all.wait())
    });
    for done in join_all(works).await {
        done.expect("it runs");
    }
}
