//! The output pipeline: what it streams is the whole text, whatever the tokens, and nothing shows that should not.

use gen_svc::output::detokenize::Utf8Stream;
use gen_svc::output::extract::Rules;
use gen_svc::output::reasoning::Markers;
use gen_svc::output::stop::StopMatcher;
use gen_svc::output::{Matched, OutputPipeline, Part, Spec, add_part};
use proptest::collection::vec;
use proptest::prelude::*;
use tandem_common::tokenizer::Tokenizer;

use crate::artifacts::default_artifacts;
use crate::tokenizer::{byte_level, goldens, ids};

/// Tokens of several bytes that cut characters anywhere; their ids start at 256.
const LONGER: &[&[u8]] =
    &[b"ab", b"aab", b"\xC3\xA9", b"a\xC3", b"\xA9b", b"\xF0\x9F", b"\x98\x80a", b"\xF0\x9F\x98", b"\xED\xA0", b"ba<"];
const FIRST_ADDED: u32 = 256 + LONGER.len() as u32;
/// A special token, one that ends the output, one that is special and passes, and one that is not special but dropped.
const SPECIAL: u32 = FIRST_ADDED;
const END: u32 = FIRST_ADDED + 1;
const PASSED: u32 = FIRST_ADDED + 2;
const DROPPED: u32 = FIRST_ADDED + 3;
const UNKNOWN: u32 = FIRST_ADDED + 4;

fn tokenizer() -> Tokenizer {
    byte_level(LONGER, &[("<ab>", true), ("<end>", true), ("<｜>", true), ("<gone>", false)])
}

fn spec(stop_strings: &[&str]) -> Spec {
    Spec {
        end_token_ids: vec![END],
        stop_strings: stop_strings.iter().map(|&string| string.to_owned()).collect(),
        dropped: vec![DROPPED],
        passed: vec![PASSED],
        ..Spec::default()
    }
}

/// Runs a whole output. The last element is what `finish` flushed.
fn stream(tokenizer: &Tokenizer, spec: &Spec, ids: &[u32]) -> (Vec<String>, Option<Matched>) {
    let (steps, stopped) = steps(tokenizer, spec, &[], ids);
    (steps.iter().map(|parts| text(parts)).collect(), stopped)
}

/// The parts that each token brought, and `finish` last.
fn steps(tokenizer: &Tokenizer, spec: &Spec, prompt: &[u32], ids: &[u32]) -> (Vec<Vec<Part>>, Option<Matched>) {
    let mut pipeline = OutputPipeline::new(tokenizer.clone(), spec, prompt);
    let (mut parts, mut stopped) = (Vec::new(), None);
    for &id in ids {
        let step = pipeline.push(id);
        parts.push(step.parts);
        stopped = stopped.or(step.stopped);
    }
    parts.push(pipeline.finish());
    (parts, stopped)
}

fn text(parts: &[Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect()
}

fn whole(tokenizer: &Tokenizer, spec: &Spec, ids: &[u32]) -> (String, Option<Matched>) {
    let (deltas, stopped) = stream(tokenizer, spec, ids);
    (deltas.concat(), stopped)
}

/// The bytes that show, up to the first end id, and that id.
fn shown(tokenizer: &Tokenizer, spec: &Spec, ids: &[u32]) -> (Vec<u8>, Option<u32>) {
    let mut bytes = Vec::new();
    for &id in ids {
        let passes = spec.passed.contains(&id);
        let ends = spec.end_token_ids.contains(&id);
        if passes || !(ends || spec.dropped.contains(&id) || tokenizer.is_special(id)) {
            bytes.extend(tokenizer.token_bytes(id).unwrap_or_default());
        }
        if ends {
            return (bytes, Some(id));
        }
    }
    (bytes, None)
}

/// The stop string that ends first in a text, the longest of those that end there: where it starts, and itself.
fn first_stop<'a>(text: &str, stops: &'a [String]) -> Option<(usize, &'a str)> {
    let ends = (0..=text.len()).filter(|&end| text.is_char_boundary(end));
    let mut found = ends.filter_map(|end| {
        let here = stops.iter().filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()));
        here.max_by_key(|stop| stop.len()).map(|stop| (end - stop.len(), stop.as_str()))
    });
    found.next()
}

