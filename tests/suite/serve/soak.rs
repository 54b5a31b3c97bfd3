//! render-svc's memory with hundreds of models that are used and reloaded.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tandem_common::pb::chat::v1::{self as chat, Conversation};
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::render::v1::{RenderRequest, TokenizeRequest};
use tandem_common::process::Signal;
use tandem_tests::{Process, byte_tokenizer};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

const MODELS: usize = 390;
/// The models whose templates change before each reload.
const CHANGED: usize = 40;
const RELOAD_INTERVAL: Duration = Duration::from_secs(20);
const CLIENTS: usize = 4;
/// The pause of a client after a call, so that the hour costs part of a core.
const PAUSE: Duration = Duration::from_millis(80);
/// The number of lines that are printed.
const LINES: u32 = 20;

fn name(model: usize) -> String {
    format!("model-{model:03}")
}

fn write_template(folder: &Path, model: usize, version: usize) {
    let template = format!(
        "{{# {model} {version} #}}{{% for message in messages %}}[{{{{ message.role }}}}] {{{{ message.content }}}}\n{{% endfor %}}"
    );
    fs::write(folder.join(name(model)).join("chat_template.jinja"), template).expect("a template");
}

/// Writes the models' folders. No two tokenizers are equal.
fn write_models(folder: &Path) {
    for model in 0..MODELS {
        let own = folder.join(name(model));
        fs::create_dir(&own).expect("a folder");
        fs::write(own.join("config.json"), r#"{"model_type": "soak"}"#).expect("a file");
        let mut tokenizer = byte_tokenizer(&[("<s>", true), (&name(model), true)]);
        tokenizer["pre_tokenizer"]["use_regex"] = true.into();
        fs::write(own.join("tokenizer.json"), tokenizer.to_string()).expect("a tokenizer");
        write_template(folder, model, 0);
    }
}

/// Text that no other call has: `number` decides it.
fn text(number: usize) -> String {
    (0..40 + number % 400)
        .map(|word| format!("word{} ", number.wrapping_mul(31).wrapping_add(word * 17) % 99_991))
        .collect()
}

async fn calls(channel: Channel, client: usize, end: Instant) -> usize {
    let mut service = RenderServiceClient::new(channel);
    let mut number = client;
    while Instant::now() < end {
        let model = name(number.wrapping_mul(7) % MODELS);
        let content = Some(chat::chat_message::Content::Text(text(number)));
        let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
        let conversation = Some(Conversation { messages: vec![message], ..Conversation::default() });
        let request =
            RenderRequest { model: model.clone(), conversation, return_token_ids: true, ..Default::default() };
        service.render(request).await.expect("a prompt");
        service.tokenize(TokenizeRequest { model, text: text(number), ..Default::default() }).await.expect("ids");
        number += CLIENTS;
        sleep(PAUSE).await;
    }
    number / CLIENTS * 2
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes as long as TANDEM_STRESS_SECONDS says"]
async fn memory_of_hundreds_of_models_that_are_reloaded() {
    let seconds = std::env::var("TANDEM_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    let how_long = Duration::from_secs(seconds.expect("TANDEM_STRESS_SECONDS says how long"));
    let folder = TempDir::new().expect("a folder");
    write_models(folder.path());
    let mut process = Process::start("127.0.0.1:0", &["render-svc", "--models", &folder.path().display().to_string()]);
    let endpoint = Endpoint::from_shared(format!("http://{}", process.address)).expect("an address");
    let channel = endpoint.connect().await.expect("it answers");
    let start = Instant::now();
    let idle = process.resident() >> 20;
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(calls(channel.clone(), client, start + how_long));
    }
    let (mut reloads, mut printed) = (0, 0);
    while start.elapsed() < how_long {
        sleep(RELOAD_INTERVAL.min(how_long / LINES)).await;
        if start.elapsed() >= RELOAD_INTERVAL * (reloads + 1) {
            reloads += 1;
            let version = reloads as usize;
            (0..CHANGED).for_each(|model| write_template(folder.path(), (version * CHANGED + model) % MODELS, version));
            process.signal(Signal::HUP);
        }
        if start.elapsed() >= how_long * printed / LINES {
            printed += 1;
            let (at, memory) = (start.elapsed().as_secs(), process.resident() >> 20);
            eprintln!("{at} s, {reloads} reloads: {memory} MiB ({idle} when idle)");
        }
    }
    let answered: usize = clients.join_all().await.into_iter().sum();
    eprintln!("{answered} calls answered, {reloads} reloads: {} MiB", process.resident() >> 20);
}
