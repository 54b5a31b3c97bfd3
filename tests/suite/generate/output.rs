//! The output pipeline: it streams the whole text for any tokens, without control tokens and stop
//! strings.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tandem_core::output::extract::Rules;
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::output::scan::{Found, Scanned, Scanner};
use tandem_core::output::strings::{Search, StringSet};
use tandem_core::output::{Matched, OutputPipeline, OutputPolicy, TextSegment, push_segment};
use tandem_model_files::tokenizer::Tokenizer;
use tandem_model_files::utf8::Utf8Stream;
use tandem_tests::default_artifacts;
use tandem_tests::tokenizers::{byte_level, goldens, ids};

/// Tokens of several bytes that split characters anywhere. Their ids start at 256.
const LONGER: &[&[u8]] =
    &[b"ab", b"aab", b"\xC3\xA9", b"a\xC3", b"\xA9b", b"\xF0\x9F", b"\x98\x80a", b"\xF0\x9F\x98", b"\xED\xA0", b"ba<"];
const FIRST_ADDED: u32 = 256 + LONGER.len() as u32;
/// A special token, a token that ends the output, a special token that passes, and a dropped token
/// that is not special.
const SPECIAL: u32 = FIRST_ADDED;
const END: u32 = FIRST_ADDED + 1;
const PASSED: u32 = FIRST_ADDED + 2;
const DROPPED: u32 = FIRST_ADDED + 3;
const UNKNOWN: u32 = FIRST_ADDED + 4;

fn tokenizer() -> Tokenizer {
    byte_level(LONGER, &[("<ab>", true), ("<end>", true), ("<｜>", true), ("<gone>", false)])
}

fn policy(stop_strings: &[&str]) -> OutputPolicy {
    OutputPolicy {
        end_token_ids: vec![END],
        stop_strings: stop_strings.iter().map(|&string| string.to_owned()).collect(),
        dropped: vec![DROPPED],
        passed: vec![PASSED],
        ..OutputPolicy::default()
    }
}

/// Runs a whole output. The last element is what `finish` flushed.
fn stream(tokenizer: &Tokenizer, policy: &OutputPolicy, ids: &[u32]) -> (Vec<String>, Option<Matched>) {
    let (steps, stopped) = steps(tokenizer, policy, &[], ids);
    (steps.iter().map(|segments| text(segments)).collect(), stopped)
}

/// Returns the segments from each token, and those from `finish` last.
fn steps(
    tokenizer: &Tokenizer,
    policy: &OutputPolicy,
    prompt: &[u32],
    ids: &[u32],
) -> (Vec<Vec<TextSegment>>, Option<Matched>) {
    let mut pipeline = OutputPipeline::new(tokenizer.clone(), policy, prompt);
    let (mut segments, mut stopped) = (Vec::new(), None);
    for &id in ids {
        let step = pipeline.push(id);
        segments.push(step.segments);
        stopped = stopped.or(step.stopped);
    }
    segments.push(pipeline.finish());
    (segments, stopped)
}

fn text(segments: &[TextSegment]) -> String {
    segments.iter().map(|segment| segment.text.as_str()).collect()
}

fn whole(tokenizer: &Tokenizer, policy: &OutputPolicy, ids: &[u32]) -> (String, Option<Matched>) {
    let (deltas, stopped) = stream(tokenizer, policy, ids);
    (deltas.concat(), stopped)
}

/// Returns the visible bytes before the first end id, and that id.
fn shown(tokenizer: &Tokenizer, policy: &OutputPolicy, ids: &[u32]) -> (Vec<u8>, Option<u32>) {
    let mut bytes = Vec::new();
    for &id in ids {
        let passes = policy.passed.contains(&id);
        let ends = policy.end_token_ids.contains(&id);
        if passes || !(ends || policy.dropped.contains(&id) || tokenizer.is_special(id)) {
            bytes.extend(tokenizer.token_bytes(id).unwrap_or_default());
        }
        if ends {
            return (bytes, Some(id));
        }
    }
    (bytes, None)
}

/// Returns the start and the text of the stop string that ends first. If several end there, returns
/// the longest.
fn first_stop<'a>(text: &str, stops: &'a [String]) -> Option<(usize, &'a str)> {
    let ends = (0..=text.len()).filter(|&end| text.is_char_boundary(end));
    let mut found = ends.filter_map(|end| {
        let here = stops.iter().filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()));
        here.max_by_key(|stop| stop.len()).map(|stop| (end - stop.len(), stop.as_str()))
    });
    found.next()
}

