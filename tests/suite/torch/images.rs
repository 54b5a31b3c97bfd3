//! Generation from messages with images: the tokens of transformers, batches, chunks, the prefix
//! cache, preemption, seeds, and messages that are refused.

mod mmproj;
mod refused;
mod urls;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gen_svc::load;
use serde::Deserialize;
use serde_json::{Value, json};
use tandem_core::answer::{Event, Summary, Token};
use tandem_core::cache::{BLOCK, ImageSpan};
use tandem_core::engine::{Config, DeviceChoice, DtypeChoice, Engine};
use tandem_core::error::RequestError;
use tandem_core::media::HfMessages;
use tandem_core::models;
use tandem_core::request::{GenerateRequest, Input, PreparedRequest, Returns, SamplingOptions, StopOptions};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::{CancelScope, TokenizerError};
use tandem_template::LocalTime;
use tandem_tests_full::backend::{self, BackendChoice};
use tandem_tests_full::image_checkpoint::Goldens;
use tandem_tests_full::image_model::{ImageModel, bitmap};
use tandem_tests_full::vision_oracle;
use tandem_torch::{Libtorch, TorchTarget};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use tandem_tests::generate_command::{answers, generate_with, rendered};

// ---- conversations ----

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn encoded(bytes: &[u8]) -> Value {
    json!({"type": "image", "base64": BASE64_STANDARD.encode(bytes)})
}

/// Returns a block with an image. All have the same size.
fn image(seed: u64) -> Value {
    encoded(&bitmap(40, 28, seed))
}

fn user<const N: usize>(blocks: [Value; N]) -> Vec<Value> {
    vec![json!({"role": "user", "content": blocks.to_vec()})]
}

fn conversations() -> Vec<Vec<Value>> {
    let answer = json!({"role": "assistant", "content": [text("A cat.")]});
    let wide = encoded(&bitmap(64, 20, 9));
    vec![
        user([text("What is red, and what is not?")]),
        user([image(1), text("What is this?")]),
        user([text("Compare "), image(2), image(3), text(" in words.")]),
        [user([image(4), text("Who?")]), vec![answer], user([text("And this?"), wide])].concat(),
        vec![json!({"role": "user", "content": "Hello!"})],
    ]
}

/// Returns a request with temperature 1, a seed, and the log-probabilities of the output.
fn request(messages: Vec<Value>) -> GenerateRequest {
    with_input(Input::HfMessages(Box::new(HfMessages::new(messages, LocalTime::now()))))
}

fn with_input(input: Input) -> GenerateRequest {
    GenerateRequest {
        sampling: SamplingOptions { temperature: Some(1.0), seed: Some(11), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(16), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { logprobs: Some(0), ..Returns::default() },
        ..GenerateRequest::new(input)
    }
}

/// Returns the request with its own part of the prefix cache.
fn salted(request: GenerateRequest, salt: &str) -> GenerateRequest {
    GenerateRequest { cache_salt: salt.to_owned(), ..request }
}

// ---- engines ----

/// Calls `check` with each model's name and folder.
fn for_each(check: impl Fn(&str, &Path)) {
    static FOLDERS: LazyLock<BTreeMap<String, TempDir>> =
        LazyLock::new(|| ImageModel::all().into_iter().map(|(name, model)| (name, model.folder())).collect());
    FOLDERS.iter().for_each(|(name, folder)| check(name, folder.path()));
}

fn start(folder: &Path, change: impl FnOnce(&mut Config)) -> Engine {
    let mut config =
        Config { threads: 1, dtype: DtypeChoice::F32, kv_memory: Some(16 << 20), ..Config::new(folder.to_owned()) };
    change(&mut config);
    load::start(config, &Libtorch).unwrap_or_else(|error| panic!("{}: {}", folder.display(), error.chain())).0
}

/// The largest difference of a log-probability between steps of different sizes.
const LOGPROB_TOLERANCE: f32 = 1e-4;

/// The outputs of a request.
#[derive(Debug)]
struct Answer {
    /// The tokens of each output.
    outputs: Vec<Vec<Token>>,
    prompt: Vec<Token>,
    summary: Summary,
}

impl Answer {
    fn ids(&self) -> Vec<u32> {
        self.outputs[0].iter().map(|token| token.id).collect()
    }

    /// Returns the tokens of all outputs and of the prompt.
    fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.outputs.iter().flatten().chain(&self.prompt)
    }

    /// Checks that another answer has the same tokens with nearly the same log-probabilities.
    #[track_caller]
    fn is_same(&self, expected: &Self, what: &str) {
        let ids = |answer: &Self| answer.tokens().map(|token| token.id).collect::<Vec<_>>();
        assert_eq!(ids(self), ids(expected), "{what}");
        for (i, (found, expected)) in self.tokens().zip(expected.tokens()).enumerate() {
            let (found, expected) = (found.logprob, expected.logprob);
            assert!((found - expected).abs() <= LOGPROB_TOLERANCE, "{what}, token {i}: {found} instead of {expected}");
        }
    }
}

