//! How a model's output is to be read, as data: inferred once per model, from its tokenizer, generation config and template.

use serde_json::{Value, json};
use tandem_common::artifacts::Artifacts;
use tandem_common::template::{self, Limits, LocalTime};
use tandem_common::tokenizer::Tokenizer;

use crate::chat::Object;
use crate::models::Templates;

/// What travels from Render to Generate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, in ascending order.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end it, for formats whose end marker is not one token.
    pub stop_strings: Vec<String>,
}

/// What the probe's assistant says. A template may move it, not change it.
const PROBE: &str = "tandem-end-of-turn-probe";

impl OutputSpec {
    /// The eos ids of the generation config and the tokenizer, and the special token that the template writes after what the
    /// assistant said.
    #[must_use]
    pub fn infer(
        artifacts: &Artifacts,
        templates: &Templates,
        special_tokens: &Object,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let mut eos_token_ids = artifacts.generation.eos_token_ids.clone();
        let named = special_tokens.get("eos_token").and_then(Value::as_str);
        eos_token_ids.extend(tokenizer.zip(named).and_then(|(tokenizer, text)| tokenizer.token_to_id(text)));
        eos_token_ids.extend(tokenizer.and_then(|tokenizer| end_of_turn(templates, special_tokens, tokenizer)));
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        Self { eos_token_ids, stop_strings: Vec::new() }
    }
}

/// The special token that directly follows the assistant's words in a rendered conversation. None where the template does not
/// render the probe, or goes on with something else.
fn end_of_turn(templates: &Templates, special_tokens: &Object, tokenizer: &Tokenizer) -> Option<u32> {
    let messages = [json!({"role": "user", "content": "Hello"}), json!({"role": "assistant", "content": PROBE})];
    let input = template::Input {
        messages: &messages,
        tools: None,
        documents: None,
        args: &Object::new(),
        special_tokens,
        add_generation_prompt: false,
        continue_final_message: false,
        now: LocalTime::EPOCH,
        marks: None,
    };
    let rendered = templates.choose(None, false).ok()?.template.apply(&input, &Limits::default()).ok()?.text;
    let after = rendered.rsplit_once(PROBE)?.1.trim_start();
    let first = *tokenizer.encode(after, false).ok()?.first()?;
    tokenizer.is_special(first).then_some(first)
}
