//! Tiny models with images and transformers' results, which `golden/make_image_architectures.py`
//! writes. Both sides compute the weights from a seed.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_tests::safetensors_file::{file, folder};
use tandem_tests::{byte_tokenizer, repository, scramble};
use tempfile::TempDir;

use crate::picture::Picture;

/// The id of the first special token, after the bytes and a token of two newlines.
const SPECIAL: usize = 257;

/// All of them.
#[derive(Debug)]
pub struct Goldens {
    /// Small images of other formats than PNG, in base64.
    files: BTreeMap<String, String>,
    families: BTreeMap<String, Family>,
    /// The models.
    pub cases: Vec<Case>,
}

/// A family of models.
#[derive(Debug, Deserialize)]
struct Family {
    /// The special tokens.
    tokens: Vec<String>,
    /// The chat template.
    template: String,
    cases: Vec<Case>,
}

/// A model with transformers' results.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// The model's name.
    pub name: String,
    /// The name of its family.
    #[serde(skip)]
    pub family: String,
    seed: u64,
    /// The JSON files of the model's folder.
    files: BTreeMap<String, Value>,
    /// How weights are drawn, by a part of the tensor's name: the mean; a number that a random sign
    /// multiplies; the largest difference from them.
    weights: Vec<(String, f64, f64, f64)>,
    /// The tensors' shapes.
    tensors: BTreeMap<String, Vec<usize>>,
    /// Conversations with the results.
    pub conversations: Vec<Conversation>,
}

/// A conversation with transformers' results.
#[derive(Debug, Deserialize)]
pub struct Conversation {
    /// The messages. A block with an image describes it.
    messages: Vec<Value>,
    /// The SHA-256 of the pixel values of all images in order, without padding, as 32-bit floats.
    pub pixels: Option<String>,
    prompt: Vec<Run>,
    /// The likeliest first tokens and their log-probabilities.
    pub likeliest: Vec<(u32, f32)>,
    /// The greedy tokens.
    pub greedy: Vec<u32>,
}

/// A token, or a run of equal tokens with its length.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Run {
    One(u32),
    Several(u32, usize),
}

impl Goldens {
    /// Reads the goldens.
    ///
    /// # Panics
    /// If the file is missing or has another format.
    #[must_use]
    pub fn read() -> Self {
        let golden = repository().join("tests/golden");
        let read = |path: &Path| std::fs::read(path).expect("a golden");
        let entries = std::fs::read_dir(golden.join("image_families")).expect("the goldens");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut families = BTreeMap::new();
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            families.insert(name, serde_json::from_slice::<Family>(&read(&path)).expect("JSON"));
        }
        let named = |(name, family): (&String, &mut Family)| {
            let cases = std::mem::take(&mut family.cases).into_iter();
            cases.map(|case| Case { family: name.clone(), ..case }).collect::<Vec<_>>()
        };
        let cases = families.iter_mut().flat_map(named).collect();
        let files = serde_json::from_slice(&read(&golden.join("image_files.json"))).expect("JSON");
        Self { files, families, cases }
    }

    /// Writes a model into a temporary folder.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn folder(&self, case: &Case) -> TempDir {
        let Family { tokens, template, .. } = &self.families[&case.family];
        let mut files: Vec<_> =
            case.files.iter().map(|(name, value)| (name.as_str(), value.to_string().into_bytes())).collect();
        files.push(("tokenizer.json", tokenizer(tokens).to_string().into_bytes()));
        files.push(("chat_template.jinja", template.clone().into_bytes()));
        files.push(("model.safetensors", case.weights(SPECIAL + tokens.len())));
        folder(&files)
    }

    /// Writes a Gemma 4 whose template places images as the published one does, into a temporary
    /// folder. The goldens' template adds empty lines.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn gemma4(&self) -> TempDir {
        let folder = self.folder(self.cases.iter().find(|case| case.name == "gemma4").expect("a model"));
        let path = folder.path().join("chat_template.jinja");
        let template = std::fs::read_to_string(&path).expect("a template");
        let published = template.replace(r"'\n\n<|image|>\n\n'", "'<|image|>'");
        assert_ne!(template, published);
        std::fs::write(path, published).expect("written");
        folder
    }

    /// Returns the messages of a conversation, with the data of the images.
    ///
    /// # Panics
    /// If a description of an image is invalid.
    #[must_use]
    pub fn messages(&self, conversation: &Conversation) -> Vec<Value> {
        let mut messages = conversation.messages.clone();
        let blocks = messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten();
        for block in blocks.filter(|block| block["type"] == "image") {
            let data = match block["file"].as_str() {
                Some(name) => self.files[name].clone(),
                None => {
                    let picture: Picture = serde_json::from_value(block.take()).expect("an image");
                    BASE64_STANDARD.encode(picture.png())
                }
            };
            *block = json!({"type": "image", "base64": data});
        }
        messages
    }
}

