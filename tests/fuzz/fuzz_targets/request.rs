//! Renders arbitrary bytes as a request with every adapter. The bytes are JSON text for the command
//! line, or a `RenderRequest` of the contract.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use prost::Message;
use render_svc::adapters::{ADAPTERS, Registry};
use render_svc::catalog::{ModelCatalog, Sources};
use render_svc::cli::json;
use render_svc::executor::Executor;
use render_svc::grpc::RenderApi;
use render_svc::limits::Limits;
use render_svc::render::render;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tandem_template::LocalTime;
use tokio::runtime::{Builder, Runtime};
use tonic::Request;

const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };
/// Folder and chat template: one model with its own template, one without a template.
const MODELS: [(&str, Option<&str>); 2] =
    [("tools", Some(include_str!("../../differential/templates/tools.jinja"))), ("bare", None)];

static CATALOG: LazyLock<Arc<ModelCatalog>> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("tandem-fuzz-{}", std::process::id()));
    let models = MODELS.iter().map(|model| write_model(&root, model)).collect();
    let sources = Sources { models, config: None };
    let catalog = ModelCatalog::open(sources, Registry::default()).expect("the models load");
    fs::remove_dir_all(&root).expect("the models can be removed");
    Arc::new(catalog)
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));

fn write_model(root: &Path, (name, template): &(&str, Option<&str>)) -> std::path::PathBuf {
    let folder = root.join(name);
    fs::create_dir_all(&folder).expect("a folder for the model");
    fs::write(folder.join("tokenizer_config.json"), "{}").expect("a file of the model");
    if let Some(template) = template {
        fs::write(folder.join("chat_template.jinja"), template).expect("a file of the model");
    }
    folder
}

/// Returns each model with its default adapter, and with every adapter pinned.
fn targets() -> impl Iterator<Item = (&'static str, Option<String>)> {
    let adapters = || ADAPTERS.iter().map(|adapter| Some(adapter.name.to_owned()));
    MODELS.into_iter().flat_map(move |(model, _)| adapters().chain([None]).map(move |adapter| (model, adapter)))
}

fn as_json(text: &str) {
    let Ok(mut job) = json::request(text, NOW) else { return };
    for (model, adapter) in targets() {
        model.clone_into(&mut job.model);
        job.options.adapter = adapter;
        let _ = json::answer(render(&CATALOG.models(), job.clone(), &Limits::default()));
    }
}

fn as_contract(data: &[u8]) {
    let Ok(mut request) = RenderRequest::decode(data) else { return };
    let api = RenderApi::new(Executor::new(Arc::clone(&CATALOG), Limits::default()));
    for (model, adapter) in targets() {
        model.clone_into(&mut request.model);
        request.options.get_or_insert_default().adapter = adapter;
        let _ = RUNTIME.block_on(api.render(Request::new(request.clone())));
    }
}

fuzz_target!(|data: &[u8]| {
    match std::str::from_utf8(data) {
        Ok(text) if text.starts_with('{') => as_json(text),
        _ => as_contract(data),
    }
});