/// What an output must add up to, worked out on all of it at once.
fn reference(tokenizer: &Tokenizer, spec: &Spec, ids: &[u32]) -> (String, Option<Matched>) {
    let (bytes, end) = shown(tokenizer, spec, ids);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match first_stop(&text, &spec.stop_strings) {
        Some((start, stop)) => (text[..start].to_owned(), Some(Matched::StopString(stop.to_owned()))),
        None => (text, end.map(Matched::StopToken)),
    }
}

/// How many of the last bytes could still become a stop string.
fn held(bytes: &[u8], stops: &[String]) -> usize {
    let may_grow = |start: &usize| stops.iter().any(|stop| stop.as_bytes().starts_with(&bytes[*start..]));
    (0..bytes.len()).find(may_grow).map_or(0, |start| bytes.len() - start)
}

/// Whole characters at the start of some bytes.
fn complete(bytes: &[u8]) -> String {
    Utf8Stream::default().push(bytes.to_vec()).0
}

fn any_id() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => prop::sample::select(b"ab<>e".map(u32::from).to_vec()),
        6 => 256..FIRST_ADDED,
        2 => prop::sample::select(vec![0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 0xE2, 0x82]),
        2 => prop::sample::select(vec![SPECIAL, PASSED, DROPPED, UNKNOWN]),
    ]
}

fn any_stops() -> impl Strategy<Value = Vec<String>> {
    vec("[ab<>é😀]{1,5}|<ab>|<end>|<gone>|aab|😀a", 0..5)
}

fn any_ids() -> impl Strategy<Value = Vec<u32>> {
    (vec(any_id(), 0..40), prop::option::of(Just(END))).prop_map(|(ids, end)| ids.into_iter().chain(end).collect())
}

