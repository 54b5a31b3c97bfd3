//! Each key of a config left out, set to null and changed, compared with transformers
//! (`golden/make_config_keys.py`).

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_core::error::LoadError;
use tandem_core::models;
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::repository;
use tempfile::TempDir;

use super::{CASES, Case, KERNELS, TORCH, logits, try_load, write};

#[derive(Debug, Deserialize)]
struct Goldens {
    prompt: Vec<u32>,
    models: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    /// The name of the golden model.
    model: String,
    /// The defaults of the config's class.
    defaults: Map<String, Value>,
    rows: Vec<Row>,
}

/// A changed config.
#[derive(Debug, Deserialize)]
struct Row {
    /// The config that is changed, by its name in the golden model.
    of: String,
    set: Map<String, Value>,
    without: Option<String>,
    /// The first logits after the prompt, or why transformers has none.
    result: Value,
}

static GOLDENS: LazyLock<Goldens> = LazyLock::new(|| {
    let text = std::fs::read_to_string(repository().join("tests/golden/config_keys.json")).expect("the goldens");
    serde_json::from_str(&text).expect("goldens")
});

/// Settings that are refused by name, although transformers computes something: it ignores the first two in
/// these architectures.
const REFUSED: [&str; 3] = ["partial_rotary_factor = 0.5", "type = \"linear\"", "use_bidirectional_attention = true"];

impl Row {
    fn config(&self, case: &Case) -> Value {
        let mut config = if self.of == "config" { case.config.clone() } else { case.older_config.clone() };
        let settings = config.as_object_mut().expect("settings");
        settings.extend(self.set.clone());
        self.without.iter().for_each(|key| drop(settings.remove(key)));
        config
    }

    fn name(&self, model: &Model) -> String {
        let change = json!(self.set).to_string();
        let without = self.without.as_ref().map(|key| format!(" without {key}")).unwrap_or_default();
        format!("{} {} {change}{without}", model.model, self.of)
    }
}

impl Model {
    fn case(&self) -> &'static Case {
        CASES.iter().find(|case| case.name == self.model).expect("a golden model")
    }
}

/// Computes the logits after the prompt with this config, and the weights of the folder.
fn computed(folder: &TempDir, config: &Value) -> Result<Vec<f32>, LoadError> {
    write(folder.path(), "config.json", config.to_string());
    let setup = if config["model_type"] == "gemma4_text" { TORCH } else { KERNELS };
    let mut model = try_load(folder.path(), setup)?;
    Ok(logits(model.as_mut(), &GOLDENS.prompt).pop().expect("a row"))
}

/// Describes the model of this config, or says why it cannot be loaded.
fn described(folder: &TempDir, config: &Value) -> String {
    write(folder.path(), "config.json", config.to_string());
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    let described = models::open(&artifacts).and_then(|file| models::describe(&file));
    described.map_or_else(|error| error.chain(), |decoder| format!("{decoder:?}"))
}

#[test]
fn each_key_of_a_config_has_the_effect_that_it_has_in_transformers() {
    let mut faults = Vec::new();
    for model in &GOLDENS.models {
        let case = model.case();
        let folder = case.whole(&case.older_config, "F32");
        for row in &model.rows {
            let found = computed(&folder, &row.config(case));
            let fault = match (&row.result, found) {
                (Value::Array(expected), Ok(found)) => {
                    let expected = expected.iter().map(|logit| logit.as_f64().expect("a number") as f32);
                    let gap = expected.zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    (gap > 5e-5).then(|| format!("differs by {gap}"))
                }
                (Value::Array(_), Err(error)) => {
                    let error = error.chain();
                    (!REFUSED.iter().any(|setting| error.contains(setting))).then(|| format!("refused: {error}"))
                }
                (Value::String(reason), Ok(_)) if !reason.starts_with("refused") => {
                    Some(format!("loaded, although transformers fails: {reason}"))
                }
                _ => None,
            };
            faults.extend(fault.map(|fault| format!("{}: {fault}", row.name(model))));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Sizes that are left out make a model of other shapes, so that only their values are compared.
#[test]
fn an_absent_key_has_the_default_of_the_class() {
    for model in &GOLDENS.models {
        let case = model.case();
        let folder = case.whole(&case.older_config, "F32");
        for (key, default) in &model.defaults {
            let mut config = case.older_config.clone();
            let settings = config.as_object_mut().expect("settings");
            settings.remove(key);
            let absent = described(&folder, &Value::Object(settings.clone()));
            settings.insert(key.clone(), default.clone());
            assert_eq!(absent, described(&folder, &config), "{} without {key}, or with {default}", model.model);
        }
    }
}
