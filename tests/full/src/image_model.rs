//! Tiny models with images, which tests write from `golden/image_models.json`, and images for them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_tests::safetensors_file::{file, folder};
use tandem_tests::{Random, byte_tokenizer, repository};
use tempfile::TempDir;

/// A tiny model with images. Its tokenizer has the bytes and some special tokens.
#[derive(Debug, Deserialize)]
pub struct ImageModel {
    /// The mean of the weights of norms in the language model.
    norms_around: f32,
    /// The special tokens. The first has the id 256.
    tokens: Vec<String>,
    /// The chat template.
    template: String,
    /// The JSON files of the model's folder.
    files: BTreeMap<String, Value>,
    /// The tensors' shapes.
    tensors: BTreeMap<String, Vec<usize>>,
}

impl ImageModel {
    /// Returns every model by its name.
    ///
    /// # Panics
    /// If the file is missing or has another format.
    #[must_use]
    pub fn all() -> BTreeMap<String, Self> {
        let path = repository().join("tests/golden/image_models.json");
        serde_json::from_str(&std::fs::read_to_string(path).expect("the models")).expect("JSON")
    }

    /// Changes a setting of a JSON file, at a JSON pointer.
    ///
    /// # Panics
    /// If there is no such setting.
    pub fn set(&mut self, file: &str, pointer: &str, value: Value) {
        *self.files.get_mut(file).and_then(|file| file.pointer_mut(pointer)).expect("a setting") = value;
    }

    /// Adds a special token. The vocabulary's size and its tensor must be changed too.
    pub fn add_token(&mut self, text: &str) {
        self.tokens.push(text.to_owned());
    }

    /// Returns the special tokens.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Changes the shape of a tensor.
    pub fn reshape(&mut self, tensor: &str, shape: &[usize]) {
        self.tensors.insert(tensor.to_owned(), shape.to_vec());
    }

    /// Writes the model with pseudorandom weights into a temporary folder.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn folder(&self) -> TempDir {
        let tokens: Vec<_> = self.tokens.iter().map(|token| (token.as_str(), true)).collect();
        let mut files: Vec<_> =
            self.files.iter().map(|(name, value)| (name.as_str(), value.to_string().into_bytes())).collect();
        files.push(("tokenizer.json", byte_tokenizer(&tokens).to_string().into_bytes()));
        files.push(("chat_template.jinja", self.template.clone().into_bytes()));
        files.push(("model.safetensors", self.weights()));
        folder(&files)
    }

    fn weights(&self) -> Vec<u8> {
        let (mut header, mut data, mut random) = (Map::new(), Vec::new(), Random(1));
        for (name, shape) in &self.tensors {
            let begin = data.len();
            let values = random.floats(shape.iter().product());
            data.extend(values.into_iter().flat_map(|value| self.weight(name, shape, value).to_le_bytes()));
            let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
            header.insert(name.clone(), entry);
        }
        file(&Value::Object(header).to_string(), &data)
    }

    /// Scales a number within -1..1 so that the output depends on every layer. The signs of the last
    /// norm keep tied embeddings from repeating the last token.
    fn weight(&self, name: &str, shape: &[usize], value: f32) -> f32 {
        let is_last_norm = name.ends_with("model.norm.weight");
        match shape {
            _ if is_last_norm => 1.2_f32.copysign(value) + self.norms_around - 1.0,
            [_] if name.ends_with(".bias") => value / 4.0,
            [_] if name.contains("vision_model") => 1.0 + value / 4.0,
            [_] => self.norms_around + value / 4.0,
            _ if name.contains("embed_tokens") => 0.3 * value,
            [_, inner @ ..] => 3.0 * value / (inner.iter().product::<usize>() as f32).sqrt(),
            [] => value,
        }
    }
}

/// Returns a BMP file with pseudorandom pixels.
#[must_use]
pub fn bitmap(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let row = (width * 3).next_multiple_of(4);
    bmp(width, height, Random(seed).bytes((row * height) as usize))
}

/// Returns a BMP file whose rows have one pseudorandom colour each. The width is a multiple of 4.
#[must_use]
pub fn rows(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let colours = Random(seed).bytes(3 * height as usize);
    bmp(width, height, colours.chunks(3).flat_map(|colour| colour.repeat(width as usize)).collect())
}

/// Returns a BMP file with these rows.
fn bmp(width: u32, height: u32, pixels: Vec<u8>) -> Vec<u8> {
    let row = (width * 3).next_multiple_of(4);
    let mut bytes = b"BM".to_vec();
    let header = [54 + row * height, 0, 54, 40, width, height, 1 | 24 << 16, 0, 0, 0, 0, 0, 0];
    bytes.extend(header.map(u32::to_le_bytes).concat());
    bytes.extend(pixels);
    bytes
}

/// Returns the first bytes of a PNG file: its signature, and the header with its size (PNG
/// specification, 5.2 and 11.2.2).
#[must_use]
pub fn png_header(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend([width, height].map(u32::to_be_bytes).concat());
    bytes.extend([8, 2, 0, 0, 0]);
    let crc = crc32(&bytes[12..]);
    bytes.extend(crc.to_be_bytes());
    bytes
}

/// Returns the checksum of a PNG chunk.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