fn spec_of(stop_strings: Vec<String>) -> Spec {
    Spec { stop_strings, ..spec(&[]) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_streamed_is_the_whole_text_cut_at_the_first_stop(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, spec) = (shared_tokenizer(), spec_of(stops));
        prop_assert_eq!(whole(tokenizer, &spec, &ids), reference(tokenizer, &spec, &ids));
    }

    #[test]
    fn only_what_may_still_become_a_stop_is_held_back(ids in vec(any_id(), 1..30), stops in any_stops()) {
        let (tokenizer, spec) = (shared_tokenizer(), spec_of(stops));
        let (deltas, _) = stream(tokenizer, &spec, &ids);
        for at in 1..=ids.len() {
            let bytes = shown(tokenizer, &spec, &ids[..at]).0;
            if first_stop(&String::from_utf8_lossy(&bytes), &spec.stop_strings).is_some() {
                break;
            }
            let released = complete(&bytes[..bytes.len() - held(&bytes, &spec.stop_strings)]);
            prop_assert_eq!(deltas[..at].concat(), released);
        }
    }

    #[test]
    fn bytes_cut_anywhere_are_read_as_lossy_utf8_of_the_whole(
        pieces in vec(vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)], 0..5), 0..20)
    ) {
        let (mut text, mut read, mut utf8) = (String::new(), Vec::new(), Utf8Stream::default());
        for piece in &pieces {
            let (characters, bytes) = utf8.push(piece.clone());
            prop_assert_eq!(&characters, &String::from_utf8_lossy(&bytes));
            text += &characters;
            read.extend(bytes);
        }
        let rest = utf8.finish();
        text += if rest.is_empty() { "" } else { "\u{FFFD}" };
        read.extend(rest);
        prop_assert_eq!(&read, &pieces.concat());
        prop_assert_eq!(text, String::from_utf8_lossy(&read));
    }

    #[test]
    fn a_text_cut_anywhere_stops_at_the_same_place(text in "[ab]{0,60}", cut in 1..7usize, stops in vec("[ab]{1,6}", 1..6)) {
        let mut matcher = StopMatcher::new(&stops, 0);
        let (mut released, mut found) = (Vec::new(), None);
        for piece in text.as_bytes().chunks(cut) {
            let (more, stop) = matcher.push(piece);
            released.extend(more);
            found = stop;
            if found.is_some() {
                break;
            }
        }
        released.extend(matcher.finish());
        let expected = first_stop(&text, &stops);
        prop_assert_eq!(found.as_deref(), expected.map(|(_, stop)| stop));
        prop_assert_eq!(&released, &text.as_bytes()[..expected.map_or(text.len(), |(start, _)| start)]);
    }

    #[test]
    fn parts_are_the_whole_cut_at_the_markers(
        prompt in vec(any_marked(), 0..6), ids in vec(any_marked(), 0..40), stops in any_stops()
    ) {
        let tokenizer = shared_tokenizer();
        let spec = Spec { reasoning: markers(), ..spec_of(stops) };
        let (steps, stopped) = steps(tokenizer, &spec, &prompt, &ids);
        prop_assert!(steps.iter().all(|parts| parts.len() <= 2));
        let mut parts = Vec::new();
        steps.into_iter().flatten().for_each(|part| add_part(&mut parts, part));
        prop_assert_eq!((parts, stopped), reference_parts(tokenizer, &spec, &prompt, &ids));
    }

    #[test]
    fn the_bytes_of_an_output_are_those_that_its_text_was_made_of(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, spec) = (shared_tokenizer(), spec_of(stops));
        let (steps, stopped) = steps(tokenizer, &spec, &[], &ids);
        let bytes: Vec<u8> = steps.concat().into_iter().flat_map(|part| part.bytes).collect();
        prop_assert_eq!(String::from_utf8_lossy(&bytes), text(&steps.concat()));
        let all = shown(tokenizer, &spec, &ids).0;
        prop_assert!(all.starts_with(&bytes));
        prop_assert!(matches!(stopped, Some(Matched::StopString(_))) || all == bytes);
    }

    #[test]
    fn a_stop_that_is_included_is_the_last_of_the_text(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, spec) = (shared_tokenizer(), spec_of(stops));
        let (without, stopped) = whole(tokenizer, &spec, &ids);
        let (with, same) = whole(tokenizer, &Spec { shown_stop_strings: spec.stop_strings.len(), ..spec }, &ids);
        prop_assert_eq!(&stopped, &same);
        let last = match stopped { Some(Matched::StopString(stop)) => stop, _ => String::new() };
        prop_assert_eq!(with, without + &last);
    }
}

/// Two that start reasoning, of which one shows, and one that shows and ends it.
fn markers() -> Markers {
    Markers { start: vec![PASSED, SPECIAL], end: vec![256] }
}

fn any_marked() -> impl Strategy<Value = u32> {
    prop_oneof![6 => any_id(), 1 => Just(PASSED), 1 => Just(SPECIAL), 2 => Just(256), 1 => Just(END)]
}

/// The stretches between markers, and whether they are reasoning.
fn stretches(Markers { start, end }: &Markers, mut inside: bool, ids: &[u32]) -> Vec<(bool, Vec<u32>)> {
    let mut stretches = vec![(inside, Vec::new())];
    for id in ids {
        if !inside && start.contains(id) {
            inside = true;
            stretches.push((inside, Vec::new()));
        }
        stretches.last_mut().expect("one").1.push(*id);
        if inside && end.contains(id) {
            inside = false;
            stretches.push((inside, Vec::new()));
        }
    }
    stretches
}

