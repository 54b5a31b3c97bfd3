//! The output pipeline: what it streams is the whole text, whatever the tokens, and nothing shows that should not.

use gen_svc::output::detokenize::Utf8Stream;
use gen_svc::output::stop::StopMatcher;
use gen_svc::output::{Matched, OutputPipeline, Spec};
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
    }
}

/// Runs a whole output. The last element is what `finish` flushed.
fn stream(tokenizer: &Tokenizer, spec: &Spec, ids: &[u32]) -> (Vec<String>, Option<Matched>) {
    let mut pipeline = OutputPipeline::new(tokenizer.clone(), spec);
    let (mut deltas, mut stopped) = (Vec::new(), None);
    for &id in ids {
        let step = pipeline.push(id);
        deltas.push(step.text);
        stopped = stopped.or(step.stopped);
    }
    deltas.push(pipeline.finish());
    (deltas, stopped)
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

/// How much of a text's end could still become a stop string.
fn held(text: &str, stops: &[String]) -> usize {
    let starts = (0..text.len()).filter(|&start| text.is_char_boundary(start));
    let may_grow = |start: &usize| stops.iter().any(|stop| stop.starts_with(&text[*start..]));
    starts.into_iter().find(may_grow).map_or(0, |start| text.len() - start)
}

/// Whole characters at the start of some bytes.
fn complete(bytes: &[u8]) -> String {
    let (mut text, mut utf8) = (String::new(), Utf8Stream::default());
    utf8.push(bytes, &mut text);
    text
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
            let text = complete(&shown(tokenizer, &spec, &ids[..at]).0);
            if first_stop(&text, &spec.stop_strings).is_some() {
                break;
            }
            let released = &text[..text.len() - held(&text, &spec.stop_strings)];
            prop_assert_eq!(deltas[..at].concat(), released);
        }
    }

    #[test]
    fn bytes_cut_anywhere_are_read_as_lossy_utf8_of_the_whole(
        pieces in vec(vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)], 0..5), 0..20)
    ) {
        let (mut text, mut utf8) = (String::new(), Utf8Stream::default());
        pieces.iter().for_each(|piece| utf8.push(piece, &mut text));
        utf8.finish(&mut text);
        let bytes = pieces.concat();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_text_cut_anywhere_stops_at_the_same_place(text in "[ab]{0,60}", cut in 1..7usize, stops in vec("[ab]{1,6}", 1..6)) {
        let mut matcher = StopMatcher::new(&stops);
        let (mut released, mut found) = (String::new(), None);
        for piece in text.as_bytes().chunks(cut) {
            let (more, stop) = matcher.push(std::str::from_utf8(piece).expect("ASCII"));
            released += &more;
            found = stop;
            if found.is_some() {
                break;
            }
        }
        released += &matcher.finish();
        let expected = first_stop(&text, &stops);
        prop_assert_eq!(found.as_deref(), expected.map(|(_, stop)| stop));
        prop_assert_eq!(&released, &text[..expected.map_or(text.len(), |(start, _)| start)]);
    }
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
    let mut pipeline = OutputPipeline::new(tokenizer(), &spec(&["b"]));
    assert_eq!(pipeline.push(97).text, "a");
    assert_eq!(pipeline.push(98).stopped, stop("b"));
    assert_eq!(pipeline.push(97), Default::default());
    assert_eq!((pipeline.finish(), pipeline.finish()), (String::new(), String::new()));
}

#[test]
fn empty_stop_strings_match_nothing() {
    check(&["", "b"], &bytes("aab"), "aa", stop("b"));
}

#[test]
fn many_long_stop_strings_cost_constant_time_a_byte() {
    let stops: Vec<String> = (0..64).map(|at| format!("{}b{at}", "a".repeat(1000 - at))).collect();
    let mut matcher = StopMatcher::new(&stops);
    // A search that looked at each string for each byte would take minutes here.
    let released: usize = (0..100_000).map(|_| matcher.push("aaaaaaaaaa").0.len()).sum();
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
