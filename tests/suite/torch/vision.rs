//! Models with images, compared with the vision oracle.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tandem_core::cache::{BlockId, CacheSize};
use tandem_core::models::{self, Backend, LogitsFor, Precision, SequenceChunk};
use tandem_model_files::artifacts::Artifacts;
use tandem_tests_full::backend::{self, BackendChoice};
use tandem_tests_full::vision_oracle::{self, FOLDERS, json};
use tandem_torch::TorchTarget;

use super::image_prompts::{ImagePrompt, blocks};

/// The folders whose models have blocks of image tokens that attend to each other.
const WITH_BLOCKS: [&str; 3] = ["gemma3", "gemma3_pas", "gemma4_bidi"];

const BACKENDS: [BackendChoice; 2] =
    [BackendChoice::Torch(TorchTarget::REFERENCE), BackendChoice::Cpu { precision: Precision::F32, threads: 1 }];

/// The largest difference of a logit.
const TOLERANCE: f32 = 3e-4;

/// A conversation with transformers' results.
#[derive(Debug, Deserialize)]
struct Case {
    input_ids: Vec<u32>,
    /// The positions of the tokens: time, height, width.
    mrope_position_ids: Option<[Vec<u32>; 3]>,
    /// The difference between the position and the index of a later token.
    mrope_delta: Option<i64>,
    vision_features: Option<BTreeMap<String, Value>>,
    last_logits: Numbers,
    greedy_ids: Vec<u32>,
}

/// The largest logits, and some others.
#[derive(Debug, Deserialize)]
struct Numbers {
    argmax: u32,
    top20_id: Vec<usize>,
    top20_value: Vec<f32>,
    index: Vec<usize>,
    value: Vec<f32>,
}