fn prepare(engine: &Engine, request: GenerateRequest) -> PreparedRequest {
    request.prepare(engine.model()).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn submit(engine: &Engine, request: GenerateRequest) -> Receiver<Event> {
    engine.submit(prepare(engine, request), None).expect("room")
}

fn finish(mut events: Receiver<Event>) -> Answer {
    let (mut outputs, mut prompt) = (BTreeMap::<u32, Vec<Token>>::new(), Vec::new());
    let summary = loop {
        match events.blocking_recv().expect("a summary comes last") {
            Event::Accepted(_) => {}
            Event::PromptLogprobs(tokens) => prompt.extend(tokens),
            Event::Delta(delta) => outputs.entry(delta.output).or_default().extend(delta.tokens),
            Event::Finished(end) => outputs.entry(end.last.output).or_default().extend(end.last.tokens),
            Event::Summary(summary) => break summary,
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    };
    Answer { outputs: outputs.into_values().collect(), prompt, summary }
}

fn ask(engine: &Engine, request: GenerateRequest) -> Answer {
    finish(submit(engine, request))
}

/// Returns the answer of a request that runs alone in an engine.
fn alone(folder: &Path, request: GenerateRequest) -> Answer {
    ask(&start(folder, |_| {}), request)
}

/// Checks that requests that run at once have the outputs that each has alone.
#[track_caller]
fn check_together(folder: &Path, engine: &Engine, requests: Vec<GenerateRequest>, what: &str) {
    let expected: Vec<_> = requests.iter().map(|request| alone(folder, request.clone())).collect();
    // All images are prepared first: an answer must not end before the last request is submitted.
    let prepared: Vec<_> = requests.into_iter().map(|request| prepare(engine, request)).collect();
    let running: Vec<_> = prepared.into_iter().map(|request| engine.submit(request, None).expect("room")).collect();
    for (i, (events, expected)) in running.into_iter().zip(expected).enumerate() {
        finish(events).is_same(&expected, &format!("{what}, request {i}"));
    }
}

fn requests() -> Vec<GenerateRequest> {
    conversations().into_iter().map(request).collect()
}

// ---- the oracle ----

/// The largest difference of a logit.
const TOLERANCE: f32 = 3e-4;

/// A conversation with transformers' results.
#[derive(Debug, Deserialize)]
struct Case {
    messages: Vec<Value>,
    input_ids: Vec<u32>,
    last_logits: Numbers,
    greedy_ids: Vec<u32>,
    /// Arguments of the processor, which requests do not have.
    processor_kwargs: Option<Value>,
}

/// The largest logits.
#[derive(Debug, Deserialize)]
struct Numbers {
    top20_id: Vec<u32>,
    top20_value: Vec<f32>,
}

impl Case {
    /// Returns the greedy request of the case, with the files of its images.
    fn request(&self, oracle: &Path) -> GenerateRequest {
        let mut messages = self.messages.clone();
        let blocks = messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten();
        for block in blocks {
            if let Some(file) = block["image_file"].as_str() {
                *block = encoded(&std::fs::read(oracle.join("images").join(file)).expect("an image"));
            }
        }
        let mut request = request(messages);
        request.sampling.temperature = Some(0.0);
        request.stop.max_new_tokens = Some(self.greedy_ids.len() as u32);
        request.returns.logprobs = Some(20);
        request
    }

    #[track_caller]
    fn check(&self, found: &Answer, what: &str) {
        assert_eq!(found.summary.prompt_tokens, self.input_ids.len(), "{what}: prompt tokens");
        assert_eq!(found.ids(), self.greedy_ids, "{what}: greedy ids");
        let (Numbers { top20_id, top20_value }, first) = (&self.last_logits, &found.outputs[0][0]);
        let expected: BTreeMap<_, _> = top20_id.iter().zip(top20_value).collect();
        for top in &first.top {
            let Some(expected) = expected.get(&top.id) else { continue };
            let (found, expected) = (top.logprob - first.logprob, *expected - top20_value[0]);
            assert!((found - expected).abs() <= TOLERANCE, "{what}: logit {} is {found}, not {expected}", top.id);
        }
        assert!(first.top.iter().take(10).all(|top| expected.contains_key(&top.id)), "{what}: likeliest tokens");
    }
}

/// All conversations of a model run at once, on both backends.
#[test]
fn conversations_of_the_oracle_have_the_tokens_of_transformers() {
    let Some(oracle) = vision_oracle::folder() else { return };
    for (model, device) in
        vision_oracle::FOLDERS.into_iter().flat_map(|model| DeviceChoice::PROCESSORS.map(|it| (model, it)))
    {
        let cases = vision_oracle::golden(&oracle, model)["cases"].take();
        let cases: BTreeMap<String, Case> = serde_json::from_value(cases).expect("cases");
        let engine = start(&oracle.join("models").join(model), |config| config.devices = device.into());
        let (checked, skipped): (Vec<_>, Vec<_>) = cases.iter().partition(|(_, case)| case.processor_kwargs.is_none());
        let running: Vec<_> = checked.iter().map(|(_, case)| submit(&engine, case.request(&oracle))).collect();
        for ((name, case), events) in checked.iter().zip(running) {
            case.check(&finish(events), &format!("{model}, {name}, {device}"));
        }
        eprintln!("{model}, {device}: {} cases checked, {} skipped", checked.len(), skipped.len());
    }
}

// ---- batches and chunks ----

#[test]
fn a_batch_has_the_tokens_of_single_conversations() {
    for_each(|name, folder| check_together(folder, &start(folder, |_| {}), requests(), name));
}

/// The tokens of an image of Gemma 3 attend to each other: its 16 tokens stay in one chunk.
#[test]
fn chunks_of_any_size_have_the_tokens_of_whole_prompts() {
    for_each(|name, folder| {
        for chunk in [1, 7, 512] {
            let engine = start(folder, |config| config.prefill_chunk = chunk);
            check_together(folder, &engine, requests(), &format!("{name}, chunks of {chunk}"));
        }
    });
}

#[test]
fn log_probabilities_of_a_prompt_with_images_do_not_depend_on_chunks() {
    let with_prompt = |mut request: GenerateRequest| {
        request.returns.prompt_logprobs = Some(2);
        request
    };
    for_each(|name, folder| {
        let engine = start(folder, |config| config.prefill_chunk = 7);
        check_together(folder, &engine, requests().into_iter().map(with_prompt).collect(), name);
        let answer = ask(&engine, with_prompt(request(conversations().remove(2))));
        assert_eq!(answer.prompt.len(), answer.summary.prompt_tokens - 1, "{name}");
    });
}

/// The files are damaged: to read them would be another error.
#[test]
fn images_are_not_read_once_the_caller_has_gone() {
    for_each(|model, folder| {
        let engine = start(folder, |_| {});
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let _scope = CancelScope::start(cancelled);
        for messages in [user([encoded(b"no image")]), user([encoded(b"no image"), encoded(b"nor this")])] {
            let error = request(messages).prepare(engine.model()).expect_err("the caller has gone");
            assert!(matches!(error, RequestError::Tokenize(TokenizerError::Cancelled)), "{model}: {}", error.chain());
        }
    });
}

#[test]
fn another_image_changes_the_answer() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let answers = [1, 2].map(|seed| ask(&engine, request(user([image(seed), text("What is this?")]))));
        assert_ne!(answers[0].outputs, answers[1].outputs, "{name}");
        assert_ne!(answers[0].ids(), answers[1].ids(), "{name}");
    });
}