/// Each stretch read as an output of its own.
fn reference_parts(tokenizer: &Tokenizer, spec: &Spec, prompt: &[u32], ids: &[u32]) -> (Vec<Part>, Option<Matched>) {
    let control = prompt.iter().rposition(|&id| tokenizer.is_special(id) && id != PASSED && id != SPECIAL);
    let turn = &prompt[control.map_or(0, |at| at + 1)..];
    let inside = stretches(&spec.reasoning, false, turn).pop().is_some_and(|(inside, _)| inside);
    let mut parts = Vec::new();
    for (reasoning, ids) in stretches(&spec.reasoning, inside, ids) {
        let (text, stopped) = reference(tokenizer, spec, &ids);
        let mut bytes = shown(tokenizer, spec, &ids).0;
        if let Some(Matched::StopString(stop)) = &stopped {
            let is_before =
                |&at: &usize| bytes[at..].starts_with(stop.as_bytes()) && String::from_utf8_lossy(&bytes[..at]) == text;
            bytes.truncate((0..bytes.len()).find(is_before).expect("it is there"));
        }
        add_part(&mut parts, Part { reasoning, text, bytes });
        if stopped.is_some() {
            return (parts, stopped);
        }
    }
    (parts, None)
}

fn shared_tokenizer() -> &'static Tokenizer {
    static SHARED: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    SHARED.get_or_init(tokenizer)
}

/// Ids of single bytes.
fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[track_caller]
fn check(stops: &[&str], ids: &[u32], text: &str, stopped: Option<Matched>) {
    assert_eq!(whole(shared_tokenizer(), &spec(stops), ids), (text.to_owned(), stopped));
}

fn stop(string: &str) -> Option<Matched> {
    Some(Matched::StopString(string.to_owned()))
}

#[test]
fn an_end_id_ends_without_text_and_what_was_held_is_flushed() {
    check(&["abx"], &[bytes("ab"), vec![END, 97]].concat(), "ab", Some(Matched::StopToken(END)));
    check(&[], &[0xF0, 0x9F, END], "\u{FFFD}", Some(Matched::StopToken(END)));
}

#[test]
fn an_end_id_that_passes_shows_and_ends() {
    let mut spec = spec(&[]);
    spec.passed.push(END);
    let ended = Some(Matched::StopToken(END));
    assert_eq!(whole(shared_tokenizer(), &spec, &[97, END, 98]), ("a<end>".to_owned(), ended));
}

#[test]
fn special_tokens_are_dropped_by_id_and_their_spelling_in_text_is_text() {
    check(&[], &[97, SPECIAL, DROPPED, PASSED, 98], "a<｜>b", None);
    check(&[], &bytes("<ab><end>"), "<ab><end>", None);
}

#[test]
fn a_stop_string_is_not_found_in_a_dropped_token() {
    check(&["<ab>", "<gone>", "b>"], &[97, SPECIAL, DROPPED, 98], "ab", None);
    check(&["<ab>"], &bytes("x<ab>y"), "x", stop("<ab>"));
}

#[test]
fn a_stop_string_is_found_across_tokens_and_across_dropped_ones() {
    check(&["aba"], &[256, SPECIAL, 256], "", stop("aba"));
    check(&["éb"], &[97, 0xC3, 0xA9, 98], "a", stop("éb"));
}

#[test]
fn the_stop_that_ends_first_wins_and_of_two_that_end_together_the_longer() {
    check(&["abcd", "bc"], &bytes("xabcd"), "xa", stop("bc"));
    check(&["bc", "abc"], &bytes("xabcd"), "x", stop("abc"));
    check(&["b", "b"], &bytes("ab"), "a", stop("b"));
}

#[test]
fn nothing_comes_after_the_end() {
    let mut pipeline = OutputPipeline::new(tokenizer(), &spec(&["b"]), &[]);
    assert_eq!(text(&pipeline.push(97).parts), "a");
    assert_eq!(pipeline.push(98).stopped, stop("b"));
    assert_eq!(pipeline.push(97), Default::default());
    assert_eq!((pipeline.finish(), pipeline.finish()), (Vec::new(), Vec::new()));
}

#[test]
fn empty_stop_strings_match_nothing() {
    check(&["", "b"], &bytes("aab"), "aa", stop("b"));
}