/// Computes the expected text of an output from all its tokens at once.
fn reference(tokenizer: &Tokenizer, policy: &OutputPolicy, ids: &[u32]) -> (String, Option<Matched>) {
    let (bytes, end) = shown(tokenizer, policy, ids);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match first_stop(&text, &policy.stop_strings) {
        Some((start, stop)) => (text[..start].to_owned(), Some(Matched::StopString(stop.to_owned()))),
        None => (text, end.map(Matched::StopToken)),
    }
}

/// Returns the number of bytes at the end that could still become a stop string.
fn held(bytes: &[u8], stops: &[String]) -> usize {
    let may_grow = |start: &usize| stops.iter().any(|stop| stop.as_bytes().starts_with(&bytes[*start..]));
    (0..bytes.len()).find(may_grow).map_or(0, |start| bytes.len() - start)
}

/// Returns the whole characters at the start of some bytes.
fn complete(bytes: &[u8]) -> String {
    Utf8Stream::default().push(bytes).0
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

fn spec_of(stop_strings: Vec<String>) -> OutputPolicy {
    OutputPolicy { stop_strings, ..policy(&[]) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streamed_text_is_the_whole_text_up_to_the_first_stop(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, policy) = (shared_tokenizer(), spec_of(stops));
        prop_assert_eq!(whole(tokenizer, &policy, &ids), reference(tokenizer, &policy, &ids));
    }

    #[test]
    fn only_a_possible_stop_prefix_is_held_back(ids in vec(any_id(), 1..30), stops in any_stops()) {
        let (tokenizer, policy) = (shared_tokenizer(), spec_of(stops));
        let (deltas, _) = stream(tokenizer, &policy, &ids);
        for at in 1..=ids.len() {
            let bytes = shown(tokenizer, &policy, &ids[..at]).0;
            if first_stop(&String::from_utf8_lossy(&bytes), &policy.stop_strings).is_some() {
                break;
            }
            let released = complete(&bytes[..bytes.len() - held(&bytes, &policy.stop_strings)]);
            prop_assert_eq!(deltas[..at].concat(), released);
        }
    }

    #[test]
    fn utf8_stream_decodes_split_bytes_like_lossy_utf8(
        pieces in vec(vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xAC), Just(0xF0), Just(0x9F)], 0..5), 0..20)
    ) {
        let (mut text, mut read, mut utf8) = (String::new(), Vec::new(), Utf8Stream::default());
        for piece in &pieces {
            let (characters, bytes) = utf8.push(piece);
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
    fn stop_position_does_not_depend_on_chunk_boundaries(text in "[ab]{0,60}", cut in 1..7usize, stops in vec("[ab]{1,6}", 1..6)) {
        let mut scanner = scanner(&stops, &[]);
        let (mut released, mut found) = (Vec::new(), None);
        for piece in text.as_bytes().chunks(cut) {
            let scanned = scanner.push(piece);
            released.extend(scanned.released);
            found = scanned.found;
            if found.is_some() {
                break;
            }
        }
        released.extend(scanner.finish());
        let expected = first_stop(&text, &stops);
        prop_assert_eq!(found, expected.map(|(_, stop)| Found::Stop(stop.to_owned())));
        prop_assert_eq!(&released, &text.as_bytes()[..expected.map_or(text.len(), |(start, _)| start)]);
    }

    #[test]
    fn segments_are_the_text_split_at_token_markers(
        prompt in vec(any_marked(), 0..6), ids in vec(any_marked(), 0..40), stops in any_stops()
    ) {
        let tokenizer = shared_tokenizer();
        let policy = OutputPolicy { reasoning: markers(), ..spec_of(stops) };
        let (steps, stopped) = steps(tokenizer, &policy, &prompt, &ids);
        prop_assert!(steps.iter().all(|segments| segments.len() <= 2));
        let mut segments = Vec::new();
        steps.into_iter().flatten().for_each(|segment| push_segment(&mut segments, segment));
        prop_assert_eq!((segments, stopped), reference_segments(tokenizer, &policy, &prompt, &ids));
    }

    #[test]
    fn segment_bytes_decode_to_the_segment_text(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, policy) = (shared_tokenizer(), spec_of(stops));
        let (steps, stopped) = steps(tokenizer, &policy, &[], &ids);
        let bytes: Vec<u8> = steps.concat().into_iter().flat_map(|segment| segment.bytes).collect();
        prop_assert_eq!(String::from_utf8_lossy(&bytes), text(&steps.concat()));
        let all = shown(tokenizer, &policy, &ids).0;
        prop_assert!(all.starts_with(&bytes));
        prop_assert!(matches!(stopped, Some(Matched::StopString(_))) || all == bytes);
    }

    #[test]
    fn included_stop_string_ends_the_text(ids in any_ids(), stops in any_stops()) {
        let (tokenizer, policy) = (shared_tokenizer(), spec_of(stops));
        let (without, stopped) = whole(tokenizer, &policy, &ids);
        let (with, same) = whole(tokenizer, &OutputPolicy { shown_stop_strings: policy.stop_strings.len(), ..policy }, &ids);
        prop_assert_eq!(&stopped, &same);
        let last = match stopped { Some(Matched::StopString(stop)) => stop, _ => String::new() };
        prop_assert_eq!(with, without + &last);
    }
}