// ---- the prefix cache ----

/// Returns the number of tokens that a prompt finds in the prefix cache, if its first `common` tokens
/// are there. Mutual: no part of an image is found whose other tokens are missing.
fn found(prompt: &PreparedRequest, common: usize) -> usize {
    let blocks = |tokens: usize| tokens / BLOCK * BLOCK;
    let media = prompt.media.as_ref().filter(|media| media.is_mutual);
    let cut = |end: usize| media?.span_at(end).map(|span| span.positions.start).filter(|start| *start < end);
    let mut end = blocks(common.min(prompt.prompt_tokens - 1));
    while let Some(start) = cut(end) {
        end = blocks(start);
    }
    end
}

#[test]
fn a_repeated_conversation_is_found_in_the_prefix_cache() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        for (i, request) in requests().into_iter().enumerate() {
            let prompt = prepare(&engine, request.clone());
            let [first, again] = [ask(&engine, salted(request.clone(), "x")), ask(&engine, salted(request, "x"))];
            let expected = found(&prompt, prompt.prompt_tokens);
            again.is_same(&first, &format!("{name}, conversation {i}"));
            assert_eq!((first.summary.cached_tokens, again.summary.cached_tokens), (0, expected), "{name}, {i}");
            assert!(expected > 0, "{name}, conversation {i}");
        }
    });
}

