//! Models with images: their language models are those of the golden cases.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tandem_core::cache::{BlockId, CacheSize, StateId};
use tandem_core::error::LoadError;
use tandem_core::models::decoder::Decoder;
use tandem_core::models::vision::Family;
use tandem_core::models::vision::families::FAMILIES;
use tandem_core::models::{self, Backend, LogitsFor};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests::Random;
use tandem_tests_full::backend::BackendChoice;
use tempfile::TempDir;

use super::super::image_prompts::{ImagePrompt, blocks};
use super::{CASES, Case, Setup, TORCH, assert_logits, load, try_load, write};

/// A model with images.
#[derive(Debug, Clone)]
pub(super) struct Imaging {
    /// The model type.
    pub(super) name: &'static str,
    /// The golden models of its language model.
    cases: Cow<'static, [&'static str]>,
    /// The prefixes of the language model's tensors in folders of different ages.
    prefixes: &'static [&'static str],
    /// True if the tokens of an image attend to each other.
    blocks: bool,
    /// The frequencies of each axis, if positions have three axes.
    sections: Option<[usize; 3]>,
    /// Features for layers are added.
    deep: bool,
}

const PLAIN: Imaging = Imaging {
    name: "",
    cases: Cow::Borrowed(&[]),
    prefixes: &["language_model.model.", "model.language_model.", "model.text_model."],
    blocks: false,
    sections: None,
    deep: false,
};

/// The models whose language model is no model of text.
const OWN: &[Imaging] = &[
    Imaging { name: "gemma3", cases: Cow::Borrowed(&["gemma3", "gemma3_tight"]), blocks: true, ..PLAIN },
    Imaging {
        name: "gemma4",
        cases: Cow::Borrowed(&["gemma4", "gemma4_shared_pairs", "gemma4_keys_as_values"]),
        blocks: true,
        ..PLAIN
    },
    Imaging {
        name: "qwen2_5_vl",
        cases: Cow::Borrowed(&["qwen2"]),
        prefixes: &["model."],
        sections: Some([4, 2, 2]),
        ..PLAIN
    },
    Imaging {
        name: "qwen2_5_vl_text",
        cases: Cow::Borrowed(&["qwen2"]),
        prefixes: &["model."],
        sections: Some([4, 2, 2]),
        ..PLAIN
    },
    Imaging { name: "qwen3_vl", cases: Cow::Borrowed(&["qwen3"]), sections: Some([4, 2, 2]), deep: true, ..PLAIN },
    Imaging { name: "qwen3_5", cases: Cow::Borrowed(&["qwen3_5"]), sections: Some([4, 2, 2]), ..PLAIN },
    Imaging { name: "qwen3_5", cases: Cow::Borrowed(&["qwen3_5_wide"]), sections: Some([2, 1, 1]), ..PLAIN },
    Imaging { name: "qwen3_5_moe", cases: Cow::Borrowed(&["qwen3_5_moe"]), sections: Some([2, 1, 1]), ..PLAIN },
    Imaging { name: "qwen3_vl_text", cases: Cow::Borrowed(&["qwen3"]), sections: Some([4, 2, 2]), deep: true, ..PLAIN },
];

/// All of them. A family that shares its language models with models of text has their golden models.
pub(super) static MODELS: LazyLock<Vec<Imaging>> = LazyLock::new(|| {
    let sharing = FAMILIES.iter().filter(|family| family.shared_language_models().count() > 0);
    let named = sharing.flat_map(|family| family.names.iter().map(move |name| (*name, family)));
    let imaging = |(name, family): (&'static str, &Family)| Imaging {
        name,
        cases: family.shared_language_models().collect(),
        ..PLAIN
    };
    OWN.iter().cloned().chain(named.map(imaging)).collect()
});