/// Returns a scanner for stop strings and markers.
fn scanner(stops: &[String], markers: &[String]) -> Scanner {
    Scanner::new(stops, 0, Search::new(&Arc::new(StringSet::new(markers))))
}

/// Returns markers that are tokens.
fn marker_ids(start: &[u32], end: &[u32]) -> Markers {
    let set = |token_ids: &[u32]| MarkerSet { token_ids: token_ids.to_vec(), ..MarkerSet::default() };
    Markers { start: set(start), end: set(end) }
}

/// Returns markers that are text.
fn marker_strings(start: &[&str], end: &[&str]) -> Markers {
    let set = |strings: &[&str]| MarkerSet {
        strings: strings.iter().map(|&string| string.to_owned()).collect(),
        ..MarkerSet::default()
    };
    Markers { start: set(start), end: set(end) }
}

/// Returns two start markers, one of them visible, and a visible end marker.
fn markers() -> Markers {
    marker_ids(&[PASSED, SPECIAL], &[256])
}

fn any_marked() -> impl Strategy<Value = u32> {
    prop_oneof![6 => any_id(), 1 => Just(PASSED), 1 => Just(SPECIAL), 2 => Just(256), 1 => Just(END)]
}

/// Returns the spans between markers, each with its reasoning flag.
fn spans(markers: &Markers, mut inside: bool, ids: &[u32]) -> Vec<(bool, Vec<u32>)> {
    let (start, end) = (&markers.start.token_ids, &markers.end.token_ids);
    let mut spans = vec![(inside, Vec::new())];
    for id in ids {
        if !inside && start.contains(id) {
            inside = true;
            spans.push((inside, Vec::new()));
        }
        spans.last_mut().expect("one").1.push(*id);
        if inside && end.contains(id) {
            inside = false;
            spans.push((inside, Vec::new()));
        }
    }
    spans
}

/// Reads each span as a separate output.
fn reference_segments(
    tokenizer: &Tokenizer,
    policy: &OutputPolicy,
    prompt: &[u32],
    ids: &[u32],
) -> (Vec<TextSegment>, Option<Matched>) {
    let control = prompt.iter().rposition(|&id| tokenizer.is_special(id) && id != PASSED && id != SPECIAL);
    let turn = &prompt[control.map_or(0, |at| at + 1)..];
    let inside = spans(&policy.reasoning, false, turn).pop().is_some_and(|(inside, _)| inside);
    let mut segments = Vec::new();
    for (reasoning, ids) in spans(&policy.reasoning, inside, ids) {
        let (text, stopped) = reference(tokenizer, policy, &ids);
        let mut bytes = shown(tokenizer, policy, &ids).0;
        if let Some(Matched::StopString(stop)) = &stopped {
            let is_before =
                |&at: &usize| bytes[at..].starts_with(stop.as_bytes()) && String::from_utf8_lossy(&bytes[..at]) == text;
            bytes.truncate((0..bytes.len()).find(is_before).expect("it is there"));
        }
        push_segment(&mut segments, TextSegment { reasoning, text, bytes });
        if stopped.is_some() {
            return (segments, stopped);
        }
    }
    (segments, None)
}

fn shared_tokenizer() -> &'static Tokenizer {
    static SHARED: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    SHARED.get_or_init(tokenizer)
}

/// Returns the ids of single bytes.
fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[track_caller]
fn check(stops: &[&str], ids: &[u32], text: &str, stopped: Option<Matched>) {
    assert_eq!(whole(shared_tokenizer(), &policy(stops), ids), (text.to_owned(), stopped));
}

fn stop(string: &str) -> Option<Matched> {
    Some(Matched::StopString(string.to_owned()))
}

