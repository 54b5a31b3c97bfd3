//! Models with images of every family in several settings, compared with transformers: pixel
//! values, token ids, logits and greedy tokens (`golden/make_image_architectures.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use gen_svc::load;
use sha2::{Digest, Sha256};
use tandem_core::answer::{Event, Token};
use tandem_core::engine::{Config, DtypeChoice, Engine};
use tandem_core::error::LoadError;
use tandem_core::media::HfMessages;
use tandem_core::models::vision::families::FAMILIES;
use tandem_core::request::{GenerateRequest, Input, PreparedRequest, Returns, SamplingOptions, StopOptions};
use tandem_template::LocalTime;
use tandem_tests_full::image_checkpoint::{Case, Conversation, Goldens};
use tandem_torch::Libtorch;
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

pub(super) static GOLDENS: LazyLock<Goldens> = LazyLock::new(Goldens::read);

/// The folders of all cases.
static FOLDERS: LazyLock<Vec<TempDir>> =
    LazyLock::new(|| GOLDENS.cases.iter().map(|case| GOLDENS.folder(case)).collect());

/// The largest difference of a log-probability.
pub(super) const TOLERANCE: f32 = 1e-4;

/// Calls `check` with each case, an engine of each backend, and their names.
fn for_each(change: impl Fn(&mut Config), check: impl Fn(&Case, &Engine, &str)) {
    for (case, folder) in GOLDENS.cases.iter().zip(FOLDERS.iter()) {
        let count = if case.has_states() { 1 } else { DEVICES.len() };
        let can_divide = case.name != UNDIVIDED;
        for devices in DEVICES.into_iter().take(count).filter(|devices| can_divide || !devices.contains(',')) {
            let what = format!("{}, {devices}", case.name);
            check(case, &start(folder.path(), devices, &change, &what), &what);
        }
    }
}

/// The case whose later layers use the keys and values of the first one.
const UNDIVIDED: &str = "gemma4";

/// The lists of devices, the kernels first: they alone compute recurrent states.
const DEVICES: [&str; 3] = ["cpu", "cpu-torch", "cpu-torch,cpu-torch"];

fn start(folder: &Path, devices: &str, change: impl Fn(&mut Config), what: &str) -> Engine {
    try_start(folder, devices, change).unwrap_or_else(|error| panic!("{what}: {}", error.chain()))
}

pub(super) fn try_start(folder: &Path, devices: &str, change: impl Fn(&mut Config)) -> Result<Engine, LoadError> {
    let mut config = Config {
        threads: 1,
        devices: devices.parse().expect("devices"),
        dtype: DtypeChoice::F32,
        kv_memory: Some(16 << 20),
        ..Config::new(folder.to_owned())
    };
    change(&mut config);
    Ok(load::start(config, &Libtorch)?.0)
}

/// Returns a greedy request with the 20 likeliest tokens at each place.
pub(super) fn request(input: Input) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(32), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { logprobs: Some(20), ..Returns::default() },
        ..GenerateRequest::new(input)
    }
}

/// Returns the messages of a conversation as the input of a request.
pub(super) fn input(conversation: &Conversation) -> Input {
    Input::HfMessages(Box::new(HfMessages::new(GOLDENS.messages(conversation), LocalTime::now())))
}

fn prepare(engine: &Engine, conversation: &Conversation, what: &str) -> PreparedRequest {
    request(input(conversation)).prepare(engine.model()).unwrap_or_else(|error| panic!("{what}: {}", error.chain()))
}

/// Returns the tokens of an output.
pub(super) fn finish(mut events: Receiver<Event>) -> Vec<Token> {
    let mut tokens = Vec::new();
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Delta(delta) => tokens.extend(delta.tokens),
            Event::Finished(end) => tokens.extend(end.last.tokens),
            Event::Summary(_) => return tokens,
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
}