/// Asks one engine about pairs of images, and compares with engines without other requests.
#[test]
fn other_images_of_the_same_size_are_not_found_in_the_prefix_cache() {
    let ask_about = |seeds: [u64; 2]| request(user([text("Compare"), image(seeds[0]), image(seeds[1]), text("!")]));
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let (mut known, mut ids) = (Vec::<[u64; 2]>::new(), Vec::new());
        for seeds in [[1, 2], [1, 3], [2, 1], [3, 2], [1, 2]] {
            let prompt = prepare(&engine, ask_about(seeds));
            let common = known.iter().map(|other| equal_tokens(&prompt, seeds, *other)).max().unwrap_or(0);
            let answer = ask(&engine, ask_about(seeds));
            let expected = alone(folder, ask_about(seeds));
            answer.is_same(&expected, &format!("{name}, images {seeds:?}"));
            assert_eq!(answer.summary.cached_tokens, found(&prompt, common), "{name}, images {seeds:?}");
            known.push(seeds);
            ids.push(answer.ids());
        }
        assert_eq!(ids.iter().filter(|other| **other == ids[0]).count(), 2, "{name}: {ids:?}");
    });
}

/// Returns the number of equal tokens at the start of a prompt about two images, and of the same
/// prompt about other images.
fn equal_tokens(prompt: &PreparedRequest, images: [u64; 2], others: [u64; 2]) -> usize {
    let spans = &prompt.media.as_ref().expect("images").spans;
    let differs = |span: &&ImageSpan| images[span.image] != others[span.image];
    spans.iter().find(differs).map_or(prompt.prompt_tokens, |span| span.positions.start)
}