#[test]
fn end_token_flushes_held_text_and_adds_none() {
    check(&["abx"], &[bytes("ab"), vec![END, 97]].concat(), "ab", Some(Matched::StopToken(END)));
    check(&[], &[0xF0, 0x9F, END], "\u{FFFD}", Some(Matched::StopToken(END)));
}

#[test]
fn passed_end_token_is_shown_and_ends_the_output() {
    let mut policy = policy(&[]);
    policy.passed.push(END);
    let ended = Some(Matched::StopToken(END));
    assert_eq!(whole(shared_tokenizer(), &policy, &[97, END, 98]), ("a<end>".to_owned(), ended));
}

#[test]
fn special_tokens_are_dropped_by_id_not_by_spelling() {
    check(&[], &[97, SPECIAL, DROPPED, PASSED, 98], "a<｜>b", None);
    check(&[], &bytes("<ab><end>"), "<ab><end>", None);
}

#[test]
fn a_stop_string_is_not_found_in_a_dropped_token() {
    check(&["<ab>", "<gone>", "b>"], &[97, SPECIAL, DROPPED, 98], "ab", None);
    check(&["<ab>"], &bytes("x<ab>y"), "x", stop("<ab>"));
}

#[test]
fn stop_string_is_found_across_kept_and_dropped_tokens() {
    check(&["aba"], &[256, SPECIAL, 256], "", stop("aba"));
    check(&["éb"], &[97, 0xC3, 0xA9, 98], "a", stop("éb"));
}

#[test]
fn earliest_ending_stop_matches_and_ties_match_the_longest() {
    check(&["abcd", "bc"], &bytes("xabcd"), "xa", stop("bc"));
    check(&["bc", "abc"], &bytes("xabcd"), "x", stop("abc"));
    check(&["b", "b"], &bytes("ab"), "a", stop("b"));
}

#[test]
fn pipeline_returns_nothing_after_a_stop() {
    let mut pipeline = OutputPipeline::new(tokenizer(), &policy(&["b"]), &[]);
    assert_eq!(text(&pipeline.push(97).segments), "a");
    assert_eq!(pipeline.push(98).stopped, stop("b"));
    assert_eq!(pipeline.push(97), Default::default());
    assert_eq!((pipeline.finish(), pipeline.finish()), (Vec::new(), Vec::new()));
}

#[test]
fn empty_stop_strings_match_nothing() {
    check(&["", "b"], &bytes("aab"), "aa", stop("b"));
}

#[test]
fn scan_time_per_byte_is_constant_for_many_long_stop_strings() {
    let stops: Vec<String> = (0..64).map(|at| format!("{}b{at}", "a".repeat(1000 - at))).collect();
    let mut scanner = scanner(&stops, &stops);
    // A search that compares each string at each byte would take minutes here.
    let released: usize = (0..100_000).map(|_| scanner.push(b"aaaaaaaaaa").released.len()).sum();
    assert_eq!(released + scanner.finish().len(), 1_000_000);
}

#[test]
fn default_model_outputs_stream_as_their_whole_text() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    let policy = OutputPolicy { end_token_ids: vec![2], ..OutputPolicy::default() };
    for case in goldens()["cases"].as_array().expect("a list") {
        let (output, expected) = (ids(&case["greedy_ids"]), case["greedy_text"].as_str().expect("a string"));
        let (text, stopped) = whole(&tokenizer, &policy, &output);
        assert_eq!(text, expected, "{}", case["id"]);
        assert_eq!(stopped, output.ends_with(&[2]).then_some(Matched::StopToken(2)), "{}", case["id"]);
    }
}

#[test]
fn any_substring_of_an_output_stops_it_without_leaking() {
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    for case in goldens()["cases"].as_array().expect("a list") {
        let (output, expected) = (ids(&case["greedy_ids"]), case["greedy_text"].as_str().expect("a string"));
        let chars: Vec<char> = expected.chars().collect();
        for window in chars.windows(5).step_by(3) {
            let stop_string: String = window.iter().collect();
            let before = expected.find(&stop_string).expect("it is part of it");
            let policy = OutputPolicy {
                end_token_ids: vec![2],
                stop_strings: vec![stop_string.clone()],
                ..OutputPolicy::default()
            };
            assert_eq!(whole(&tokenizer, &policy, &output), (expected[..before].to_owned(), stop(&stop_string)));
        }
    }
}

