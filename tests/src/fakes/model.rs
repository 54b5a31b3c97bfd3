//! Models without weights.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tandem_core::cache::{BLOCK, BlockCopy, BlockId, CacheSize, ChunkStates};
use tandem_core::error::{LoadError, StepError};
use tandem_core::grammar::Grammars;
use tandem_core::models::{Logits, Model, ModelShape, SequenceChunk};
use tandem_core::request::{SamplingOptions, ServedModel};
use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::tokenizer::Tokenizer;

use crate::random::scramble;
use crate::served_model::{CONTEXT, VOCABULARY};

/// The log of all steps: for each run, the number of earlier positions and of its tokens.
pub type Steps = Arc<Mutex<Vec<Vec<(usize, usize)>>>>;

/// A model that stores the tokens in its blocks, and computes logits from the tokens that it reads
/// there. A wrong block changes its output. With states, it also has a hash of the tokens in a state, and
/// requires that both agree.
pub struct Echo {
    /// The positions of a block.
    block: usize,
    slots: Vec<u32>,
    /// The bytes of a state. 0: it has none.
    state_bytes: u64,
    states: Vec<EchoState>,
    steps: Steps,
    before_step: Box<dyn FnMut() + Send>,
}

/// The tokens that a state has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EchoState {
    tokens: usize,
    hash: u64,
}

impl EchoState {
    const START: Self = Self { tokens: 0, hash: 7 };

    fn after(self, token: u32) -> Self {
        Self { tokens: self.tokens + 1, hash: scramble(self.hash ^ u64::from(token)) }
    }
}

impl fmt::Debug for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Echo").field("block", &self.block).finish_non_exhaustive()
    }
}

/// Lets a test decide when the engine computes its steps. Dropping it opens the way for all steps.
#[derive(Debug)]
pub struct Gate {
    reached: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    holds: bool,
}

impl Gate {
    /// Returns a gate, and the function that a model calls before each step.
    pub fn new() -> (Self, impl FnMut() + Send + 'static) {
        let ((model_reaches, reached), (go, model_goes)) = (mpsc::channel(), mpsc::channel());
        let wait = move || {
            // An error means that the test has dropped its gate.
            let _ = model_reaches.send(()).map_err(drop).and_then(|()| model_goes.recv().map_err(drop));
        };
        (Self { reached, go, holds: false }, wait)
    }

    /// Lets the engine compute `steps` steps, and returns while it holds the next one.
    ///
    /// # Panics
    /// If the engine begins no step for 20 seconds.
    pub fn run(&mut self, steps: usize) {
        if !self.holds {
            self.wait();
        }
        for _ in 0..steps {
            self.go.send(()).expect("the engine lives");
            self.wait();
        }
        self.holds = true;
    }

    fn wait(&self) {
        self.reached.recv_timeout(Duration::from_secs(20)).expect("the engine begins a step within 20 s");
    }
}

impl Default for Echo {
    fn default() -> Self {
        Self::of_block(BLOCK)
    }
}

impl Echo {
    /// Creates a model whose blocks have this many positions.
    #[must_use]
    pub fn of_block(block: usize) -> Self {
        Self {
            block,
            slots: Vec::new(),
            state_bytes: 0,
            states: Vec::new(),
            steps: Steps::default(),
            before_step: Box::new(|| {}),
        }
    }

    /// Returns the model with states of this many bytes.
    #[must_use]
    pub fn with_states(self, state_bytes: u64) -> Self {
        Self { state_bytes, ..self }
    }

    /// Creates a model whose steps each take this time.
    #[must_use]
    pub fn paced(pause: Duration) -> Self {
        Self::default().before_step(move || thread::sleep(pause))
    }

    /// Returns the model, which calls `run` before each step.
    #[must_use]
    pub fn before_step(self, run: impl FnMut() + Send + 'static) -> Self {
        Self { before_step: Box::new(run), ..self }
    }

    /// Returns the log of its steps.
    #[must_use]
    pub fn steps(&self) -> Steps {
        Arc::clone(&self.steps)
    }

    fn slot(&self, blocks: &[BlockId], position: usize) -> usize {
        blocks[position / self.block].0 as usize * self.block + position % self.block
    }

    fn copy(&mut self, BlockCopy { from, to, positions }: BlockCopy) {
        let [from, to] = [from, to].map(|block| block.0 as usize * self.block);
        self.slots.copy_within(from..from + positions, to);
    }

    /// Returns the state after the run's tokens, and saves the requested ones.
    fn advance(&mut self, run: &SequenceChunk<'_>) -> Option<EchoState> {
        assert_eq!(run.states.is_some(), self.state_bytes > 0, "chunks have states if the model has them");
        let ChunkStates { from, to, saves } = run.states?;
        let mut state = from.map_or(EchoState::START, |from| self.states[from.0 as usize]);
        assert_eq!(state.tokens, run.past, "the state has seen the tokens before the run");
        let mut saves = saves.iter().peekable();
        for token in run.tokens {
            state = state.after(*token);
            while let Some(save) = saves.next_if(|save| save.tokens == state.tokens) {
                self.states[save.state.0 as usize] = state;
            }
        }
        assert_eq!(saves.next(), None, "states are kept after tokens of the run, in order");
        self.states[to.0 as usize] = state;
        Some(state)
    }
}

