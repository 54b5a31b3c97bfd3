//! Each key of the config of a model with images left out, set to null and changed, compared with transformers
//! (`golden/make_image_keys.py`).

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::thread;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_core::engine::Engine;
use tandem_core::models;
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::repository;
use tandem_tests_full::image_checkpoint::{Case, Conversation};
use tempfile::TempDir;

use super::image_architectures::{GOLDENS as CHECKPOINTS, TOLERANCE, finish, input, likeliest, request, try_start};

#[derive(Debug, Deserialize)]
struct Goldens {
    /// The number of the conversation with the prompt.
    conversation: usize,
    models: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    /// The name of the golden model.
    model: String,
    /// The defaults of the class of each section.
    defaults: BTreeMap<String, Map<String, Value>>,
    rows: Vec<Row>,
}

/// A changed config.
#[derive(Debug, Deserialize)]
struct Row {
    /// The section that is changed. Empty: the whole config.
    section: String,
    set: Map<String, Value>,
    without: Option<String>,
    /// The likeliest tokens after the prompt and their log-probabilities, or why there are none, or that they are those
    /// of the model without a change.
    result: Value,
}

static GOLDENS: LazyLock<Goldens> = LazyLock::new(|| {
    let text = std::fs::read_to_string(repository().join("tests/golden/image_keys.json")).expect("the goldens");
    serde_json::from_str(&text).expect("goldens")
});

/// The result of a change without an effect.
const UNCHANGED: &str = "unchanged";

/// The tokens of a result.
const SHOWN: usize = 4;

