//! Any bytes as a request: JSON text for the command line, or a `RenderRequest` of the contract, rendered by a few models.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use prost::Message;
use render_svc::adapters::Registry;
use render_svc::grpc::{RenderApi, Renderer};
use render_svc::json;
use render_svc::models::{Library, Sources};
use render_svc::render::render;
use tandem_common::pb::render::v1::RenderRequest;
use tandem_common::pb::render::v1::render_service_server::RenderService;
use tandem_template::LocalTime;
use tokio::runtime::{Builder, Runtime};
use tonic::Request;

const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };
/// Folder, file in it, its text: one model per family, one with a template of its own, one with nothing.
const MODELS: [(&str, &str, &str); 4] = [
    ("gemma", "config.json", r#"{"model_type": "gemma4"}"#),
    ("deepseek", "config.json", r#"{"model_type": "deepseek_v32"}"#),
    ("tools", "chat_template.jinja", include_str!("../../differential/templates/tools.jinja")),
    ("plain", "config.json", r#"{"model_type": "unheard-of"}"#),
];

static LIBRARY: LazyLock<Arc<Library>> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("tandem-fuzz-{}", std::process::id()));
    let models = MODELS.iter().map(|model| write_model(&root, model)).collect();
    let library = Library::open(Sources { models, config: None }, Registry::default()).expect("the models load");
    fs::remove_dir_all(&root).expect("the models can be removed");
    Arc::new(library)
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));

fn write_model(root: &Path, (name, file, text): &(&str, &str, &str)) -> std::path::PathBuf {
    let folder = root.join(name);
    fs::create_dir_all(&folder).expect("a folder for the model");
    fs::write(folder.join("tokenizer_config.json"), "{}").expect("a file of the model");
    fs::write(folder.join(file), text).expect("a file of the model");
    folder
}

fn as_json(text: &str) {
    let Ok(mut job) = json::request(text, NOW) else { return };
    for (model, ..) in MODELS {
        model.clone_into(&mut job.model);
        let _ = json::answer(render(&LIBRARY.models(), LIBRARY.registry(), job.clone()));
    }
}

fn as_contract(data: &[u8]) {
    let Ok(mut request) = RenderRequest::decode(data) else { return };
    let api = RenderApi::new(Renderer::new(Arc::clone(&LIBRARY)));
    for (model, ..) in MODELS {
        model.clone_into(&mut request.model);
        let _ = RUNTIME.block_on(api.render(Request::new(request.clone())));
    }
}

fuzz_target!(|data: &[u8]| {
    match std::str::from_utf8(data) {
        Ok(text) if text.starts_with('{') => as_json(text),
        _ => as_contract(data),
    }
});
