//! Small model folders without weights.

use std::path::PathBuf;

use render_svc::catalog::{ModelTable, ServedModel};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Returns a `tokenizer.json` of bytes and these tokens. Each token has a flag that makes it
/// special. The first token has the id 256.
#[must_use]
pub fn byte_tokenizer(added: &[(&str, bool)]) -> Value {
    let token = |(id, (content, special)): (usize, &(&str, bool))| {
        json!({"id": id, "content": content, "special": special, "normalized": false, "single_word": false,
               "lstrip": false, "rstrip": false})
    };
    let added: Vec<_> = (256..).zip(added).map(token).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let model = json!({"type": "BPE", "vocab": byte_vocabulary(), "merges": []});
    json!({"version": "1.0", "added_tokens": added, "model": model, "pre_tokenizer": bytes, "decoder": bytes})
}

/// Returns the byte-level alphabet: printable Latin-1 bytes as themselves, the other bytes as the
/// code points after U+00FF.
fn byte_vocabulary() -> Map<String, Value> {
    let mut others = '\u{100}'..;
    let is_printable = |byte: u8| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let spelled = |byte: u8| {
        if is_printable(byte) { char::from(byte) } else { others.next().expect("there is a letter for every byte") }
    };
    let spelled: Vec<char> = (0..=255).map(spelled).collect();
    spelled.iter().enumerate().map(|(id, char)| (char.to_string(), id.into())).collect()
}

/// A model folder without weights, in a temporary folder.
#[derive(Debug)]
pub struct ModelFolder {
    parent: TempDir,
    name: String,
    config: Value,
    tokenizer: Option<Value>,
    architecture: Option<String>,
}

impl ModelFolder {
    /// Returns a model with this id and a bos token only.
    ///
    /// # Panics
    /// If the temporary folder cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let parent = TempDir::new().expect("a temporary folder");
        Self { parent, name: name.to_owned(), config: json!({"bos_token": "<s>"}), tokenizer: None, architecture: None }
    }

    /// Adds a chat template.
    #[must_use]
    pub fn with_template(mut self, template: &str) -> Self {
        self.config["chat_template"] = template.into();
        self
    }

    /// Adds a tokenizer of one letter.
    #[must_use]
    pub fn with_tokenizer(mut self) -> Self {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let model = json!({"type": "BPE", "vocab": {"a": 0}, "merges": []});
        self.tokenizer = Some(json!({"version": "1.0", "model": model, "pre_tokenizer": bytes, "decoder": bytes}));
        self
    }

    /// Adds a tokenizer of bytes and these tokens. Each token has a flag that makes it special. The
    /// first token has the id 256.
    #[must_use]
    pub fn with_tokens(mut self, added: &[(&str, bool)]) -> Self {
        self.tokenizer = Some(byte_tokenizer(added));
        self
    }

    /// Adds a tokenizer that puts the token `<s>`, id 256, before a text and `</s>`, id 257, after
    /// it.
    #[must_use]
    pub fn with_tokens_around(self) -> Self {
        let mut model = self.with_tokens(&[("<s>", true), ("</s>", true)]);
        let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let single = json!([special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>")]);
        let ids = |token: &str, id: u32| json!({"id": token, "ids": [id], "tokens": [token]});
        let special_tokens = json!({"<s>": ids("<s>", 256), "</s>": ids("</s>", 257)});
        let tokenizer = model.tokenizer.as_mut().expect("the model has a tokenizer");
        tokenizer["post_processor"] =
            json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special_tokens});
        model
    }

    /// Adds this entry to tokenizer_config.json.
    #[must_use]
    pub fn with_setting(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    /// Adds a config.json of this architecture.
    #[must_use]
    pub fn with_architecture(mut self, name: &str) -> Self {
        self.architecture = Some(name.to_owned());
        self
    }

    /// Moves the model into a folder of this name inside the temporary folder, such as
    /// `owner/name`.
    #[must_use]
    pub fn at(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Writes the model and loads it.
    ///
    /// # Panics
    /// If the model does not load.
    #[must_use]
    pub fn models(&self) -> ModelTable {
        ServedModel::load(&self.path()).expect("the model loads").into()
    }

    /// Writes the model. The folder exists until this value is dropped.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let path = self.parent.path().join(&self.name);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        std::fs::write(path.join("tokenizer_config.json"), self.config.to_string())
            .expect("the temporary folder is writable");
        if let Some(architecture) = &self.architecture {
            let config = json!({"model_type": architecture});
            std::fs::write(path.join("config.json"), config.to_string()).expect("the temporary folder is writable");
        }
        if let Some(tokenizer) = &self.tokenizer {
            std::fs::write(path.join("tokenizer.json"), tokenizer.to_string())
                .expect("the temporary folder is writable");
        }
        path
    }
}