#[test]
fn token_markers_in_the_prompt_set_the_initial_reasoning_state() {
    let policy = OutputPolicy { reasoning: marker_ids(&[97], &[98]), ..policy(&[]) };
    let reasons = |prompt: &[u32]| steps(shared_tokenizer(), &policy, prompt, &[99]).0.concat()[0].reasoning;
    assert!(!reasons(&[]));
    assert!(reasons(&[99, 97]) && reasons(&[97, 99, 99]), "the last marker starts it");
    assert!(!reasons(&[97, 98]) && !reasons(&[97, SPECIAL, 99]), "it has ended, or was in another turn");
    assert!(reasons(&[98, SPECIAL, 97, 99]));
}

#[test]
fn extraction_rules_strip_reasoning_head_and_lines() {
    let segments = |segments: &[(bool, &str)]| -> Vec<TextSegment> {
        let segment =
            |&(reasoning, text): &(bool, &str)| TextSegment { reasoning, text: text.to_owned(), bytes: Vec::new() };
        segments.iter().map(segment).collect()
    };
    let all = segments(&[(true, "<think>Hm.\nuser\n</think>"), (false, "\n\nassistant\nFour.\nuser\nAnd the user?\n")]);
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

// ---- markers that are text ----

/// A reader of an output, byte by byte, that keeps all earlier bytes.
struct Naive<'a> {
    tokenizer: &'a Tokenizer,
    policy: &'a OutputPolicy,
    inside: bool,
    /// The bytes since the last change.
    span: Vec<u8>,
    /// The number of bytes that belong to the prompt.
    prior: usize,
    /// The number of bytes that belong to a marker, and are not searched.
    searched_from: usize,
    segments: Vec<TextSegment>,
}

impl<'a> Naive<'a> {
    /// Returns the reader of an output after `prompt`.
    fn new(tokenizer: &'a Tokenizer, policy: &'a OutputPolicy, prompt: &[u32]) -> Self {
        let silent = OutputPolicy { stop_strings: Vec::new(), ..policy.clone() };
        let mut naive = Naive { policy: &silent, ..Naive::start(tokenizer, policy) };
        let Markers { start, end } = &policy.reasoning;
        let is_marker = |id: &u32| start.token_ids.contains(id) || end.token_ids.contains(id);
        let control = prompt.iter().rposition(|id| tokenizer.is_special(*id) && !is_marker(id));
        for &id in &prompt[control.map_or(0, |at| at + 1)..] {
            let _ = naive.push(id);
        }
        let Naive { inside, span, searched_from, .. } = naive;
        Self { inside, searched_from, prior: span.len(), span, ..Naive::start(tokenizer, policy) }
    }

    fn start(tokenizer: &'a Tokenizer, policy: &'a OutputPolicy) -> Self {
        let (span, segments) = (Vec::new(), Vec::new());
        Naive { tokenizer, policy, inside: false, span, prior: 0, searched_from: 0, segments }
    }

    fn awaited(&self) -> &'a MarkerSet {
        if self.inside { &self.policy.reasoning.end } else { &self.policy.reasoning.start }
    }

    fn push(&mut self, id: u32) -> Option<Matched> {
        if !self.inside && self.awaited().token_ids.contains(&id) {
            self.change(self.span.len());
        }
        for byte in shown(self.tokenizer, self.policy, &[id]).0 {
            if let Some(stop) = self.push_byte(byte) {
                return Some(Matched::StopString(stop));
            }
        }
        if self.inside && self.awaited().token_ids.contains(&id) {
            self.change(self.span.len());
        }
        self.policy.end_token_ids.contains(&id).then_some(Matched::StopToken(id))
    }

    fn push_byte(&mut self, byte: u8) -> Option<String> {
        self.span.push(byte);
        let longest = |strings: &[String], from: usize| {
            let ends = |string: &&String| !string.is_empty() && self.span[from..].ends_with(string.as_bytes());
            strings.iter().filter(ends).max_by_key(|string| string.len()).cloned()
        };
        let stop = longest(&self.policy.stop_strings, self.searched_from.max(self.prior));
        let marker = longest(&self.awaited().strings, self.searched_from);
        match (stop, marker) {
            (Some(stop), _) => {
                self.span.truncate(self.span.len() - stop.len());
                return Some(stop);
            }
            (None, Some(_)) if self.inside => self.change(self.span.len()),
            (None, Some(marker)) => self.change(self.span.len() - marker.len()),
            (None, None) => {}
        }
        None
    }

    /// Ends a span before its byte `at`. The marker at `at` is not searched.
    fn change(&mut self, at: usize) {
        let marker = self.span.split_off(at.max(self.prior));
        self.end_stretch();
        (self.searched_from, self.span, self.inside) = (marker.len(), marker, !self.inside);
    }

    /// Ends the last span and returns all segments.
    fn end(mut self) -> Vec<TextSegment> {
        self.end_stretch();
        self.segments
    }

    /// Returns all segments that can no longer change.
    fn settled(mut self) -> Vec<TextSegment> {
        let stops = held(&self.span[self.searched_from.max(self.prior)..], &self.policy.stop_strings);
        let held = stops.max(held(&self.span[self.searched_from..], &self.awaited().strings));
        let mut bytes = self.span.split_off(self.prior);
        bytes.truncate(bytes.len().saturating_sub(held));
        let (text, bytes) = Utf8Stream::default().push(&bytes);
        push_segment(&mut self.segments, TextSegment { reasoning: self.inside, text, bytes });
        self.segments
    }

    fn end_stretch(&mut self) {
        let bytes = self.span.split_off(self.prior);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        push_segment(&mut self.segments, TextSegment { reasoning: self.inside, text, bytes });
        self.prior = 0;
    }
}

