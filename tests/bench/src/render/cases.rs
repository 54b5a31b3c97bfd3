//! The cases: models with templates, and requests for them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Models and requests.
#[derive(Debug)]
pub(crate) struct Set {
    /// Folders with a tokenizer_config.json, named by their numbers.
    pub(crate) folder: TempDir,
    pub(crate) models: Vec<Model>,
    pub(crate) cases: Vec<Case>,
}

/// A model that has only a template.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) template: String,
    /// bos_token and eos_token, if the model has them.
    pub(crate) special_tokens: Map<String, Value>,
}

/// A request to one of the models.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) model: usize,
    /// The JSON request as for the command `render`, without the model.
    pub(crate) request: String,
}

impl Set {
    /// Loads every template and conversation of the corpus. Without a corpus, uses the tokenizers'
    /// templates and built-in conversations.
    pub(crate) fn load(corpus: Option<&Path>, tokenizers: &Path) -> Result<Self> {
        let (models, conversations) = match corpus {
            Some(corpus) => (corpus_models(corpus)?, corpus_conversations(corpus)?),
            None => (tokenizer_models(tokenizers)?, own_conversations()),
        };
        let requests: Vec<String> = conversations.iter().map(request).collect();
        let cases = (0..models.len())
            .flat_map(|model| requests.iter().map(move |request| Case { model, request: request.clone() }))
            .collect();
        let folder = TempDir::new()?;
        for (i, model) in models.iter().enumerate() {
            let path = folder.path().join(i.to_string());
            fs::create_dir(&path)?;
            fs::write(path.join("tokenizer_config.json"), model.config().to_string())?;
        }
        Ok(Self { folder, models, cases })
    }
}

impl Model {
    fn config(&self) -> Value {
        let mut config = self.special_tokens.clone();
        config.insert("chat_template".to_owned(), self.template.clone().into());
        Value::Object(config)
    }
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn tokens(of: &Value) -> Map<String, Value> {
    let names = ["bos_token", "eos_token"].into_iter();
    let text = |value: &Value| value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned);
    names.filter_map(|name| Some((name.to_owned(), text(&of[name])?.into()))).collect()
}

fn corpus_models(corpus: &Path) -> Result<Vec<Model>> {
    let manifest = read(&corpus.join("templates/manifest.json"))?;
    let load = |entry: &Value| {
        let slug = entry["slug"].as_str().unwrap_or_default();
        let template = fs::read_to_string(corpus.join(format!("templates/{slug}.jinja")))?;
        Ok(Model { template, special_tokens: tokens(entry) })
    };
    manifest.as_array().into_iter().flatten().map(load).collect()
}

fn corpus_conversations(corpus: &Path) -> Result<Vec<Value>> {
    let mut paths: Vec<_> =
        fs::read_dir(corpus.join("conversations"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn tokenizer_models(tokenizers: &Path) -> Result<Vec<Model>> {
    let mut models = Vec::new();
    for entry in fs::read_dir(tokenizers).with_context(|| format!("cannot read {}", tokenizers.display()))? {
        let Ok(config) = read(&entry?.path().join("tokenizer_config.json")) else { continue };
        if let Some(template) = config["chat_template"].as_str() {
            models.push(Model { template: template.to_owned(), special_tokens: tokens(&config) });
        }
    }
    Ok(models)
}

fn own_conversations() -> Vec<Value> {
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "The weather somewhere.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}});
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let turns: Vec<Value> = (0..10)
        .flat_map(|i| [user(&format!("Question {i}: why?")), assistant(&format!("Answer {i}: because."))])
        .chain([user("And now?")])
        .collect();
    vec![
        json!({"messages": [user("Why is the sky blue?")]}),
        json!({"messages": [{"role": "system", "content": "Be brief."}, user("Why is the sky blue?")]}),
        json!({"messages": turns}),
        json!({"messages": [user("How is the weather in Oslo?")], "tools": [tool]}),
    ]
}

/// Returns the variables that transformers passes to a template.
fn request(conversation: &Value) -> String {
    let mut request = json!({"normalization": "none", "render_time": "2025-07-04T09:05:03"});
    let keys = ["messages", "tools", "documents", "template_args", "add_generation_prompt", "continue_final_message"];
    for key in keys {
        if let Some(value) = conversation.get(key) {
            request[key] = value.clone();
        }
    }
    request.to_string()
}