/// Returns transformers' features, which `golden/make_vision_features.py` writes.
fn features(folder: &str, name: &str, part: &str) -> Option<Vec<f32>> {
    let path = PathBuf::from(std::env::var_os("TANDEM_VISION_FEATURES")?);
    let bytes = std::fs::read(path.join(folder).join(format!("{name}.{part}"))).expect("features");
    Some(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

/// A loaded model of the oracle.
struct Loaded {
    model: Box<dyn Backend>,
    folder: &'static str,
    image_token: u32,
    /// E.
    width: usize,
}

impl Loaded {
    fn new(oracle: &Path, folder: &'static str, backend: BackendChoice) -> Self {
        let path = oracle.join("models").join(folder);
        let config = json(&path.join("config.json"));
        let image_token = ["image_token_id", "image_token_index"].iter().find_map(|name| config[name].as_u64());
        let artifacts = Artifacts::load(&path).expect("artifacts");
        let model = models::open(&artifacts).and_then(|file| backend::load(&file, models::describe(&file)?, backend));
        let mut model = model.unwrap_or_else(|error| panic!("{folder}: {}", error.chain())).backend;
        model.allocate(CacheSize::of_blocks(256)).expect("memory");
        let width = config["text_config"]["hidden_size"].as_u64().expect("a size") as usize;
        Self { model, folder, image_token: image_token.expect("an image token") as u32, width }
    }

    /// Returns the prompt of a case. `None`: there are no features for its images.
    fn prompt(&self, name: &str, case: &Case) -> Option<ImagePrompt> {
        let positions = case.mrope_position_ids.as_ref();
        let positions = positions.map(|[t, h, w]| t.iter().zip(h).zip(w).map(|((t, h), w)| [*t, *h, *w]).collect());
        let mut prompt = ImagePrompt {
            tokens: case.input_ids.clone(),
            positions,
            width: self.width,
            whole_runs: WITH_BLOCKS.contains(&self.folder),
            ..ImagePrompt::default()
        };
        if let Some(parts) = &case.vision_features {
            prompt.runs = runs(&case.input_ids, self.image_token);
            prompt.rows = features(self.folder, name, "projected")?;
            let deep = (0..parts.len() - 1).map(|i| features(self.folder, name, &format!("deepstack_{i}")));
            prompt.deep = deep.collect::<Option<_>>()?;
            let tokens: usize = prompt.runs.iter().map(Range::len).sum();
            assert_eq!(tokens * self.width, prompt.rows.len(), "{}, {name}: rows", self.folder);
        }
        Some(prompt)
    }

    /// Computes a prompt in chunks of `piece` tokens, and checks the logits and the answer.
    #[track_caller]
    fn check(&mut self, name: &str, case: &Case, prompt: &ImagePrompt, piece: usize) {
        let what = format!("{}, {name}, chunks of {piece}", self.folder);
        let blocks = blocks(0, case.input_ids.len() + case.greedy_ids.len());
        let last = prompt.logits(self.model.as_mut(), &blocks, piece).pop().expect("logits");
        case.last_logits.check(&last, &what);
        assert_eq!(self.answer(case, last, &blocks), case.greedy_ids, "{what}: greedy ids");
    }

    /// Returns the greedy tokens after a computed prompt with the logits `last`.
    fn answer(&mut self, case: &Case, last: Vec<f32>, blocks: &[BlockId]) -> Vec<u32> {
        let mut ids = vec![argmax(&last)];
        while ids.len() < case.greedy_ids.len() {
            let past = case.input_ids.len() + ids.len() - 1;
            let position = case.mrope_delta.map(|delta| [(past as i64 + delta) as u32; 3]);
            let chunk = SequenceChunk {
                chosen: None,
                drafted: 0,
                tokens: &ids[ids.len() - 1..],
                past,
                is_long: false,
                blocks,
                copy: None,
                states: None,
                logits: LogitsFor::Last,
                images: &[],
                positions: position.as_ref().map(std::slice::from_ref),
            };
            let rows = models::logits(self.model.as_mut(), &[chunk]).expect("computes");
            ids.push(argmax(&rows[0]));
        }
        ids
    }
}

impl Numbers {
    #[track_caller]
    fn check(&self, found: &[f32], what: &str) {
        assert_eq!(argmax(found), self.argmax, "{what}: argmax");
        let all = [(&self.top20_id, &self.top20_value), (&self.index, &self.value)];
        for (i, expected) in all.into_iter().flat_map(|(ids, values)| ids.iter().zip(values)) {
            let distance = (found[*i] - expected).abs();
            assert!(distance <= TOLERANCE, "{what}: logit {i} is {}, expected {expected}", found[*i]);
        }
    }
}

fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("a token") as u32
}

/// Returns the runs of a token.
fn runs(ids: &[u32], token: u32) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for i in (0..ids.len()).filter(|i| ids[*i] == token) {
        match runs.last_mut() {
            Some(run) if run.end == i => run.end += 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

/// Checks the cases of every folder that `chosen` selects, whole and in chunks. Prints the counts.
fn check_all(chosen: impl Fn(&Case) -> bool) {
    let Some(oracle) = vision_oracle::folder() else { return };
    for (folder, backend) in FOLDERS.into_iter().flat_map(|folder| BACKENDS.map(|backend| (folder, backend))) {
        let golden = vision_oracle::golden(&oracle, folder);
        let cases: BTreeMap<String, Case> = serde_json::from_value(golden["cases"].clone()).expect("cases");
        let mut loaded = Loaded::new(&oracle, folder, backend);
        let (mut checked, mut skipped) = (0, 0);
        for (name, case) in cases.iter().filter(|(_, case)| chosen(case)) {
            let Some(prompt) = loaded.prompt(name, case) else {
                skipped += 1;
                continue;
            };
            [usize::MAX, 7].into_iter().for_each(|piece| loaded.check(name, case, &prompt, piece));
            checked += 1;
        }
        eprintln!("{folder}, {backend:?}: {checked} cases checked, {skipped} skipped");
    }
}

#[test]
fn text_of_models_with_images_matches_transformers() {
    check_all(|case| case.vision_features.is_none());
}

/// Needs the features of the folder TANDEM_VISION_FEATURES.
#[test]
fn image_features_give_the_logits_and_tokens_of_transformers() {
    check_all(|case| case.vision_features.is_some());
}
