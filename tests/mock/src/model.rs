//! A mock model without weights. It derives the logits of letters from the previous token and the
//! position.

use std::thread;
use std::time::Duration;

use tandem_core::cache::BLOCK;
use tandem_core::engine::Config;
use tandem_core::error::{LoadError, StepError};
use tandem_core::grammar::Grammars;
use tandem_core::models::{Logits, Model, ModelShape, SequenceChunk};
use tandem_core::request::{SamplingOptions, ServedModel};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

const CONTEXT: usize = 4096;

/// The mock model. Only tokens of one letter get logits, so no other token is sampled.
#[derive(Debug)]
struct Letters {
    ids: Vec<u32>,
    vocabulary: usize,
    /// Duration of a step.
    step: Duration,
}

/// Returns the mock model with the configured model's tokenizer.
pub(crate) fn load(config: &Config, step: Duration) -> Result<(ServedModel, Box<dyn Model>), LoadError> {
    let artifacts = Artifacts::load(&config.model)?;
    let (tokenizer, eos_token_ids) = (artifacts.tokenizer()?, artifacts.eos_token_ids()?);
    let vocabulary = tokenizer.vocab_size();
    let served = ServedModel {
        id: artifacts.name.clone(),
        architecture: "mock".to_owned(),
        context_length: CONTEXT,
        max_prompt_tokens: CONTEXT,
        max_output_tokens: CONTEXT,
        vocabulary_size: vocabulary,
        dtype: "f32".to_owned(),
        quantization: "none".to_owned(),
        device: "cpu".to_owned(),
        vision: None,
        grammars: Grammars::new(tokenizer.clone(), vocabulary, eos_token_ids.clone(), None),
        defaults: SamplingOptions::default(),
        eos_token_ids,
        tokenizer,
    };
    let ids = letters(&served.tokenizer);
    Ok((served, Box::new(Letters { ids, vocabulary, step })))
}

fn letters(tokenizer: &Tokenizer) -> Vec<u32> {
    let is_letter = |id: &u32| matches!(tokenizer.token_bytes(*id), Some([letter]) if letter.is_ascii_alphabetic());
    (0..tokenizer.vocab_size() as u32).filter(is_letter).collect()
}

impl Model for Letters {
    fn shape(&self) -> ModelShape {
        ModelShape { vocabulary: self.vocabulary, context: CONTEXT, block: BLOCK, block_bytes: 1 }
    }

    fn allocate(&mut self, _blocks: u32) -> Result<(), StepError> {
        Ok(())
    }

    fn forward(&mut self, chunks: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), StepError> {
        if !self.step.is_zero() {
            thread::sleep(self.step);
        }
        let rows = chunks.iter().map(|chunk| chunk.logit_rows().len()).sum();
        logits.resize(rows, self.vocabulary).fill(f32::NEG_INFINITY);
        let wanted = chunks.iter().flat_map(|chunk| chunk.logit_rows().map(|i| (chunk.tokens[i], chunk.past + i)));
        for (row, (token, position)) in logits.rows().zip(wanted) {
            for &id in &self.ids {
                row[id as usize] = ((7 * token + 5 * id) as usize + 3 * position) as f32 % 11.0 / 4.0;
            }
        }
        Ok(())
    }
}