/// The texts differ in the token after the images, at each place within a block.
#[test]
fn a_prefix_that_ends_within_an_image_is_found_as_far_as_its_model_can_continue() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let (mut is_cut, mut is_mutual) = (false, false);
        for length in 0..BLOCK {
            let ask_for = |end: &str| request(user([text(&"x".repeat(length)), image(1), image(2), text(end)]));
            let [first, second] = ["abc", "def"].map(|end| prepare(&engine, ask_for(end)));
            let common = first.ids.iter().zip(second.ids.iter()).take_while(|(a, b)| a == b).count();
            let salt = length.to_string();
            ask(&engine, salted(ask_for("abc"), &salt));
            let answer = ask(&engine, salted(ask_for("def"), &salt));
            let expected = ask(&engine, salted(ask_for("def"), &format!("{salt}, other")));
            let what = format!("{name}, {length} letters");
            assert_eq!(expected.summary.cached_tokens, 0, "{what}");
            assert_eq!(answer.summary.cached_tokens, found(&second, common), "{what}");
            answer.is_same(&expected, &what);
            is_cut |= found(&second, common) < common / BLOCK * BLOCK;
            is_mutual |= second.media.is_some_and(|media| media.is_mutual);
        }
        assert_eq!(is_cut, is_mutual, "{name}: a hit is shortened");
        assert_eq!(is_mutual, name == "gemma3", "{name}");
    });
}

// ---- preemption, several outputs, text ----

/// Returns the bytes of a block of the KV cache.
fn block_bytes(folder: &Path) -> u64 {
    let file = models::open(&Artifacts::load(folder).expect("artifacts")).expect("a model");
    let backend = BackendChoice::Torch(TorchTarget::REFERENCE);
    let decoder = models::describe(&file).expect("a model");
    backend::load(&file, decoder, backend).expect("a model").backend.shape().block_bytes
}

#[test]
fn preempted_sequences_with_images_resume_with_the_same_tokens() {
    for_each(|name, folder| {
        let memory = 16 * block_bytes(folder);
        for device in DeviceChoice::PROCESSORS {
            let engine = start(folder, |config| {
                (config.kv_memory, config.prefill_chunk, config.devices) = (Some(memory), 32, device.into());
            });
            let requests = (1..5).map(|seed| {
                let mut request = request(user([text("Describe"), image(seed), text("in words")]));
                request.stop.max_new_tokens = Some(80);
                request
            });
            let what = format!("{name}, {device}");
            check_together(folder, &engine, requests.collect(), &what);
            assert!(engine.gauges().preemptions > 0, "{what}");
        }
    });
}

#[test]
fn several_outputs_about_an_image_differ_and_a_seed_reproduces_them() {
    for_each(|name, folder| {
        let mut several = request(conversations().remove(2));
        several.sampling.n = Some(3);
        let first = alone(folder, several.clone());
        assert_eq!(first.outputs.len(), 3, "{name}");
        assert!(first.outputs[0] != first.outputs[1] && first.outputs[1] != first.outputs[2], "{name}");
        let engine = start(folder, |config| config.prefill_chunk = 7);
        check_together(folder, &engine, vec![several.clone(), several.clone()], name);
        let drawn = GenerateRequest { sampling: SamplingOptions { seed: None, ..several.sampling.clone() }, ..several };
        let drawn_answer = ask(&engine, drawn.clone());
        let mut again = drawn;
        again.sampling.seed = Some(drawn_answer.summary.seed);
        ask(&engine, again).is_same(&drawn_answer, name);
        assert_ne!(drawn_answer.outputs, first.outputs, "{name}");
    });
}

#[test]
fn messages_without_images_have_the_tokens_of_their_rendered_text() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let ids = prepare(&engine, request(conversations().remove(0))).ids;
        let prompt = engine.model().tokenizer.decode(&ids, false).expect("text");
        let expected = alone(folder, request(conversations().remove(0)));
        for input in [Input::Text(prompt), Input::TokenIds(ids.to_vec())] {
            let found = ask(&engine, with_input(input));
            found.is_same(&expected, name);
            assert_eq!(found.summary.prompt_tokens, expected.summary.prompt_tokens, "{name}");
        }
    });
}