impl Model for Echo {
    fn shape(&self) -> ModelShape {
        let block_bytes = 4 * self.block as u64;
        let (block, state_bytes) = (self.block, self.state_bytes);
        ModelShape { vocabulary: VOCABULARY, context: CONTEXT, block, block_bytes, state_bytes }
    }

    fn allocate(&mut self, CacheSize { blocks, states }: CacheSize) -> Result<(), StepError> {
        self.slots = vec![u32::MAX; blocks as usize * self.block];
        self.states = vec![EchoState { tokens: usize::MAX, hash: 0 }; states as usize];
        Ok(())
    }

    fn forward(&mut self, runs: &[SequenceChunk<'_>], logits: &mut Logits) -> Result<(), StepError> {
        (self.before_step)();
        self.steps.lock().expect("no panic").push(runs.iter().map(|run| (run.past, run.tokens.len())).collect());
        runs.iter().filter_map(|run| run.copy).for_each(|copy| self.copy(copy));
        let mut rows = Vec::new();
        let written = runs.iter().flat_map(|run| &run.states).flat_map(|states| {
            let saves = states.saves.iter().map(|save| save.state);
            saves.chain([states.to])
        });
        let mut written: Vec<_> = written.collect();
        let count = written.len();
        written.sort_unstable();
        written.dedup();
        assert_eq!(written.len(), count, "runs write different states");
        for run in runs {
            let state = self.advance(run);
            for (i, &token) in run.tokens.iter().enumerate() {
                let position = run.past + i;
                let slot = self.slot(run.blocks, position);
                self.slots[slot] = token;
                if run.logit_rows().contains(&i) {
                    let history = (0..=position).map(|position| self.slots[self.slot(run.blocks, position)]);
                    rows.extend(scores(history));
                }
            }
            let history = (0..run.past + run.tokens.len()).map(|position| self.slots[self.slot(run.blocks, position)]);
            let expected = history.fold(EchoState::START, EchoState::after);
            assert!(state.is_none_or(|state| state == expected), "the state agrees with the blocks");
        }
        logits.resize(rows.len() / VOCABULARY, VOCABULARY).copy_from_slice(&rows);
        Ok(())
    }
}

/// Returns logits from 0 to 4 that depend on every token and its position.
fn scores(history: impl Iterator<Item = u32>) -> Vec<f32> {
    let EchoState { hash, .. } = history.fold(EchoState::START, EchoState::after);
    (0..VOCABULARY as u64).map(|id| (scramble(hash ^ id) % 4096) as f32 / 1024.0).collect()
}

/// The context of [`letters`] in tokens.
const LETTERS_CONTEXT: usize = 4096;

/// A model with the tokenizer of a real one. It derives the logits of letters from the previous token
/// and the position. Only tokens of one letter get logits, so no other token is sampled.
#[derive(Debug)]
struct Letters {
    ids: Vec<u32>,
    vocabulary: usize,
    /// Duration of a step.
    step: Duration,
}

/// Returns a model that generates letters, with the tokenizer of the model at `path` and steps of this
/// duration.
///
/// # Errors
/// The model's files have no tokenizer.
pub fn letters(path: &Path, step: Duration) -> Result<(ServedModel, Box<dyn Model>), LoadError> {
    let artifacts = Artifacts::load(path)?;
    let (tokenizer, eos_token_ids) = (artifacts.tokenizer()?, artifacts.eos_token_ids()?);
    let vocabulary = tokenizer.vocab_size();
    let served = ServedModel {
        id: artifacts.name.clone(),
        architecture: "mock".to_owned(),
        context_length: LETTERS_CONTEXT,
        max_prompt_tokens: LETTERS_CONTEXT,
        max_output_tokens: LETTERS_CONTEXT,
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
    let ids = letter_ids(&served.tokenizer);
    Ok((served, Box::new(Letters { ids, vocabulary, step })))
}

fn letter_ids(tokenizer: &Tokenizer) -> Vec<u32> {
    let is_letter = |id: &u32| matches!(tokenizer.token_bytes(*id), Some([letter]) if letter.is_ascii_alphabetic());
    (0..tokenizer.vocab_size() as u32).filter(is_letter).collect()
}

impl Model for Letters {
    fn shape(&self) -> ModelShape {
        ModelShape {
            vocabulary: self.vocabulary,
            context: LETTERS_CONTEXT,
            block: BLOCK,
            block_bytes: 1,
            state_bytes: 0,
        }
    }

    fn allocate(&mut self, _size: CacheSize) -> Result<(), StepError> {
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
