//! The ids that a model expects before and after a text.

use serde_json::Value;

use super::error::TokenizerError;
use crate::gguf::Gguf;

#[derive(Debug, Default)]
pub(super) struct Affixes {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
}

impl Affixes {
    /// Reads the post-processor of a `tokenizer.json`.
    pub(super) fn of(encoder: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let spec = serde_json::to_value(encoder.get_post_processor());
        let spec = spec.map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
        Self::read(&spec).ok_or_else(|| TokenizerError::PostProcessor { found: spec.to_string() })
    }

    /// Reads a GGUF header. `size` is the count of tokens in the vocabulary.
    pub(super) fn of_gguf(gguf: &Gguf, bos_by_default: bool, size: usize) -> Result<Self, TokenizerError> {
        let before = affix(gguf, "bos", bos_by_default, size)?;
        let after = affix(gguf, "eos", false, size)?;
        Ok(Self { before, after })
    }

    fn read(spec: &Value) -> Option<Self> {
        match spec["type"].as_str() {
            None | Some("ByteLevel") => Some(Self::default()),
            Some("BertProcessing" | "RobertaProcessing") => {
                let id = |name: &str| Some(vec![number(&spec[name][1])?]);
                Some(Self { before: id("cls")?, after: id("sep")? })
            }
            Some("TemplateProcessing") => Self::of_template(spec),
            Some("Sequence") => spec["processors"].as_array()?.iter().try_fold(Self::default(), Self::around),
            Some(_) => None,
        }
    }

    /// Applies the next processor of a sequence to the result of the previous ones.
    fn around(self, next: &Value) -> Option<Self> {
        let outer = Self::read(next)?;
        Some(Self { before: [outer.before, self.before].concat(), after: [self.after, outer.after].concat() })
    }

    fn of_template(spec: &Value) -> Option<Self> {
        let parts = spec["single"].as_array()?;
        let is_text = |part: &Value| part.get("Sequence").is_some();
        let text = parts.iter().position(is_text)?;
        let ids =
            |parts: &[Value]| Some(parts.iter().map(|part| special(spec, part)).collect::<Option<Vec<_>>>()?.concat());
        Some(Self { before: ids(&parts[..text])?, after: ids(&parts[text + 1..])? })
    }
}

fn affix(gguf: &Gguf, name: &str, default: bool, size: usize) -> Result<Vec<u32>, TokenizerError> {
    let wanted = gguf.find(&format!("tokenizer.ggml.add_{name}_token"))?.unwrap_or(default);
    if !wanted {
        return Ok(Vec::new());
    }
    let id: u32 = gguf.get(&format!("tokenizer.ggml.{name}_token_id"))?;
    if (id as usize) < size { Ok(vec![id]) } else { Err(TokenizerError::UnknownId { id, size }) }
}

fn special(spec: &Value, part: &Value) -> Option<Vec<u32>> {
    let name = part["SpecialToken"]["id"].as_str()?;
    spec["special_tokens"][name]["ids"].as_array()?.iter().map(number).collect()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64()?.try_into().ok()
}
