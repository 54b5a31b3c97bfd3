//! The templates that the `gemma-4` adapter replaces. A template is a known revision if the adapter
//! and the template engine give equal answers to generated conversations. Each was compared on 1,500
//! conversations with calls, results, reasoning, media, tools and errors. The texts are not part of
//! this repository; the tests compare those of the corpus beside it, if it exists:
//!
//! | SHA-256 of the text | origin | revision |
//! |---|---|---|
//! | `451171be…` | PyPI unsloth 2026.10.9, `gemma-4.jinja` | newest |
//! | `818d41c5…` | PyPI unsloth 2026.10.9, `gemma-4-edge.jinja`, for E2B and E4B | newest |
//! | `df269903…` | github ollama/ollama, of google/gemma-4-31B-it | 2026-07-09 |
//! | `3beb16a1…` | github ollama/ollama, of google/gemma-4-E2B-it | 2026-07-09 |
//! | `0a2c8073…` | PyPI trl 1.16.0, `gemma4_v5.jinja`, for E2B and E4B | 2026-07-09 |

use std::fs;
use std::path::Path;

use render_svc::catalog::{ModelTable, ServedModel};
use serde_json::{Value, json};
use tandem_tests::corpus::{read, request};
use tandem_tests::{ModelFolder, answer, corpus};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

/// A template of another maker that writes turns of Gemma 4.
const TURNS: &str = "{% for m in messages %}<|turn>{{ m.role }}: {{ m.content }}<turn|>{% endfor %}";

fn folder(architecture: &str, template: &str) -> ModelFolder {
    ModelFolder::new("tiny").with_architecture(architecture).with_template(template).with_setting("bos_token", "<bos>")
}

fn hi(models: &ModelTable, adapter: Option<&str>) -> Value {
    let mut request = json!({"messages": [{"role": "user", "content": "Hi"}]});
    if let Some(adapter) = adapter {
        request["adapter"] = json!(adapter);
    }
    answer(models, &request)
}

fn reason(models: &ModelTable) -> &str {
    &models.get("").expect("the only model").adapter.resolution.reason
}

#[test]
fn another_template_of_the_family_renders_itself_and_the_resolution_names_both() {
    for (architecture, template) in [("gemma4", CHATML), ("gemma4_text", CHATML), ("gemma4", TURNS), ("llama", TURNS)] {
        let models = folder(architecture, template).models();
        let expected = hi(&models, Some("tokenizer-template"));
        let found = hi(&models, None);
        assert_eq!((&found["adapter"], &found["prompt"]), (&json!("tokenizer-template"), &expected["prompt"]));
        assert!(reason(&models).contains("gemma-4"), "{}", reason(&models));
        let pinned = hi(&models, Some("gemma-4"));
        assert!(pinned["prompt"].as_str().is_some_and(|prompt| prompt.starts_with("<bos><|turn>user\nHi")), "{pinned}");
    }
}

#[test]
fn turn_tokens_in_a_comment_select_nothing() {
    let models = folder("llama", &format!("{CHATML}{{# not <|turn> and <turn|> #}}")).models();
    assert_eq!(hi(&models, None)["adapter"], "tokenizer-template");
    assert!(!reason(&models).contains("gemma-4"), "{}", reason(&models));
}

/// The newest revision and its slug in the corpus.
const NEWEST: &str = "unsloth-gemma-4";

/// Templates of the family that the adapter does not equal.
const OTHERS: [&str; 3] =
    ["lc-google-gemma-4-31b-it", "lc-google-gemma-4-31b-it-interleaved", "unsloth-gemma4-template"];

fn source(corpus: &Path, slug: &str) -> String {
    fs::read_to_string(corpus.join(format!("templates/{slug}.jinja"))).expect("a file of the corpus")
}

#[test]
fn a_known_revision_is_recognized_with_harmless_differences() {
    let Some(corpus) = corpus() else { return };
    let newest = source(&corpus, NEWEST);
    let (_, after_comment) = newest.split_once("#}\n").expect("it begins with a comment");
    for text in [newest.clone(), format!("{newest}\n\n"), newest.replace('\n', "\r\n"), after_comment.to_owned()] {
        let models = folder("gemma4", &text).models();
        assert_eq!(hi(&models, None)["adapter"], "gemma-4");
        assert_eq!(hi(&models, None)["prompt"], hi(&models, Some("tokenizer-template"))["prompt"]);
    }
    let changed = folder("gemma4", &newest.replacen("thought\\n<channel|>", "thought\\n\\n<channel|>", 1)).models();
    assert_eq!(hi(&changed, None)["adapter"], "tokenizer-template");
    for slug in OTHERS {
        assert_eq!(hi(&folder("gemma4", &source(&corpus, slug)).models(), None)["adapter"], "tokenizer-template");
    }
}