/// Changes that are refused by this name, although transformers computes something.
const REFUSED: [(&str, &str); 9] = [
    // Published models have other activations, and in these families the features of the last layer.
    (r#"{"projector_hidden_act":"#, "projector_hidden_act"),
    (r#"{"vision_feature_layer":"#, "vision_feature_layer"),
    (r#"{"hidden_activation":"#, "hidden_activation"),
    (r#"vision_config {"hidden_act":"relu"}"#, "hidden_act"),
    (r#"text_config {"hidden_act":"#, "hidden_act"),
    // transformers leaves out the default sections' frequencies that a small head does not have.
    ("rope_parameters", "mrope_section"),
    // transformers ignores it.
    (r#"vision_config {"attention_bias":true}"#, "attention_bias"),
    // transformers ignores the biases in the file.
    (r#"text_config {"attention_bias":false}"#, "k_proj.bias"),
    ("text_config without attention_bias", "k_proj.bias"),
];

/// Changes that are loaded, although transformers fails for this reason.
const LOADED: [(&str, &str); 5] = [
    // As in other versions of transformers, a null setting counts as missing.
    (":null}", "refused: "),
    // Without an output matrix, the embeddings are it if either section has the flag, or if it is null.
    ("tie_word_embeddings", "other tensors"),
    // The processor has the token of images.
    ("image_token_i", "refused: "),
    // The features do not depend on the head.
    ("vision_use_head", "other tensors"),
    // transformers joins the matrices of experts only for a name that is not null.
    (r#"text_config {"model_type":null}"#, "other tensors"),
];

/// Returns a section of a config.
fn section<'a>(config: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let section = if name.is_empty() { config } else { &mut config[name] };
    section.as_object_mut().expect("settings")
}

impl Row {
    fn config(&self, case: &Case) -> Value {
        let mut config = case.config().clone();
        let settings = section(&mut config, &self.section);
        settings.extend(self.set.clone());
        self.without.iter().for_each(|key| drop(settings.remove(key)));
        config
    }

    /// Describes the change, such as `vision_config {"patch_size":null}`.
    fn name(&self) -> String {
        let change = match &self.without {
            Some(key) => format!("without {key}"),
            None => json!(self.set).to_string(),
        };
        format!("{} {change}", self.section).trim_start().to_owned()
    }

    /// Returns the expected tokens, or why there are none.
    fn expected(&self, conversation: &Conversation) -> Result<Vec<(u32, f32)>, &str> {
        match self.result.as_str() {
            None => Ok(serde_json::from_value(self.result.clone()).expect("tokens")),
            Some(UNCHANGED) => Ok(conversation.likeliest[..SHOWN].to_vec()),
            Some(reason) => Err(reason),
        }
    }
}

impl Model {
    fn case(&self) -> &'static Case {
        CHECKPOINTS.cases.iter().find(|case| case.name == self.model).expect("a golden model")
    }
}

fn write(folder: &TempDir, config: &Value) {
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
}

/// Returns the difference from transformers, if there is one.
fn fault(folder: &TempDir, case: &Case, row: &Row) -> Option<String> {
    write(folder, &row.config(case));
    let (name, conversation) = (row.name(), &case.conversations[GOLDENS.conversation]);
    match (try_start(folder.path(), "cpu", |_| {}), row.expected(conversation)) {
        (Ok(engine), Ok(expected)) => difference(&engine, conversation, &expected),
        (Err(error), Ok(_)) => {
            let error = error.chain();
            let is_listed = REFUSED.iter().any(|(change, key)| name.contains(change) && error.contains(key));
            (!is_listed).then(|| format!("refused: {error}"))
        }
        (Ok(_), Err(reason)) => {
            let is_listed = LOADED.iter().any(|(change, why)| name.contains(change) && reason.starts_with(why));
            (!is_listed).then(|| format!("loaded, transformers: {reason}"))
        }
        (Err(_), Err(_)) => None,
    }
}

/// Compares the likeliest tokens.
fn difference(engine: &Engine, conversation: &Conversation, expected: &[(u32, f32)]) -> Option<String> {
    let mut request = request(input(conversation));
    request.stop.max_new_tokens = Some(1);
    let prompt = match request.prepare(engine.model()) {
        Ok(prompt) => prompt,
        Err(error) => return Some(format!("prompt: {}", error.chain())),
    };
    let found = likeliest(&finish(engine.submit(prompt, None).expect("room")));
    let gap = |(id, logprob): &(u32, f32)| found.get(id).map_or(f32::INFINITY, |found| (found - logprob).abs());
    let gap = expected.iter().map(gap).fold(0.0, f32::max);
    (gap > TOLERANCE).then(|| format!("differs by {gap}"))
}

/// Returns the differences of a model.
fn faults(model: &Model) -> Vec<String> {
    let case = model.case();
    let folder = CHECKPOINTS.folder(case);
    let named = |row: &Row| Some(format!("{} {}: {}", model.model, row.name(), fault(&folder, case, row)?));
    model.rows.iter().filter_map(named).collect()
}

#[test]
fn each_key_of_a_config_with_images_has_the_effect_that_it_has_in_transformers() {
    let halves = GOLDENS.models.chunks(GOLDENS.models.len().div_ceil(2));
    let faults: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> =
            halves.map(|half| scope.spawn(|| half.iter().flat_map(faults).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Describes the model of this config, or says why it cannot be loaded.
fn described(folder: &TempDir, config: &Value) -> String {
    write(folder, config);
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    let file = models::open(&artifacts);
    let described = file.and_then(|file| Ok((models::describe(&file)?, models::vision::describe(&file)?)));
    described.map_or_else(|error| error.chain(), |described| format!("{described:?}"))
}

#[test]
fn an_absent_key_of_a_tower_has_the_default_of_the_class() {
    for model in &GOLDENS.models {
        let case = model.case();
        let folder = CHECKPOINTS.folder(case);
        let keys =
            model.defaults.iter().flat_map(|(name, keys)| keys.iter().map(move |(key, value)| (name, key, value)));
        for (name, key, default) in keys {
            let mut config = case.config().clone();
            section(&mut config, name).remove(key);
            let absent = described(&folder, &config);
            section(&mut config, name).insert(key.clone(), default.clone());
            let what = format!("{} {name} without {key}, or with {default}", model.model);
            assert_eq!(absent, described(&folder, &config), "{what}");
        }
    }
}