/// As transformers does: the config says that the matrices are equal, and the file that they are not.
#[test]
fn output_matrix_that_differs_from_the_embeddings_is_used() {
    let head = |model: &ImageModel| {
        let folder = model.folder();
        let artifacts = Artifacts::load(folder.path()).expect("artifacts");
        models::describe(&models::open(&artifacts).expect("weights")).expect("supported").head.is_some()
    };
    let mut model = ImageModel::all().remove("qwen2_5_vl").expect("a model");
    assert!(!head(&model));
    model.reshape("lm_head.weight", &[264, 32]);
    assert!(head(&model));
}

#[test]
fn every_shape_of_an_image_block_makes_the_same_prompt() {
    let data = BASE64_STANDARD.encode(bitmap(40, 28, 1));
    let url = format!("data:image/bmp;base64,{data}");
    let shapes = [
        json!({"type": "image", "base64": url}),
        json!({"type": "image", "url": url}),
        json!({"type": "image", "url": null, "path": url}),
        json!({"type": "image", "image": data}),
        json!({"type": "image", "image": {"url": url}}),
        json!({"type": "image_url", "image_url": url}),
        json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}}),
        json!({"type": "input_image", "image_url": url}),
        json!({"type": "input_image", "url": url}),
    ];
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let ids = |block: Value| prepare(&engine, request(user([block, text("What?")]))).prompt().to_vec();
        let expected = ids(image(1));
        for block in &shapes {
            assert_eq!(ids(block.clone()), expected, "{name}: {block}");
        }
    });
}

/// Returns the ids of a prompt whose text spells control tokens and an image's placeholder.
fn ids_with_spelled(engine: &Engine, spelled: &str, literal_control_tokens: bool) -> Result<Vec<u32>, RequestError> {
    let messages = user([image(1), text(spelled)]);
    let messages = HfMessages { literal_control_tokens, ..HfMessages::new(messages, LocalTime::now()) };
    let prepared = with_input(Input::HfMessages(Box::new(messages))).prepare(engine.model())?;
    Ok(prepared.prompt().to_vec())
}

#[test]
fn spelled_control_tokens_and_placeholders_stay_text_if_asked() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let model = &ImageModel::all()[name];
        let placeholder = engine.model().vision.as_ref().expect("a processor").placeholder();
        let special = |ids: &[u32]| ids.iter().filter(|id| **id >= 256).count();
        let plain = ids_with_spelled(&engine, "What?", false).expect("a prompt");
        assert_eq!(ids_with_spelled(&engine, "What?", true).expect("a prompt"), plain, "{name}");
        // Every special token of the vocabulary, and a part of one.
        let spelled = format!("What?{}{placeholder}{}", model.tokens().concat(), &placeholder[..placeholder.len() - 1]);
        let literal = ids_with_spelled(&engine, &spelled, true).expect("a prompt");
        assert_eq!(special(&literal), special(&plain), "{name}");
        let bytes = literal.len() - special(&literal) - (plain.len() - special(&plain));
        assert_eq!(bytes, spelled.len() - "What?".len(), "{name}: a byte is a token");
        assert!(ids_with_spelled(&engine, &spelled, false).is_err(), "{name}: a placeholder without an image");
    });
}

/// Receives the events of a request on a thread. Returns the times of its start and of each delta.
fn timed(mut events: Receiver<Event>) -> std::thread::JoinHandle<(Option<Instant>, Vec<Instant>)> {
    std::thread::spawn(move || {
        let (mut start, mut deltas) = (None, Vec::new());
        while let Some(event) = events.blocking_recv() {
            match event {
                Event::Accepted(_) => start = Some(Instant::now()),
                Event::Delta(_) => deltas.push(Instant::now()),
                Event::Finished(_) if deltas.is_empty() => deltas.push(Instant::now()),
                _ => {}
            }
        }
        (start, deltas)
    })
}