impl Imaging {
    /// Returns the golden models of the language model.
    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        self.cases.iter().map(|name| CASES.iter().find(|case| case.name == *name).expect("a case"))
    }

    /// Returns a config with the language model of a case, or of the language model alone.
    fn config(&self, case: &Case) -> Value {
        let mut text = case.config.clone();
        if let Some(sections) = self.sections {
            text["rope_parameters"]["mrope_section"] = json!(sections);
        }
        if self.name == "gemma4" {
            text["use_bidirectional_attention"] = json!("vision");
        }
        if self.name.ends_with("_text") {
            text["model_type"] = json!(self.name);
            return text;
        }
        json!({"model_type": self.name, "text_config": text, "vision_config": {"hidden_size": 3}})
    }

    /// Makes a folder with the language model of a case.
    fn folder(&self, case: &Case, config: &Value, prefix: &str) -> TempDir {
        let folder = case.folder(&json!({"vocab_size": case.config["vocab_size"]}));
        write(folder.path(), "config.json", config.to_string());
        let head = if prefix == "language_model.model." { "language_model." } else { "" };
        let rename = |name: &str| match name.strip_prefix("model.") {
            Some(rest) => format!("{prefix}{rest}"),
            None => format!("{head}{name}"),
        };
        write(folder.path(), "model.safetensors", case.file(case.tensors.keys(), "F32", rename));
        folder
    }

    /// Makes a prompt with two images.
    fn prompt(&self, case: &Case) -> ImagePrompt {
        let tokens = case.prompts[3].clone();
        let runs = vec![4..17, 21..40];
        let width = case.config["hidden_size"].as_u64().expect("a size") as usize;
        let count = runs.iter().map(|run| run.len()).sum::<usize>() * width;
        let axes = |i: u32| if (21..40).contains(&i) { [21, 21 + (i - 21) / 5, 21 + (i - 21) % 5] } else { [i; 3] };
        ImagePrompt {
            positions: self.sections.map(|_| (0..tokens.len() as u32).map(axes).collect()),
            tokens,
            runs,
            whole_runs: self.blocks,
            width,
            rows: Random(1).floats(count),
            deep: (2..4).filter(|_| self.deep).map(|seed| Random(seed).floats(count)).collect(),
            state: case.has_states().then_some(StateId(0)),
        }
    }
}

/// Calls `check` for each model with images and each setup, with a loaded model and a prompt.
fn for_each(check: impl Fn(&str, Setup, &mut dyn Backend, ImagePrompt)) {
    for (imaging, case) in MODELS.iter().flat_map(|model| model.cases().map(move |case| (model, case))) {
        let folder = imaging.folder(case, &imaging.config(case), imaging.prefixes[0]);
        for setup in case.setups() {
            let mut model = load(folder.path(), setup);
            model.allocate(CacheSize { blocks: 16, states: 3 }).expect("memory");
            check(&format!("{}, {}", imaging.name, case.name), setup, model.as_mut(), imaging.prompt(case));
        }
    }
}

/// Every layer of a model can be on another device. Deep features are then added on several devices.
#[test]
fn image_prompts_have_the_same_logits_on_several_devices() {
    let all = MODELS.iter().flat_map(|model| model.cases().map(move |case| (model, case)));
    for (imaging, case) in all.filter(|(_, case)| !case.has_states()) {
        let folder = imaging.folder(case, &imaging.config(case), imaging.prefixes[0]);
        let logits = |devices| {
            let mut model = try_load(folder.path(), Setup { devices, ..TORCH })?;
            model.allocate(CacheSize::of_blocks(16)).expect("memory");
            let prompt = imaging.prompt(case);
            Ok::<_, LoadError>(prompt.logits(model.as_mut(), &blocks(0, prompt.tokens.len()), 7))
        };
        let expected = logits(1).expect("one device");
        for devices in [2, 3] {
            match logits(devices) {
                Ok(found) => assert_eq!(found, expected, "{}, {}, {devices} devices", imaging.name, case.name),
                Err(error) => assert!(matches!(error, LoadError::TooManyDevices { limit: 2, .. }), "{}", error.chain()),
            }
        }
    }
}

/// The kernels give the same bits. libtorch computes Gemma 4 also on the CPU.
#[track_caller]
fn assert_same(found: &[Vec<f32>], expected: &[Vec<f32>], exact: bool, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: rows");
    for (i, (found, expected)) in found.iter().flatten().zip(expected.iter().flatten()).enumerate() {
        let limit = if exact { 0.0 } else { 1e-4 };
        assert!((found - expected).abs() <= limit, "{what}: logit {i} is {found}, expected {expected}");
    }
}

fn is_exact(name: &str, setup: Setup) -> bool {
    matches!(setup.backend, BackendChoice::Cpu { .. }) && !name.starts_with("gemma4")
}

#[test]
fn language_model_is_found_inside_a_model_with_images() {
    for imaging in MODELS.iter() {
        for (case, prefix) in imaging.cases().flat_map(|case| imaging.prefixes.iter().map(move |prefix| (case, prefix)))
        {
            let folder = imaging.folder(case, &imaging.config(case), prefix);
            assert_logits(case, folder.path(), &format!("{}, {prefix}", imaging.name));
        }
    }
}

#[test]
fn chunked_image_prompts_give_the_logits_of_whole_prompts() {
    for_each(|name, setup, model, prompt| {
        let blocks = blocks(0, prompt.tokens.len());
        let whole = prompt.logits(model, &blocks, usize::MAX);
        for piece in [1, 7, 16] {
            let found = prompt.logits(model, &blocks, piece);
            let what = format!("{name}, {setup:?}, chunks of {piece}");
            assert_same(&found, &whole, is_exact(name, setup), &what);
        }
    });
}

