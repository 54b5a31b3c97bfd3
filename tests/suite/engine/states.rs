//! Models with recurrent states: prompts share a computed prefix up to a kept state, and states are
//! resources as blocks are. The model requires in each step that its states agree with its blocks.

use tandem_core::cache::StateUsage;
use tandem_core::engine::Config;
use tandem_core::request::GenerateRequest;
use tandem_tests::{scramble, wait_until};

use super::batching::{
    FEW_STATES, MANY_STATES, alone, assert_is_free, engine_of, finish, gated_of, prompt, request, submit,
};

#[test]
fn prefix_of_a_turn_is_computed_from_the_last_kept_state() {
    let (engine, steps) = engine_of(MANY_STATES, 64, |_| {});
    let ask = |request| finish(submit(&engine, request));
    let first = ask(request(&prompt(1, 200), 40));
    let again = ask(request(&prompt(1, 200), 40));
    assert_eq!((first.cached, again.cached), (0, 192), "the state after the last whole part of a prompt is kept");
    assert_eq!(again.outputs, first.outputs);
    let turn = |which| [prompt(1, 200), first.outputs[0].clone(), prompt(which, 30)].concat();
    steps.lock().expect("no panic").clear();
    let next = ask(request(&turn(2), 5));
    assert_eq!(next.cached, 224, "with a state per block, the state after every part is kept");
    assert_eq!(next.outputs, alone(request(&turn(2), 5)));
}

/// 64 blocks and 8 states: the state after every eighth block is kept, 128 tokens.
#[test]
fn states_are_kept_regularly_and_where_prompts_part() {
    let (engine, _) = engine_of(FEW_STATES, 64, |_| {});
    let ask = |request: GenerateRequest| {
        let answer = finish(submit(&engine, request.clone()));
        assert_eq!(answer.outputs, alone(request));
        answer.cached
    };
    assert_eq!(ask(request(&prompt(1, 400), 2)), 0);
    assert_eq!(ask(request(&prompt(1, 300), 2)), 256, "a regular state");
    let shared = |which| request(&[prompt(1, 200), prompt(which, 50)].concat(), 2);
    assert_eq!(
        [2, 3, 4].map(|which| ask(shared(which))),
        [128, 192, 192],
        "the second prompt keeps the branch's state"
    );
    assert_is_free(&engine);
}

#[test]
fn fewer_states_than_places_limit_the_running_outputs() {
    let (engine, steps, mut gate) = gated_of(FEW_STATES, 64, |config| config.event_buffer = 1_000);
    let requests: Vec<_> = (0..12).map(|which| request(&prompt(which, 10), 20)).collect();
    let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
    gate.run(10);
    let gauges = engine.gauges();
    assert_eq!((gauges.running, gauges.states), (8, StateUsage { total: 8, held: 8, kept: 0 }));
    drop(gate);
    for (events, request) in running.into_iter().zip(requests) {
        assert_eq!(finish(events).outputs, alone(request));
    }
    assert!(steps.lock().expect("no panic").iter().all(|step| step.len() <= 8));
    assert_is_free(&engine);
}

#[test]
fn disconnected_caller_frees_its_state() {
    let (engine, _, mut gate) = gated_of(FEW_STATES, 64, |config| config.event_buffer = 1_000);
    let events = submit(&engine, request(&prompt(1, 300), 500));
    gate.run(5);
    assert_eq!(engine.gauges().states.held, 1);
    drop(events);
    drop(gate);
    assert_is_free(&engine);
}

#[test]
fn higher_priority_takes_the_state_of_a_lower_one() {
    let (engine, _, mut gate) = gated_of(FEW_STATES, 64, |config| config.event_buffer = 1_000);
    let low: Vec<_> = (0..8).map(|which| request(&prompt(which, 20), 50)).collect();
    let running: Vec<_> = low.iter().cloned().map(|request| submit(&engine, request)).collect();
    gate.run(10);
    let high = GenerateRequest { priority: 5, ..request(&prompt(99, 20), 5) };
    let events = submit(&engine, high.clone());
    gate.run(8);
    assert_eq!(engine.gauges().preemptions, 1);
    drop(gate);
    assert_eq!(finish(events).outputs, alone(high));
    for (events, request) in running.into_iter().zip(low) {
        assert_eq!(finish(events).outputs, alone(request));
    }
    assert_is_free(&engine);
}