#[test]
fn many_long_stop_strings_cost_constant_time_a_byte() {
    let stops: Vec<String> = (0..64).map(|at| format!("{}b{at}", "a".repeat(1000 - at))).collect();
    let mut matcher = StopMatcher::new(&stops, 0);
    // A search that looked at each string for each byte would take minutes here.
    let released: usize = (0..100_000).map(|_| matcher.push(b"aaaaaaaaaa").0.len()).sum();
    assert_eq!(released + matcher.finish().len(), 1_000_000);
}

#[test]
fn the_default_models_outputs_stream_as_their_whole_text() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    let spec = Spec { end_token_ids: vec![2], ..Spec::default() };
    for case in goldens()["cases"].as_array().expect("a list") {
        let (output, expected) = (ids(&case["greedy_ids"]), case["greedy_text"].as_str().expect("a string"));
        let (text, stopped) = whole(&tokenizer, &spec, &output);
        assert_eq!(text, expected, "{}", case["id"]);
        assert_eq!(stopped, output.ends_with(&[2]).then_some(Matched::StopToken(2)), "{}", case["id"]);
    }
}

#[test]
fn any_part_of_the_default_models_outputs_stops_them_and_never_leaks() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    for case in goldens()["cases"].as_array().expect("a list") {
        let (output, expected) = (ids(&case["greedy_ids"]), case["greedy_text"].as_str().expect("a string"));
        let chars: Vec<char> = expected.chars().collect();
        for window in chars.windows(5).step_by(3) {
            let stop_string: String = window.iter().collect();
            let before = expected.find(&stop_string).expect("it is part of it");
            let spec = Spec { end_token_ids: vec![2], stop_strings: vec![stop_string.clone()], ..Spec::default() };
            assert_eq!(whole(&tokenizer, &spec, &output), (expected[..before].to_owned(), stop(&stop_string)));
        }
    }
}

#[test]
fn an_output_starts_as_its_prompt_left_it() {
    let spec = Spec { reasoning: Markers { start: vec![97], end: vec![98] }, ..spec(&[]) };
    let reasons = |prompt: &[u32]| steps(shared_tokenizer(), &spec, prompt, &[99]).0.concat()[0].reasoning;
    assert!(!reasons(&[]));
    assert!(reasons(&[99, 97]) && reasons(&[97, 99, 99]), "the last marker starts it");
    assert!(!reasons(&[97, 98]) && !reasons(&[97, SPECIAL, 99]), "it has ended, or was in another turn");
    assert!(reasons(&[98, SPECIAL, 97, 99]));
}

#[test]
fn extraction_leaves_what_an_output_says() {
    let parts = |parts: &[(bool, &str)]| -> Vec<Part> {
        let part = |&(reasoning, text): &(bool, &str)| Part { reasoning, text: text.to_owned(), bytes: Vec::new() };
        parts.iter().map(part).collect()
    };
    let all = parts(&[(true, "<think>Hm.\nuser\n</think>"), (false, "\n\nassistant\nFour.\nuser\nAnd the user?\n")]);
    let rules = |strip_reasoning, cut_head: &str, strip_lines: &[&str]| Rules {
        strip_reasoning,
        cut_head: cut_head.to_owned(),
        strip_lines: strip_lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(rules(false, "", &[]).apply(&all), text(&all).trim());
    assert_eq!(rules(true, "", &[]).apply(&all), "assistant\nFour.\nuser\nAnd the user?");
    assert_eq!(rules(true, "assistant\n", &[]).apply(&all), "Four.\nuser\nAnd the user?");
    assert_eq!(rules(true, "assistant\n", &["user"]).apply(&all), "Four.\nAnd the user?");
    assert_eq!(rules(false, "assistant\n", &[]).apply(&all), text(&all).trim(), "only at the start");
    assert_eq!(rules(true, "nowhere", &["user", "assistant"]).apply(&all), "Four.\nAnd the user?");
    assert_eq!(rules(true, "", &[]).apply(&all[..1]), "");
}
