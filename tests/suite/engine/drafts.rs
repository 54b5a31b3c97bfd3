//! Steps that draw several tokens of a sequence, of which the backend accepts a prefix.

use std::sync::{Arc, Mutex};

use tandem_core::answer::{Event, FinishReason};
use tandem_core::cache::{BLOCK, BlockId, CacheSize};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::StepError;
use tandem_core::models::{Backend, Drawn, KeptRow, ModelShape, SequenceChunk};
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tandem_core::sampling::{Chosen, RowPlan, Sampling, Slot, TokenPlan};
use tandem_tests::served_model::{CONTEXT, VOCABULARY, served_model};
use tandem_tests::{default_model, scramble, wait_until};
use tokio::sync::mpsc::Receiver;

/// More tokens than a block has, so that a step can draft several blocks.
const MAX_DRAFTED: usize = BLOCK + 4;

/// The number of tokens that each step drew and accepted for a sequence.
type Accepted = Arc<Mutex<Vec<[usize; 2]>>>;

/// A backend whose next token depends on all earlier ones, which it reads from the blocks. Some of its drafts
/// are wrong.
#[derive(Debug, Default)]
struct Drafting {
    /// The token of each position of each block.
    slots: Vec<u32>,
    drawn: Vec<Drawn>,
    /// The backend cannot decide the rows of each position that is a multiple of this, if it is not 0.
    undecided: usize,
    /// The tokens of undecided rows that are decided later.
    later: Vec<u32>,
    accepted: Accepted,
}

/// Returns the token after others.
fn next(tokens: &[u32]) -> u32 {
    (tokens.iter().fold(7, |hash, token| scramble(hash ^ u64::from(*token))) % VOCABULARY as u64) as u32
}

/// Returns the tokens of an output.
fn expected(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    (0..count).for_each(|_| tokens.push(next(&tokens)));
    tokens.split_off(prompt.len())
}

impl Drafting {
    fn write(&mut self, blocks: &[BlockId], position: usize, token: u32) {
        self.slots[blocks[position / BLOCK].0 as usize * BLOCK + position % BLOCK] = token;
    }

    fn read(&self, blocks: &[BlockId], count: usize) -> Vec<u32> {
        let slot = |position: usize| blocks[position / BLOCK].0 as usize * BLOCK + position % BLOCK;
        (0..count).map(|position| self.slots[slot(position)]).collect()
    }

    /// Computes a chunk, drafts tokens and draws from each row. Every 23rd draft is wrong.
    fn compute(&mut self, chunk: &SequenceChunk<'_>) -> Vec<Drawn> {
        let (blocks, length) = (chunk.blocks, chunk.past + chunk.tokens.len());
        assert_eq!(blocks.len(), (length + chunk.drafted).div_ceil(BLOCK), "blocks are cut back");
        chunk.tokens.iter().zip(chunk.past..).for_each(|(token, position)| self.write(blocks, position, *token));
        let mut tokens = self.read(blocks, length);
        let mut drawn = Vec::new();
        if chunk.logit_rows().is_empty() {
            return drawn;
        }
        for position in length..=length + chunk.drafted {
            let id = next(&tokens);
            if self.undecided > 0 && position % self.undecided == 0 {
                self.later.extend((position == length).then_some(id));
                drawn.push(Drawn::Undecided);
                break;
            }
            drawn.push(Drawn::Chosen(Chosen { id, logprobs: None }));
            tokens.push(id);
            let draft = if position % 23 == 0 { (id + 1) % VOCABULARY as u32 } else { id };
            if position < length + chunk.drafted {
                self.write(blocks, position, draft);
            }
            if draft != id {
                break;
            }
        }
        let chosen = drawn.iter().filter(|drawn| matches!(drawn, Drawn::Chosen(_))).count().max(1);
        self.accepted.lock().expect("no panic").push([1 + chunk.drafted, chosen]);
        drawn.resize_with(1 + chunk.drafted, || Drawn::Rejected);
        // The keys and values of rejected drafts are wrong.
        let first = length + chosen - 1;
        (first..length + chunk.drafted).for_each(|position| self.write(blocks, position, u32::MAX));
        drawn
    }
}

impl Backend for Drafting {
    fn shape(&self) -> ModelShape {
        ModelShape {
            vocabulary: VOCABULARY,
            context: CONTEXT,
            block: BLOCK,
            block_bytes: 4 * BLOCK as u64,
            state_bytes: 0,
        }
    }

    fn allocate(&mut self, CacheSize { blocks, .. }: CacheSize) -> Result<(), StepError> {
        self.slots = vec![u32::MAX; blocks as usize * BLOCK];
        Ok(())
    }

    fn max_drafted(&self) -> usize {
        MAX_DRAFTED
    }

    fn slot(&mut self, _sampling: &Sampling) -> Option<Slot> {
        None
    }