#[test]
fn flush_of_the_prefix_cache_drops_kept_states() {
    let (engine, _) = engine_of(MANY_STATES, 64, |_| {});
    finish(submit(&engine, request(&prompt(1, 100), 2)));
    assert_is_free(&engine);
    assert_eq!(engine.gauges().states.kept, 6, "one after each whole block");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(engine.flush_prefix_cache()).expect("the engine runs");
    wait_until("no state is kept", || engine.gauges().states.kept == 0);
    assert_eq!(finish(submit(&engine, request(&prompt(1, 100), 2))).cached, 0);
}

#[test]
fn states_that_were_used_first_are_dropped_first() {
    let (engine, _) = engine_of(FEW_STATES, 256, |_| {});
    // 32 states. A prompt of 20 tokens keeps one.
    let cached = |which| finish(submit(&engine, request(&prompt(which, 20), 1))).cached;
    assert!((0..31).map(cached).all(|cached| cached == 0));
    assert_eq!(cached(0), 16, "it is used again");
    assert!((40..50).map(cached).all(|cached| cached == 0));
    assert_eq!([0, 1, 30].map(cached), [16, 0, 16]);
}

#[test]
fn evicted_block_frees_its_state() {
    let (engine, _) = engine_of(MANY_STATES, 24, |_| {});
    let ask = |which| finish(submit(&engine, request(&prompt(which, 320), 1))).cached;
    assert_eq!([1, 2, 1].map(ask), [0, 0, 64], "the second prompt leaves four blocks of the first");
    assert_is_free(&engine);
    let StateUsage { total, held, kept } = engine.gauges().states;
    assert_eq!((total, held), (24, 0));
    assert!(kept <= 24, "{kept} states of 24 blocks");
}

/// Two slots, the fewest: a sequence and the state from which it starts.
#[test]
fn two_slots_serve_all_requests_one_after_another() {
    let blocks = 2 * FEW_STATES_BLOCKS;
    let (engine, _) = engine_of(FEW_STATES, blocks, |_| {});
    assert_eq!(engine.gauges().states.total, 2);
    let requests: Vec<_> = (0..20).map(|i| request(&prompt(i % 3, 10 + 7 * (i as usize % 5)), 12)).collect();
    let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
    for (events, request) in running.into_iter().zip(requests) {
        assert_eq!(finish(events).outputs, alone(request));
    }
    assert_is_free(&engine);
}

/// The blocks of [`FEW_STATES`] beside one state.
const FEW_STATES_BLOCKS: u64 = 8;

#[test]
fn shared_prefixes_under_little_memory_change_no_output() {
    let random = |which: u64, below: u64| scramble(which) % below;
    let ask = |i: u64| {
        // Prompts of one family share up to 300 tokens.
        let shared = prompt(random(i, 4), 300)[..random(i ^ 1 << 20, 300) as usize].to_vec();
        let ids = [shared, prompt(100 + i, 1 + random(i ^ 1 << 21, 40) as usize)].concat();
        request(&ids, 1 + random(i ^ 1 << 22, 60) as u32)
    };
    let requests: Vec<_> = (0..60).map(ask).collect();
    let expected: Vec<_> = requests.iter().cloned().map(alone).collect();
    for (memory, blocks, chunk) in [(FEW_STATES, 40, 33), (FEW_STATES, 64, 512), (MANY_STATES, 48, 7)] {
        let change = |config: &mut Config| config.prefill_chunk = chunk;
        let (engine, _) = engine_of(memory, blocks, change);
        for (requests, expected) in requests.chunks(12).zip(expected.chunks(12)) {
            let running: Vec<_> = requests.iter().cloned().map(|request| submit(&engine, request)).collect();
            for (events, expected) in running.into_iter().zip(expected) {
                assert_eq!(&finish(events).outputs, expected, "{memory:?}, {blocks} blocks, chunks of {chunk}");
            }
        }
        assert_is_free(&engine);
    }
}

/// Both outputs run at once: the second one continues in the slot from which it starts.
#[test]
fn last_slot_is_taken_over_with_its_state() {
    let (engine, _, mut gate) = gated_of(FEW_STATES, 2 * FEW_STATES_BLOCKS, |config| config.event_buffer = 1_000);
    let mut both = request(&prompt(0, 40), 30);
    both.sampling.n = Some(2);
    let events = submit(&engine, both.clone());
    gate.run(10);
    assert_eq!((engine.gauges().running, engine.gauges().states), (2, StateUsage { total: 2, held: 2, kept: 0 }));
    drop(gate);
    assert_eq!(finish(events).outputs, alone(both));
    assert_is_free(&engine);
}