/// Returns the expected segments of an output.
fn naive_segments(
    tokenizer: &Tokenizer,
    policy: &OutputPolicy,
    prompt: &[u32],
    ids: &[u32],
) -> (Vec<TextSegment>, Option<Matched>) {
    let mut naive = Naive::new(tokenizer, policy, prompt);
    let stopped = ids.iter().find_map(|&id| naive.push(id));
    (naive.end(), stopped)
}

/// Returns the segments of an output, joined.
fn joined(
    tokenizer: &Tokenizer,
    policy: &OutputPolicy,
    prompt: &[u32],
    ids: &[u32],
) -> (Vec<TextSegment>, Option<Matched>) {
    let (steps, stopped) = steps(tokenizer, policy, prompt, ids);
    let mut segments = Vec::new();
    steps.into_iter().flatten().for_each(|segment| push_segment(&mut segments, segment));
    (segments, stopped)
}

/// Generates markers that are text. No marker is both a start and an end.
fn any_marker_strings() -> impl Strategy<Value = Markers> {
    let strings = || vec("[ab<>é]{1,4}|<ab>|<gone>|aab", 0..4);
    (strings(), strings()).prop_map(|(start, mut end)| {
        end.retain(|string| !start.contains(string));
        let set = |strings| MarkerSet { strings, ..MarkerSet::default() };
        Markers { start: set(start), end: set(end) }
    })
}

