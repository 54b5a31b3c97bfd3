//! A small model without weights: a chat template, and a tokenizer of one character per token.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub(super) const NAME: &str = "mock";

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The model's temporary folder. Dropping this removes it.
#[derive(Debug)]
pub(super) struct Model(TempDir);

impl Model {
    pub(super) fn write() -> Result<Self> {
        let parent = TempDir::new()?;
        let folder = parent.path().join(NAME);
        std::fs::create_dir(&folder)?;
        let config = json!({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"});
        std::fs::write(folder.join("tokenizer_config.json"), config.to_string())?;
        std::fs::write(folder.join("tokenizer.json"), tokenizer().to_string())?;
        Ok(Self(parent))
    }

    pub(super) fn path(&self) -> PathBuf {
        Path::new(self.0.path()).join(NAME)
    }
}

/// Returns the tokenizer file. A byte-level vocabulary spells a space `Ġ` and a line break `Ċ`.
fn tokenizer() -> Value {
    let spelled = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from);
    let vocabulary: Map<String, Value> = spelled.zip(0..).map(|(token, id)| (token, json!(id))).collect();
    let control = |(i, content): (usize, &str)| {
        json!({"id": vocabulary.len() + i, "content": content, "special": true, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false})
    };
    let added: Vec<Value> = ["<|im_start|>", "<|im_end|>"].into_iter().enumerate().map(control).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": bytes,
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}
