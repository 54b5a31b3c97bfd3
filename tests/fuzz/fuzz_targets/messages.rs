//! Reads arbitrary JSON text as messages with images, and prepares the prompt of a model of each
//! family. Bytes that are no JSON are a file for each kind of prompt with a marker.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tandem_core::media::{
    HfMessages, ImageAttention, Marked, MediaFile, MediaLimits, MediaSource, Room, Vision, read_processor,
};
use tandem_images::Limits;
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_template::LocalTime;

const NOW: LocalTime = LocalTime { year: 2025, month: 7, day: 4, hour: 9, minute: 5, second: 3, microsecond: 0 };
const LIMITS: MediaLimits = MediaLimits {
    images: 4,
    image: Limits { max_bytes: 1 << 20, max_pixels: 1 << 14, max_tiles: 64 },
    memory_bytes: 1 << 20,
};

/// A model of the tests, without its tensors.
#[derive(Deserialize)]
struct Model {
    tokens: Vec<String>,
    template: String,
    files: BTreeMap<String, Value>,
}

static MODELS: LazyLock<Vec<(Vision, Tokenizer)>> = LazyLock::new(|| {
    let models: BTreeMap<String, Model> =
        serde_json::from_str(include_str!("../../golden/image_models.json")).expect("the models");
    models.iter().map(|(name, model)| load(name, model)).collect()
});

fn load(name: &str, model: &Model) -> (Vision, Tokenizer) {
    let folder = std::env::temp_dir().join(format!("tandem-fuzz-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for (file, value) in &model.files {
        fs::write(folder.join(file), value.to_string()).expect("a file of the model");
    }
    fs::write(folder.join("chat_template.jinja"), &model.template).expect("a file of the model");
    fs::write(folder.join("tokenizer.json"), tokenizer(&model.tokens).to_string()).expect("a file of the model");
    let artifacts = Artifacts::load(&folder).expect("a model's files");
    let attention = ImageAttention { has_axes: name.starts_with("qwen"), is_mutual: name.starts_with("gemma") };
    let processor = read_processor(&folder).expect("a processor");
    let vision = Vision::load(&artifacts, processor, attention, LIMITS, Vec::new()).expect("a processor");
    let tokenizer = artifacts.tokenizer().expect("a tokenizer");
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    (vision, tokenizer)
}

/// A token for each byte, and the special tokens after them.
fn tokenizer(special: &[String]) -> Value {
    let is_printable = |byte: &u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = '\u{100}'..;
    let spelled = |byte: u8| if is_printable(&byte) { char::from(byte) } else { others.next().expect("a letter") };
    let letters: Vec<char> = (0..=255).map(spelled).collect();
    let vocabulary: Map<String, Value> =
        (0..).zip(letters).map(|(id, letter): (u32, _)| (letter.to_string(), id.into())).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let token = |(id, content): (u32, &String)| {
        json!({"id": id, "content": content, "special": true, "normalized": false, "single_word": false,
               "lstrip": false, "rstrip": false})
    };
    let added: Vec<Value> = (256..).zip(special).map(token).collect();
    let model = json!({"type": "BPE", "vocab": vocabulary, "merges": []});
    json!({"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": bytes, "decoder": bytes})
}

/// Prepares messages, with spelled control tokens and without, and checks the places of the images.
fn messages(messages: &[Value]) {
    for ((vision, tokenizer), literal_control_tokens) in MODELS.iter().flat_map(|model| [(model, false), (model, true)])
    {
        let messages = HfMessages { literal_control_tokens, ..HfMessages::new(messages.to_vec(), NOW) };
        let Ok(prompt) = vision.prompt(messages, Room { tokenizer, context: 1 << 20 }) else { continue };
        for span in &prompt.media.spans {
            assert!(span.positions.end <= prompt.ids.len() && span.image < prompt.media.images.len());
        }
    }
}

/// Prepares a file at a marker in ids. Whether the id is the marker depends on the model.
fn marked(bytes: &[u8]) {
    for (vision, tokenizer) in &*MODELS {
        for id in 256..268 {
            let file = MediaFile { source: MediaSource::Bytes(bytes.to_vec()), offset: 1 };
            let _ = vision.marked(Marked::TokenIds(vec![65, id, 66]), vec![file], Room { tokenizer, context: 1 << 20 });
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    match serde_json::from_slice(bytes) {
        Ok(Value::Array(list)) => messages(&list),
        Ok(_) => {}
        Err(_) => marked(bytes),
    }
});