/// Generates markers that are text, with or without markers that are tokens.
fn any_markers() -> impl Strategy<Value = Markers> {
    (any_marker_strings(), any::<bool>()).prop_map(|(mut all, with_ids)| {
        if with_ids {
            all.start.token_ids = markers().start.token_ids;
            all.end.token_ids = markers().end.token_ids;
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segments_are_the_text_split_at_text_markers(
        reasoning in any_markers(), prompt in vec(any_marked(), 0..12), ids in vec(any_marked(), 0..40), stops in any_stops()
    ) {
        let (tokenizer, policy) = (shared_tokenizer(), OutputPolicy { reasoning, ..spec_of(stops) });
        let expected = naive_segments(tokenizer, &policy, &prompt, &ids);
        prop_assert_eq!(joined(tokenizer, &policy, &prompt, &ids), expected);
    }

    #[test]
    fn segments_do_not_depend_on_token_boundaries(
        reasoning in any_marker_strings(), prompt in any_ids(), ids in any_ids(), stops in any_stops()
    ) {
        let (tokenizer, policy) = (shared_tokenizer(), OutputPolicy { reasoning, ..spec_of(stops) });
        let (bytes, end) = shown(tokenizer, &policy, &ids);
        let single: Vec<u32> = bytes.into_iter().map(u32::from).chain(end).collect();
        let expected = joined(tokenizer, &policy, &prompt, &single);
        prop_assert_eq!(joined(tokenizer, &policy, &prompt, &ids), expected);
    }

    #[test]
    fn only_a_possible_stop_or_marker_prefix_is_held_back(
        reasoning in any_markers(), prompt in vec(any_marked(), 0..6), ids in vec(any_marked(), 0..24), stops in any_stops()
    ) {
        let (tokenizer, policy) = (shared_tokenizer(), OutputPolicy { reasoning, ..spec_of(stops) });
        let mut pipeline = OutputPipeline::new(tokenizer.clone(), &policy, &prompt);
        let mut streamed = Vec::new();
        for at in 0..ids.len() {
            let step = pipeline.push(ids[at]);
            step.segments.into_iter().for_each(|segment| push_segment(&mut streamed, segment));
            let mut naive = Naive::new(tokenizer, &policy, &prompt);
            if ids[..=at].iter().any(|&id| naive.push(id).is_some()) {
                break;
            }
            prop_assert_eq!(&streamed, &naive.settled());
        }
    }
}

/// Checks the joined text of an output in single bytes, with the reasoning in brackets.
#[track_caller]
fn check_text(policy: &OutputPolicy, prompt: &str, output: &str, expected: &str, stopped: Option<Matched>) {
    let (segments, found) = joined(shared_tokenizer(), policy, &bytes(prompt), &bytes(output));
    let bracketed =
        |segment: &TextSegment| if segment.reasoning { format!("[{}]", segment.text) } else { segment.text.clone() };
    assert_eq!((segments.iter().map(bracketed).collect::<String>().as_str(), found), (expected, stopped));
}

fn thinking(stops: &[&str]) -> OutputPolicy {
    OutputPolicy { reasoning: marker_strings(&["<think>"], &["</think>"]), ..policy(stops) }
}

#[test]
fn multi_token_markers_enclose_and_belong_to_reasoning() {
    let policy = thinking(&[]);
    check_text(&policy, "", "a<think>secret</think>answer", "a[<think>secret</think>]answer", None);
    check_text(&policy, "", "<think>a<think>b</think>c</think>d", "[<think>a<think>b</think>]c</think>d", None);
    check_text(&policy, "", "<thin<think></think><think>a", "<thin[<think></think><think>a]", None);
}

#[test]
fn incomplete_marker_is_text() {
    let policy = thinking(&[]);
    check_text(&policy, "", "a<think", "a<think", None);
    check_text(&policy, "", "a<thinx>b", "a<thinx>b", None);
    check_text(&policy, "", "<think>a</thin", "[<think>a</thin]", None);
    let ended = [bytes("a<thin"), vec![END]].concat();
    let segment = TextSegment { reasoning: false, text: "a<thin".to_owned(), bytes: b"a<thin".to_vec() };
    let expected = (vec![segment], Some(Matched::StopToken(END)));
    assert_eq!(joined(shared_tokenizer(), &policy, &[], &ended), expected);
}

#[test]
fn earliest_ending_stop_or_marker_matches_and_ties_match_the_stop() {
    check_text(&thinking(&["in"]), "", "a<think>b", "a<th", stop("in"));
    check_text(&thinking(&["k>b"]), "", "a<think>bc", "a[<think>bc]", None);
    check_text(&thinking(&["a<think>b"]), "", "a<think>b", "a[<think>b]", None);
    check_text(&thinking(&["k>"]), "", "a<think>b", "a<thin", stop("k>"));
    check_text(&thinking(&["a<think>"]), "", "a<think>b", "", stop("a<think>"));
    check_text(&thinking(&["</think>"]), "", "<think>b</think>c", "[<think>b]", stop("</think>"));
    check_text(&thinking(&["b"]), "", "<think>b</think>c", "[<think>]", stop("b"));
    let shown = OutputPolicy { shown_stop_strings: 1, ..thinking(&["k>"]) };
    check_text(&shown, "", "a<think>b", "a<think>", stop("k>"));
}

#[test]
fn earliest_ending_marker_matches_and_ties_match_the_longest() {
    let of = |start: &[&str], end: &[&str]| OutputPolicy { reasoning: marker_strings(start, end), ..policy(&[]) };
    check_text(&of(&["k>", "<think>"], &["/"]), "", "a<think>b/c", "a[<think>b/]c", None);
    check_text(&of(&["<think>", "<think>b"], &["b/"]), "", "a<think>b/c", "a[<think>b/]c", None);
    check_text(&of(&["ab"], &["ba"]), "", "xaba", "x[aba]", None);
    check_text(&of(&["ab"], &["bx"]), "", "abx", "[abx]", None);
    check_text(&of(&["é>"], &["<é"]), "", "aé>b<éc", "a[é>b<é]c", None);
}

#[test]
fn text_markers_in_the_prompt_set_the_initial_reasoning_state() {
    let policy = thinking(&[]);
    check_text(&policy, "a<think>\n", "b</think>c", "[b</think>]c", None);
    check_text(&policy, "a<think>b</think>", "c", "c", None);
    check_text(&policy, "a</think>b<think>", "c", "[c]", None);
    let reasons = |prompt: &[u32]| joined(shared_tokenizer(), &policy, prompt, &[99]).0[0].reasoning;
    let start = bytes("<think>");
    assert!(reasons(&[&[SPECIAL], &start[..]].concat()));
    assert!(!reasons(&[&start[..], &[SPECIAL]].concat()), "it was in another turn");
    assert!(!reasons(&[&start[..3], &[SPECIAL], &start[3..]].concat()), "a control token is between");
}

#[test]
fn marker_begun_in_the_prompt_is_completed_by_the_output() {
    check_text(&thinking(&[]), "a<thi", "nk>b</think>c", "[nk>b</think>]c", None);
    check_text(&thinking(&[]), "<think>a</th", "ink>b", "[ink>]b", None);
    check_text(&thinking(&[]), "a<thi", "nx>b", "nx>b", None);
    check_text(&thinking(&["ink>"]), "a<thi", "nk>b", "[nk>b]", None);
    check_text(&thinking(&["nk"]), "a<thi", "nk>b", "", stop("nk"));
    let steps = steps(shared_tokenizer(), &thinking(&[]), &bytes("<thi"), &bytes("nk>"));
    assert_eq!(steps.0.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1, 0], "it is held back until then");
}

#[test]
fn text_markers_are_found_in_the_last_4096_prompt_tokens() {
    let policy = OutputPolicy { reasoning: marker_strings(&["<"], &[">"]), ..policy(&[]) };
    let after = |prompt: &[u32]| joined(shared_tokenizer(), &policy, prompt, &[99]).0[0].reasoning;
    let filler = |count| vec![u32::from(b'x'); count];
    assert!(after(&[bytes("<"), filler(4095)].concat()));
    assert!(!after(&[bytes("<"), filler(4096)].concat()));
    let mut with_ids = policy.clone();
    with_ids.reasoning.start.token_ids = vec![256];
    let after = |prompt: &[u32]| joined(shared_tokenizer(), &with_ids, prompt, &[99]).0[0].reasoning;
    assert!(after(&[vec![256], filler(9000)].concat()), "one that is a token is found anywhere");
    assert!(!after(&[vec![256], filler(9000), bytes(">"), filler(9)].concat()));
}

#[test]
fn markers_can_be_tokens_and_text_at_once() {
    let mut both = thinking(&[]);
    both.reasoning.start.token_ids = vec![SPECIAL];
    both.reasoning.end.token_ids = vec![PASSED];
    let ids = [&bytes("a<thi")[..], &[SPECIAL], &bytes("nk>b</think>c<think>d")[..], &[PASSED, 101]].concat();
    let (segments, _) = joined(shared_tokenizer(), &both, &[], &ids);
    let texts: Vec<_> = segments.iter().map(|segment| (segment.reasoning, segment.text.as_str())).collect();
    assert_eq!(texts, [(false, "a<thi"), (true, "nk>b</think>"), (false, "c"), (true, "<think>d<｜>"), (false, "e")]);
}

#[test]
fn token_without_visible_text_matches_no_text_marker() {
    let policy = OutputPolicy { reasoning: marker_strings(&["<gone>", "<ab>"], &[]), ..policy(&[]) };
    let reasons = |prompt: &[u32], ids: &[u32]| joined(shared_tokenizer(), &policy, prompt, ids).0[0].reasoning;
    assert!(!reasons(&[], &[DROPPED, SPECIAL, 99]) && !reasons(&[DROPPED], &[99]) && !reasons(&[SPECIAL], &[99]));
    assert!(reasons(&bytes("<gone>"), &[99]) && reasons(&[], &bytes("<gone>")));
}

#[test]
fn one_token_can_contain_several_markers() {
    let policy = OutputPolicy { reasoning: marker_strings(&["b"], &["a"]), ..policy(&[]) };
    let texts: Vec<_> = joined(shared_tokenizer(), &policy, &bytes("b"), &[257]).0;
    let texts: Vec<_> = texts.iter().map(|segment| (segment.reasoning, segment.text.as_str())).collect();
    assert_eq!(texts, [(true, "a"), (false, "a"), (true, "b")]);
}

#[test]
fn scan_stops_at_a_match_and_returns_the_rest() {
    let mut scanner = scanner(&["z".to_owned()], &["<b>".to_owned()]);
    let found = |released: &[u8], found, rest| Scanned { released: released.to_vec(), found, rest };
    assert_eq!(scanner.push(b"a<"), found(b"a", None, b""));
    assert_eq!(scanner.push(b"b>cz"), found(b"", Some(Found::Marker(b"<b>".to_vec())), b"cz"));
    assert_eq!(scanner.push(b"cz"), found(b"c", Some(Found::Stop("z".to_owned())), b""));
}