/// Returns a `tokenizer.json` of bytes, two newlines, and special tokens.
fn tokenizer(tokens: &[String]) -> Value {
    let newlines = "\u{10a}\u{10a}";
    let special: Vec<_> =
        [newlines].into_iter().chain(tokens.iter().map(String::as_str)).map(|token| (token, true)).collect();
    let mut file = byte_tokenizer(&special);
    file["added_tokens"].as_array_mut().expect("a list").remove(0);
    file["model"]["vocab"][newlines] = json!(SPECIAL - 1);
    file["model"]["merges"] = json!([["\u{10a}", "\u{10a}"]]);
    file
}

impl Conversation {
    /// Returns the prompt's token ids.
    #[must_use]
    pub fn prompt(&self) -> Vec<u32> {
        let expand = |run: &Run| match *run {
            Run::One(id) => vec![id],
            Run::Several(id, count) => vec![id; count],
        };
        self.prompt.iter().flat_map(expand).collect()
    }

    /// Returns the descriptions of the images.
    pub fn images(&self) -> impl Iterator<Item = &Value> {
        let blocks = self.messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        blocks.filter(|block| block["type"] == "image")
    }
}

impl Case {
    /// Returns true if the model has recurrent states. libtorch does not compute its language model then.
    #[must_use]
    pub fn has_states(&self) -> bool {
        self.tensors.keys().any(|name| name.contains("linear_attn"))
    }

    /// Returns the config.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.files["config.json"]
    }

    /// Returns the safetensors file.
    fn weights(&self, vocabulary: usize) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, shape) in &self.tensors {
            let begin = data.len();
            let values = self.tensor(name, shape, vocabulary);
            data.extend(values.into_iter().flat_map(|value| [value.to_le_bytes()[2], value.to_le_bytes()[3]]));
            let entry = json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, data.len()]});
            header.insert(name.clone(), entry);
        }
        file(&Value::Object(header).to_string(), &data)
    }

    /// Returns the numbers of a tensor, which bf16 represents exactly. The rows of special tokens
    /// are smaller.
    fn tensor(&self, name: &str, shape: &[usize], vocabulary: usize) -> Vec<f32> {
        let (mean, signed, spread) = self.drawing(name, shape);
        let start = fnv(&format!("{}:{name}", self.seed));
        let inner: usize = shape.iter().skip(1).product();
        let value = |i: usize| {
            let drawn = (scramble(start.wrapping_add(i as u64)) >> 58) as f64 / 32.0 - 1.0;
            let value = mean + if drawn < 0.0 { -signed } else { signed } + spread * drawn;
            let is_special = shape.first() == Some(&vocabulary) && i / inner >= SPECIAL;
            if is_special { (value / 4.0) as f32 } else { value as f32 }
        };
        (0..shape.iter().product()).map(value).collect()
    }

    /// Returns the mean, the signed number and the largest difference of a tensor's numbers. The
    /// numbers of a matrix get smaller with its number of columns.
    fn drawing(&self, name: &str, shape: &[usize]) -> (f64, f64, f64) {
        if let Some((_, mean, signed, spread)) = self.weights.iter().find(|row| name.contains(&row.0)) {
            return (*mean, *signed, *spread);
        }
        let [_, inner @ ..] = shape else { return (0.0, 0.0, 0.25) };
        if inner.is_empty() {
            return (if name.ends_with(".weight") { 1.0 } else { 0.0 }, 0.0, 0.25);
        }
        let (inner, mut scale) = (inner.iter().product::<usize>() as f64, 1.0);
        while scale * scale * inner > 8.0 {
            scale /= 2.0;
        }
        (0.0, 0.0, scale)
    }
}

/// Returns the 64-bit FNV-1a hash.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
