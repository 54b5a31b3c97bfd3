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

/// Settings and tensors that are refused by name, although transformers computes something. It ignores the first three
/// in these architectures.
const REFUSED: [&str; 6] = [
    "partial_rotary_factor = 0.5",
    "type = \"linear\"",
    "bias is not part of the model",
    "use_bidirectional_attention = true",
    "hidden_act = \"gelu\"",
    "hidden_act = \"quick_gelu\"",
];

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

/// Makes a folder with tensors of these names, under new names.
fn with_tensors<'a>(case: &Case, names: impl Iterator<Item = &'a String>, rename: impl Fn(&str) -> String) -> TempDir {
    let folder = case.folder(&case.older_config);
    write(folder.path(), "model.safetensors", case.file(names, "BF16", rename));
    folder
}

fn refusal(folder: &TempDir) -> Option<LoadError> {
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    models::open(&artifacts).and_then(|file| models::describe(&file)).err()
}

#[test]
fn a_missing_tensor_is_named() {
    for model in &GOLDENS.models {
        let case = model.case();
        for missing in case.tensors.keys() {
            let others = case.tensors.keys().filter(|name| *name != missing);
            let error = refusal(&with_tensors(case, others, str::to_owned)).expect("a refusal");
            assert_eq!(error.reason().name(), "MODEL_INCOMPLETE", "{} without {missing}", case.name);
            assert!(error.chain().contains(missing), "{} without {missing}: {}", case.name, error.chain());
        }
    }
}

/// Takes any tensor's numbers for those of one that the model does not have.
#[test]
fn a_tensor_that_the_model_does_not_use_is_named() {
    let unused = [
        "model.layers.1.self_attn.q_proj.scale",
        "model.layers.0.mlp.down_proj.weight_scale",
        "model.layers.99.input_layernorm.weight",
        "model.norm.bias",
        "lm_head.bias",
        "model.score.weight",
    ];
    for case in GOLDENS.models.iter().map(Model::case) {
        let some = case.tensors.keys().next().expect("a tensor");
        let with = |more: &str| {
            let is_first = std::cell::Cell::new(true);
            let all = std::iter::once(some).chain(case.tensors.keys());
            let rename = |name: &str| if is_first.replace(false) { more.to_owned() } else { name.to_owned() };
            refusal(&with_tensors(case, all, rename))
        };
        for name in unused {
            let error = with(name).expect("a refusal");
            assert!(error.chain().contains(name), "{} with {name}: {}", case.name, error.chain());
        }
        assert!(with("model.layers.0.self_attn.rotary_emb.inv_freq").is_none(), "{}", case.name);
        assert_eq!(with("score.weight").is_none(), case.tensors.contains_key("lm_head.weight"), "{}", case.name);
    }
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
            let mut misspelt = case.older_config.clone();
            let settings = misspelt.as_object_mut().expect("settings");
            if let Some(value) = settings.remove(key) {
                settings.insert(format!("{key}_"), value);
                assert_eq!(absent, described(&folder, &misspelt), "{} with {key}_", model.model);
            }
        }
    }
}

#[test]
fn a_misspelt_key_of_a_rotary_embedding_is_named() {
    for model in &GOLDENS.models {
        let case = model.case();
        let folder = case.whole(&case.older_config, "F32");
        for name in ["rope_parameters", "rope_scaling"] {
            let mut config = case.older_config.clone();
            config[name] = json!({"rope_typ": "linear", "factor": 4.0});
            let error = described(&folder, &config);
            assert!(error.contains("rope_typ"), "{} with {name}: {error}", model.model);
        }
    }
}