/// Returns a model whose images have 1,024 patches, so that each of its tower's slices takes long.
fn model_of_many_patches() -> ImageModel {
    let mut model = ImageModel::all().remove("smolvlm").expect("a model");
    model.set("config.json", "/vision_config/image_size", 512.into());
    model.set("config.json", "/text_config/max_position_embeddings", 2048.into());
    model.set("preprocessor_config.json", "/max_image_size/longest_edge", 512.into());
    model.set("processor_config.json", "/image_seq_len", 256.into());
    model.reshape("model.vision_model.embeddings.position_embedding.weight", &[1024, 32]);
    model
}

/// Before the time of a token is known, a step has one slice. This tower has 24: four of each of its
/// six stages.
#[test]
fn running_streams_continue_between_the_slices_of_a_tower() {
    let folder = model_of_many_patches().folder();
    let engine = start(folder.path(), |_| {});
    let long = |request: GenerateRequest, tokens| {
        let stop = StopOptions { max_new_tokens: Some(tokens), ignore_eos: true, ..StopOptions::default() };
        submit(&engine, GenerateRequest { stop, ..request })
    };
    let mut stream = long(request(user([text("Count.")])), 1500);
    while !matches!(stream.blocking_recv(), None | Some(Event::Delta(_))) {}
    let (stream, seen) = (timed(stream), timed(long(request(user([image(1), text("What?")])), 1)));
    let (start, deltas) = seen.join().expect("no panic");
    let (start, first) = (start.expect("accepted"), deltas[0]);
    let (_, tokens) = stream.join().expect("no panic");
    let between = tokens.iter().filter(|at| **at > start && **at < first).count();
    assert!(between >= 6, "{between} tokens of {} within the tower's time", tokens.len());
}

#[test]
fn lines_with_messages_have_the_time_of_their_template() {
    let (_, model) = ImageModel::all().into_iter().next().expect("a model");
    let folder = model.folder();
    let template = "{{ 'x' * (strftime_now('%Y')|int - 2000) }}";
    fs::write(folder.path().join("chat_template.jinja"), template).expect("written");
    let line = |time: &str| {
        let options =
            json!({"hf_messages": user([text("a")]), "hf_template": {"render_time": time}, "max_new_tokens": 1});
        format!("{options}\n")
    };
    let times = ["2010-12-31T23:59:59", "2023-01-01T00:00:00.5", "2023-01-01", "now"];
    let answers = answers(&generate_with(folder.path(), &["--jsonl"], times.map(line).concat().as_bytes()));
    let tokens = |at: usize| answers[at]["usage"]["prompt_tokens"].as_u64();
    assert!(tokens(0) > Some(0) && tokens(0) < tokens(1), "{answers:?}");
    for answer in &answers[2..] {
        assert_eq!(answer["error"]["field"], "hf_template.render_time");
    }
}

/// The adapter of Gemma 4 writes the prompt itself, and attaches the images.
#[test]
fn rendered_lines_have_their_images() {
    let folder = Goldens::read().gemma4();
    let messages = |number: u64| user([image(number), text("What?")]);
    let conversation = |number: u64| json!({"model": folder.path(), "messages": messages(number)});
    let mut lines = rendered(&[1, 2].map(conversation));
    lines.extend(br#"{"prompt": "a", "attachments": [{"type": "image", "offset": 0, "base64": "QQ=*"}]}"#);
    let options = ["--jsonl", "--set", "max_new_tokens=16", "--set", "temperature=0", "--set", "ignore_eos=true"];
    let answers = answers(&generate_with(folder.path(), &options, &lines));
    let engine = start(folder.path(), |_| {});
    for (answer, number) in answers.iter().zip([1, 2]) {
        let mut request = request(messages(number));
        request.sampling.temperature = Some(0.0);
        let expected = ask(&engine, request);
        assert_eq!(answer["token_ids"], json!(expected.ids()), "image {number}");
        let usage = (&answer["usage"]["prompt_tokens"], &answer["usage"]["image_tokens"]);
        let Summary { prompt_tokens, image_tokens, .. } = &expected.summary;
        assert_eq!(usage, (&json!(prompt_tokens), &json!(image_tokens)), "image {number}");
    }
    assert_eq!(answers[2]["error"]["field"], "attachments[0].base64");
}