/// Checks the token ids and the pixel values of a prompt.
#[track_caller]
fn check_prompt(prompt: &PreparedRequest, conversation: &Conversation, what: &str) {
    assert_eq!(prompt.ids[..], conversation.prompt(), "{what}: token ids");
    let images = prompt.media.iter().flat_map(|media| &media.images);
    let pixels: Vec<f32> = images.flat_map(|image| image.pixels()).collect();
    let bytes: Vec<u8> = pixels.iter().flat_map(|value| value.to_le_bytes()).collect();
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let found = (!pixels.is_empty()).then_some(digest);
    assert_eq!(found, conversation.pixels, "{what}: pixel values");
}

/// Returns the likeliest first tokens and their log-probabilities.
pub(super) fn likeliest(tokens: &[Token]) -> BTreeMap<u32, f32> {
    tokens[0].top.iter().map(|top| (top.id, top.logprob)).collect()
}

/// Checks the likeliest first tokens and the greedy tokens.
#[track_caller]
fn check_output(tokens: &[Token], conversation: &Conversation, what: &str) {
    let found = likeliest(tokens);
    for (id, expected) in &conversation.likeliest {
        let found = found.get(id).unwrap_or_else(|| panic!("{what}: token {id} is not among the likeliest"));
        assert!((found - expected).abs() <= TOLERANCE, "{what}: token {id} has {found} instead of {expected}");
    }
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    assert_eq!(ids, conversation.greedy, "{what}: greedy tokens");
}

/// Runs all conversations of a case at once.
#[track_caller]
fn check_conversations(case: &Case, engine: &Engine, what: &str) {
    let mut running = Vec::new();
    for (i, conversation) in case.conversations.iter().enumerate() {
        let what = format!("{what}, conversation {i}");
        let prompt = prepare(engine, conversation, &what);
        check_prompt(&prompt, conversation, &what);
        running.push((conversation, engine.submit(prompt, None).expect("room"), what));
    }
    for (conversation, events, what) in running {
        check_output(&finish(events), conversation, &what);
    }
}

/// The second time, parts of the prompts are in the prefix cache.
#[test]
fn conversations_have_the_pixels_logits_and_tokens_of_transformers() {
    for_each(
        |_| {},
        |case, engine, what| {
            check_conversations(case, engine, what);
            check_conversations(case, engine, &format!("{what}, again"));
        },
    );
}

#[test]
fn chunked_conversations_have_the_logits_and_tokens_of_transformers() {
    for_each(|config| config.prefill_chunk = 7, check_conversations);
}

#[test]
fn token_ids_without_images_have_the_logits_and_tokens_of_transformers() {
    for_each(
        |_| {},
        |case, engine, what| {
            let texts: Vec<_> = case.conversations.iter().filter(|each| each.pixels.is_none()).collect();
            assert!(texts.len() >= 2, "{what}: conversations without images");
            for conversation in texts {
                let request = request(Input::TokenIds(conversation.prompt())).prepare(engine.model()).expect("valid");
                check_output(&finish(engine.submit(request, None).expect("room")), conversation, what);
            }
        },
    );
}

#[test]
fn libtorch_refuses_the_layers_of_a_model_with_images_by_name() {
    for (case, folder) in GOLDENS.cases.iter().zip(FOLDERS.iter()).filter(|(case, _)| case.has_states()) {
        let error = try_start(folder.path(), "cpu-torch", |_| {}).map(drop).expect_err("libtorch computes no states");
        assert!(matches!(error, LoadError::PartOfModel { .. }), "{}: {}", case.name, error.chain());
    }
}

#[test]
fn every_family_has_three_models_and_24_images() {
    for family in FAMILIES.iter().map(|family| family.names[0]) {
        let cases: Vec<_> = GOLDENS.cases.iter().filter(|case| case.family == family).collect();
        let images = cases.iter().flat_map(|case| &case.conversations).flat_map(|conversation| conversation.images());
        let images: BTreeSet<String> = images.map(ToString::to_string).collect();
        assert!(cases.len() >= 3 && images.len() >= 24, "{family}: {} models, {} images", cases.len(), images.len());
    }
}