    fn launch(&mut self, chunks: &[SequenceChunk<'_>], plans: Option<&[RowPlan<'_>]>) -> Result<(), StepError> {
        let rows: usize = chunks.iter().map(|chunk| chunk.logit_rows().len() + chunk.drafted).sum();
        let plans = plans.expect("no grammar");
        assert!(plans.iter().map(|plan| plan.row).eq(0..rows));
        assert!(plans.iter().all(|plan| matches!(plan.token, TokenPlan::Drawn(_))));
        self.drawn = chunks.iter().flat_map(|chunk| self.compute(chunk)).collect();
        Ok(())
    }

    fn draw(&mut self, _plans: &[RowPlan<'_>]) -> Result<(), StepError> {
        unreachable!("all plans are known")
    }

    fn finish(&mut self) -> Result<Vec<Drawn>, StepError> {
        Ok(std::mem::take(&mut self.drawn))
    }

    fn draw_again(&mut self, plans: &[RowPlan<'_>]) -> Result<Vec<Drawn>, StepError> {
        let later = std::mem::take(&mut self.later);
        assert_eq!(plans.len(), later.len(), "one plan for each undecided row");
        Ok(later.into_iter().map(|id| Drawn::Chosen(Chosen { id, logprobs: None })).collect())
    }

    fn draw_kept(&mut self, _row: KeptRow, _plan: &RowPlan<'_>) -> Result<Chosen, StepError> {
        unreachable!("no row is kept")
    }
}

/// Starts an engine with memory for `blocks` blocks.
fn engine(blocks: u64) -> (Engine, Accepted) {
    engine_with(blocks, 0)
}

fn engine_with(blocks: u64, undecided: usize) -> (Engine, Accepted) {
    let accepted = Accepted::default();
    let backend = Drafting { accepted: Arc::clone(&accepted), undecided, ..Drafting::default() };
    let config = Config { kv_memory: Some(blocks * 4 * BLOCK as u64), ..Config::new(default_model()) };
    let load = |_: &Config| Ok((served_model(), Box::new(backend) as Box<dyn Backend>));
    (Engine::start_with(config, load).expect("starts").0, accepted)
}

fn prompt(which: u64, length: usize) -> Vec<u32> {
    (0..length as u64).map(|i| (scramble(which << 32 | i) % VOCABULARY as u64) as u32).collect()
}

fn submit(engine: &Engine, prompt: &[u32], tokens: usize) -> Receiver<Event> {
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(tokens as u32), ..StopOptions::default() },
        returns: Returns { token_ids: true, ..Returns::default() },
        ..GenerateRequest::new(Input::TokenIds(prompt.to_vec()))
    };
    engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room")
}

fn tokens(mut events: Receiver<Event>) -> Vec<u32> {
    let mut tokens = Vec::new();
    loop {
        match events.blocking_recv().expect("a summary comes last") {
            Event::Delta(delta) => tokens.extend(delta.token_ids),
            Event::Finished(end) => {
                assert_eq!(end.reason, FinishReason::Length);
                tokens.extend(end.last.token_ids);
            }
            Event::Summary(_) => return tokens,
            Event::Accepted(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_has_exactly_the_accepted_tokens() {
    let (engine, accepted) = engine(64);
    let prompts = [prompt(1, 10), prompt(2, 70), prompt(3, BLOCK)];
    let running = prompts.each_ref().map(|prompt| submit(&engine, prompt, 150));
    for (prompt, events) in prompts.iter().zip(running) {
        assert_eq!(tokens(events), expected(prompt, 150));
    }
    let steps = accepted.lock().expect("no panic");
    assert!(steps.iter().any(|[drawn, accepted]| accepted < drawn), "some drafts are rejected");
    assert!(steps.iter().any(|[drawn, accepted]| *drawn > 1 && accepted == drawn), "all drafts are accepted");
    wait_until("all tokens are counted", || engine.gauges().tokens == 3 * 150);
    assert!(steps.len() < 100, "{} steps", steps.len());
}

/// The tokens after an undecided one are rejected. If it is the first one, it is decided later.
#[test]
fn an_undecided_row_of_drafted_tokens_costs_no_token() {
    for undecided in [1, 2, 7, 31] {
        let (engine, _) = engine_with(64, undecided);
        let prompts = [prompt(5, 10), prompt(6, 70)];
        let running = prompts.each_ref().map(|prompt| submit(&engine, prompt, 90));
        for (prompt, events) in prompts.iter().zip(running) {
            assert_eq!(tokens(events), expected(prompt, 90), "every {undecided}");
        }
        // The prefix cache contains no rejected token.
        let longer = [&prompts[0][..], &expected(&prompts[0], 80)].concat();
        assert_eq!(tokens(submit(&engine, &longer, 20)), expected(&longer, 20), "every {undecided}");
    }
}

/// A further block for drafts is not free: outputs are computed without drafts.
#[test]
fn drafts_take_no_blocks_from_other_sequences() {
    let blocks = 150_usize.div_ceil(BLOCK) as u64;
    let (engine, _) = engine(blocks);
    let prompt = prompt(4, 20);
    for _ in 0..2 {
        assert_eq!(tokens(submit(&engine, &prompt, 120)), expected(&prompt, 120));
    }
    assert_eq!(engine.gauges().preemptions, 0);
}