#[test]
fn every_template_of_the_family_renders_the_corpus_as_transformers_does() {
    let Some(corpus) = corpus() else { return };
    for slug in OTHERS.into_iter().chain([NEWEST]) {
        let golden = read(&corpus.join(format!("goldens/{slug}.json")));
        let bos = golden["bos_token"].as_str().unwrap_or("<bos>");
        let models = folder("gemma4", &source(&corpus, slug)).with_setting("bos_token", bos).models();
        for (id, golden) in golden["cases"].as_object().expect("cases") {
            let mut request = request(&corpus, id);
            request.as_object_mut().expect("an object").remove("adapter");
            let has_media = request["messages"].to_string().contains("\"image\"") && slug != NEWEST;
            let answer = answer(&models, &request);
            let is_right = match golden["ok"].as_str() {
                Some(text) => answer["prompt"] == text || has_media,
                None => answer["error"].is_object() || slug == NEWEST && golden["raised_by_template"] == false,
            };
            assert!(is_right, "{slug} {id}: {answer}");
        }
    }
}

/// A reproducible stream of small numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn text(&mut self) -> Value {
        json!(self.pick(&["", "Hi", " spaced ", "é\n", "a<|channel>thought\nz<channel|>b"]))
    }

    fn content(&mut self, role: &str) -> Value {
        let (first, second) = (self.text(), self.text());
        let blocks = json!([{"type": "text", "text": first}, {"type": "text", "text": second}]);
        match self.below(8) {
            0 => json!(null),
            1 if role != "system" => blocks,
            2 if role == "user" => json!([{"type": "text", "text": first}, {"type": "image"}]),
            _ => self.text(),
        }
    }

    fn message(&mut self) -> Value {
        let role = self.pick(&["user", "user", "assistant", "assistant", "tool", "system"]);
        let mut message = json!({"role": role, "content": self.content(role)});
        if role == "tool" {
            message["tool_call_id"] = json!(self.pick(&["a", "b", "z"]));
        }
        if role == "assistant" && self.below(2) == 0 {
            message["reasoning_content"] = self.text();
        }
        if role == "assistant" && self.below(2) == 0 {
            let arguments = json!({"z": self.text(), "A": [1.0, null, true], "m": {"é": self.below(9)}});
            let id = self.pick(&["a", "b"]);
            message["tool_calls"] = json!([{"id": id, "function": {"name": "f", "arguments": arguments}}]);
        }
        message
    }

    fn request(&mut self) -> Value {
        let count = 1 + self.below(6);
        let messages: Vec<Value> = (0..count).map(|_| self.message()).collect();
        let mut request = json!({
            "messages": messages,
            "normalization": "none",
            "add_generation_prompt": self.below(4) > 0,
            "template_args": {"enable_thinking": self.below(2) == 0, "preserve_thinking": self.below(2) == 0},
        });
        if self.below(2) == 0 {
            let parameters = json!({"type": "object", "properties": {"z": {"type": "string", "enum": ["a"]}}});
            request["tools"] = json!([{"type": "function", "function":
                {"name": "f", "description": "d", "parameters": parameters}}]);
        }
        request
    }
}

/// Returns the prompt; None for an error.
fn prompt(models: &ModelTable, request: &Value, adapter: &str) -> Option<String> {
    let mut request = request.clone();
    request["adapter"] = json!(adapter);
    answer(models, &request)["prompt"].as_str().map(str::to_owned)
}

#[test]
fn the_adapter_equals_the_template_that_it_replaces() {
    let Some(corpus) = corpus() else { return };
    let folder = folder("gemma4", &source(&corpus, NEWEST));
    let models: ModelTable = ServedModel::load(&folder.path()).expect("a model").into();
    let mut numbers = Numbers(7);
    for _ in 0..400 {
        let request = numbers.request();
        let found = prompt(&models, &request, "gemma-4");
        assert_eq!(found, prompt(&models, &request, "tokenizer-template"), "{request}");
    }
}