#[test]
fn image_prompts_of_a_batch_give_the_logits_of_single_prompts() {
    for_each(|name, setup, model, prompt| {
        let mut other = ImagePrompt { runs: vec![0..5, 9..12], tokens: prompt.tokens[5..25].to_vec(), ..prompt };
        other.positions = other.positions.map(|positions| positions[..20].to_vec());
        let text = ImagePrompt { tokens: (7..40).collect(), state: other.state, ..ImagePrompt::default() };
        let single: Vec<Vec<f32>> =
            [&text, &other, &text].iter().flat_map(|prompt| prompt.logits(model, &blocks(0, 40), usize::MAX)).collect();
        let found = together(model, [&text, &other, &text]);
        assert_same(&found, &single, is_exact(name, setup), &format!("{name}, {setup:?}"));
    });
}

/// Computes three prompts in one batch. Returns the logits after every token.
fn together(model: &mut dyn Backend, prompts: [&ImagePrompt; 3]) -> Vec<Vec<f32>> {
    let with_own_state =
        |i: u32| ImagePrompt { state: prompts[i as usize].state.map(|_| StateId(i)), ..prompts[i as usize].clone() };
    let [first, second, third] = [0, 1, 2].map(with_own_state);
    let own: [Vec<BlockId>; 3] = [blocks(0, 48), blocks(3, 48), blocks(6, 48)];
    let mut logits = Vec::new();
    let chunk = |prompt: &ImagePrompt, i: usize, then: &mut dyn FnMut(tandem_core::models::SequenceChunk<'_>)| {
        prompt.with_chunk(0..prompt.tokens.len(), &own[i], LogitsFor::All, then);
    };
    chunk(&first, 0, &mut |a| {
        chunk(&second, 1, &mut |b| {
            chunk(&third, 2, &mut |c| logits = models::logits(model, &[a, b, c]).expect("computes"));
        });
    });
    logits
}

/// Changes the features of the first image's last token.
#[test]
fn first_token_of_an_image_sees_the_last_one_only_within_a_block() {
    for_each(|name, setup, model, mut prompt| {
        let blocks = blocks(0, prompt.tokens.len());
        let before = prompt.logits(model, &blocks, usize::MAX);
        prompt.rows[12 * prompt.width..13 * prompt.width].fill(0.5);
        let after = prompt.logits(model, &blocks, usize::MAX);
        let what = format!("{name}, {setup:?}");
        assert_eq!(before[4] != after[4], prompt.whole_runs, "{what}: first token");
        assert_eq!(before[3], after[3], "{what}: token before the image");
        assert_ne!(before[16], after[16], "{what}: last token");
    });
}

fn described(folder: &TempDir) -> Result<Decoder, LoadError> {
    let artifacts = Artifacts::load(folder.path()).expect("artifacts");
    models::describe(&models::open(&artifacts)?)
}

#[test]
fn unsupported_settings_of_models_with_images_are_refused_by_name() {
    let refused = [
        ("gemma4", "enable_moe_block", json!(true)),
        ("gemma4", "use_bidirectional_attention", json!("all")),
        ("gemma3", "use_bidirectional_attention", json!(true)),
        ("gemma4", "num_kv_shared_layers", json!(4)),
        ("internvl", "model_type", json!("gemma2")),
        ("mistral3", "model_type", json!("ministral3")),
        ("qwen2_5_vl", "rope_parameters", json!({"rope_theta": 500.0, "mrope_section": [4, 4, 4]})),
    ];
    for (name, setting, value) in refused {
        let imaging = MODELS.iter().find(|model| model.name == name).expect("a model");
        let case = imaging.cases().next().expect("a case");
        let mut config = imaging.config(case);
        config["text_config"][setting] = value;
        let folder = imaging.folder(case, &config, imaging.prefixes[0]);
        let error = described(&folder).expect_err(setting).chain().to_string();
        let named = if setting == "rope_parameters" && name == "qwen2_5_vl" { "mrope_section" } else { setting };
        assert!(error.contains(named), "{name}: {error}");
    }
}

/// Published configs leave out sizes that equal transformers' defaults.
#[test]
fn sizes_that_a_config_of_idefics3_leaves_out_have_the_defaults_of_llama() {
    let config = json!({"model_type": "idefics3", "text_config": {"model_type": "llama", "vocab_size": 32}});
    let idefics3 = MODELS.iter().find(|model| model.name == "idefics3").expect("a model");
    let case = idefics3.cases().next().expect("a case");
    let folder = idefics3.folder(case, &config, idefics3.prefixes[0]);
    let error = described(&folder).expect_err("a model of other sizes").chain().to_string();
    assert!(error.contains("[32, 4096]"), "{error}");
}
