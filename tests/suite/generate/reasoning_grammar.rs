//! Grammars of outputs that reason first, and the limit of reasoning, with the real model.

use std::ops::RangeInclusive;

use gen_svc::load::{self, WithoutLibrary};
use tandem_core::answer::{Accepted, Event, FinishReason, Finished};
use tandem_core::engine::{Config, Engine};
use tandem_core::grammar::{Grammar, GrammarKind};
use tandem_core::output::reasoning::{MarkerSet, Markers};
use tandem_core::request::{GenerateRequest, Input, OutputSpec, Resume, Returns, SamplingOptions, StopOptions};
use tandem_tests::{default_artifacts, default_model, goldens};

/// Special tokens of the model, which are markers in these tests.
const START: u32 = 3;
const END: u32 = 4;
/// The model's eos id.
const EOS: u32 = 2;
/// The text that ends reasoning where no token does.
const END_TEXT: &str = "</thoughts>";

fn engine() -> Engine {
    let config = Config { threads: 1, ..Config::new(default_model()) };
    load::start(config, &WithoutLibrary).expect("the model loads").0
}

fn yes() -> Grammar {
    GrammarKind::Choice(vec!["yes, indeed".to_owned()]).into()
}

fn tokens_markers() -> Markers {
    Markers {
        start: MarkerSet { token_ids: vec![START], ..MarkerSet::default() },
        end: MarkerSet { token_ids: vec![END], ..MarkerSet::default() },
    }
}

/// As [`tokens_markers`], with an end that is text.
fn text_markers() -> Markers {
    let end = MarkerSet { strings: vec![END_TEXT.to_owned()], ..MarkerSet::default() };
    Markers { end, ..tokens_markers() }
}

/// Returns a greedy request without eos, whose prompt ends with a start marker if `is_reasoning`.
fn request(is_reasoning: bool, markers: Markers, limit: Option<u32>) -> GenerateRequest {
    let mut prompt = goldens()[0].prompt_ids.clone();
    prompt.extend(is_reasoning.then_some(START));
    GenerateRequest {
        sampling: SamplingOptions {
            temperature: Some(0.0),
            logit_bias: vec![(EOS, -100.0)],
            ..SamplingOptions::default()
        },
        stop: StopOptions { max_new_tokens: Some(40), max_reasoning_tokens: limit, ..StopOptions::default() },
        output_spec: OutputSpec { reasoning: markers, ..OutputSpec::default() },
        returns: Returns { token_ids: true, logprobs: Some(2), extracted_text: true, ..Returns::default() },
        grammar: Some(yes()),
        ..GenerateRequest::new(Input::TokenIds(prompt))
    }
}

/// An output, as a client sees it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    /// The text of reasoning, and the other text.
    texts: [String; 2],
    reason: FinishReason,
    grammar_not_reached: bool,
}

/// Returns the outputs of a request, and its accepted parameters.
fn run(engine: &Engine, request: GenerateRequest) -> (Vec<Seen>, Accepted) {
    let outputs = request.sampling.n.unwrap_or(1) as usize;
    let mut events = engine.submit(request.prepare(engine.model()).expect("a valid request"), None).expect("room");
    let empty = || Seen {
        ids: Vec::new(),
        logprobs: Vec::new(),
        texts: Default::default(),
        reason: FinishReason::Error,
        grammar_not_reached: false,
    };
    let (mut seen, mut accepted): (Vec<_>, _) = ((0..outputs).map(|_| empty()).collect(), None);
    loop {
        let delta = match events.blocking_recv().expect("a summary comes last") {
            Event::Delta(delta) => delta,
            Event::Finished(Finished { last, reason, grammar_not_reached, .. }) => {
                let seen = &mut seen[last.output as usize];
                (seen.reason, seen.grammar_not_reached) = (reason, grammar_not_reached);
                last
            }
            Event::Accepted(parameters) => {
                accepted = Some(parameters);
                continue;
            }
            Event::Summary(_) => return (seen, accepted.expect("accepted comes first")),
            Event::PromptLogprobs(_) => continue,
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        };
        let seen = &mut seen[delta.output as usize];
        seen.ids.extend(&delta.token_ids);
        seen.logprobs.extend(delta.tokens.iter().map(|token| token.logprob));
        delta.segments.iter().for_each(|segment| seen.texts[usize::from(!segment.reasoning)] += &segment.text);
    }
}

fn one(engine: &Engine, request: GenerateRequest) -> Seen {
    run(engine, request).0.remove(0)
}

fn with_bias(mut request: GenerateRequest, id: u32) -> GenerateRequest {
    request.sampling.logit_bias = vec![(id, 100.0)];
    request
}

fn without_grammar(request: GenerateRequest) -> GenerateRequest {
    GenerateRequest { grammar: None, ..request }
}

#[test]
fn grammar_begins_after_the_reasoning() {
    let engine = engine();
    let free = one(&engine, without_grammar(request(true, tokens_markers(), None)));
    let seen = one(&engine, request(true, tokens_markers(), Some(4)));
    assert_eq!(seen.ids[..4], free.ids[..4], "reasoning is free");
    assert_eq!(seen.ids[4], END);
    assert_eq!(seen.texts[1], "yes, indeed");
    assert_eq!((seen.reason, seen.grammar_not_reached), (FinishReason::Stop, false));

    let ended = one(&engine, with_bias(request(true, tokens_markers(), None), END));
    assert_eq!((ended.ids[0], ended.texts[1].as_str()), (END, "yes, indeed"), "the model ends its reasoning");

    let none = one(&engine, request(true, tokens_markers(), Some(0)));
    assert_eq!((none.ids[0], none.texts[1].as_str()), (END, "yes, indeed"), "no reasoning is allowed");
}

/// The end marker of several tokens is chosen whole.
#[test]
fn text_ends_the_reasoning_at_its_limit() {
    let engine = engine();
    let free = one(&engine, without_grammar(request(true, text_markers(), None)));
    let seen = one(&engine, request(true, text_markers(), Some(4)));
    let end = default_artifacts().tokenizer().expect("a tokenizer").encode(END_TEXT, false).expect("ids");
    assert!(end.len() > 2);
    assert_eq!(seen.ids[..4], free.ids[..4]);
    assert_eq!(seen.ids[4..4 + end.len()], end);
    assert!(seen.texts[0].ends_with(END_TEXT), "{:?}", seen.texts);
    assert_eq!(seen.texts[1], "yes, indeed");
}

#[test]
fn limit_of_reasoning_needs_no_grammar() {
    let engine = engine();
    let free = one(&engine, without_grammar(request(true, tokens_markers(), None)));
    let seen = one(&engine, without_grammar(request(true, tokens_markers(), Some(3))));
    assert_eq!((&seen.ids[..3], seen.ids[3]), (&free.ids[..3], END));
    assert!(!seen.texts[1].is_empty(), "the answer follows");
}

#[test]
fn default_limit_leaves_a_quarter_for_the_grammar() {
    let engine = engine();
    let limit = |request| run(&engine, request).1.limits.max_reasoning_tokens;
    assert_eq!(limit(request(true, tokens_markers(), None)), Some(30));
    assert_eq!(limit(request(true, tokens_markers(), Some(7))), Some(7));
    assert_eq!(limit(request(false, tokens_markers(), None)), None, "it starts outside of reasoning");
    assert_eq!(limit(without_grammar(request(true, tokens_markers(), None))), None);
    let seen = one(&engine, request(true, tokens_markers(), None));
    assert_eq!((seen.ids[30], seen.texts[1].as_str()), (END, "yes, indeed"));
}

#[test]
fn output_that_ends_before_its_grammar_has_a_warning() {
    let engine = engine();
    let mut short = request(true, tokens_markers(), Some(100));
    short.stop.max_new_tokens = Some(5);
    let seen = one(&engine, short.clone());
    assert_eq!((seen.reason, seen.grammar_not_reached), (FinishReason::Length, true));
    assert!(!one(&engine, without_grammar(short)).grammar_not_reached);
    let mut ends_with_marker = request(true, tokens_markers(), Some(5));
    ends_with_marker.stop.max_new_tokens = Some(6);
    let seen = one(&engine, ends_with_marker.clone());
    assert_eq!((seen.ids[5], seen.texts[1].as_str(), seen.grammar_not_reached), (END, "", true));
    ends_with_marker.stop.max_new_tokens = Some(7);
    assert!(!one(&engine, ends_with_marker).grammar_not_reached);
}

/// A grammar defines where its output ends: the model cannot end its turn before.
#[test]
fn eos_is_not_chosen_before_the_grammar() {
    let engine = engine();
    let seen = one(&engine, with_bias(request(true, tokens_markers(), Some(6)), EOS));
    assert!(!seen.ids[..6].contains(&EOS), "{:?}", seen.ids);
    assert_eq!((seen.ids[6], seen.texts[1].as_str()), (END, "yes, indeed"));
    let free = one(&engine, with_bias(without_grammar(request(true, tokens_markers(), Some(6))), EOS));
    assert_eq!(free.ids, [EOS]);
}

#[test]
fn output_outside_of_reasoning_starts_with_its_grammar_or_a_start_marker() {
    let engine = engine();
    let bound = one(&engine, with_bias(request(false, tokens_markers(), Some(3)), START));
    assert_eq!(bound.texts, [String::new(), "yes, indeed".to_owned()], "the grammar binds the first token");
    let after = |request| GenerateRequest { after_reasoning: true, ..request };
    let seen = one(&engine, after(with_bias(request(false, tokens_markers(), Some(3)), START)));
    assert_eq!((seen.ids[0], seen.ids[4]), (START, END));
    assert_eq!(seen.texts[1], "yes, indeed");
    let bias = yes_id(&engine);
    let seen = one(&engine, after(with_bias(request(false, tokens_markers(), None), bias)));
    assert_eq!(seen.texts, [String::new(), "yes, indeed".to_owned()], "the model need not reason");
}

/// Returns the first token of an output that the grammar binds.
fn yes_id(engine: &Engine) -> u32 {
    one(engine, request(false, Markers::default(), None)).ids[0]
}

/// Resumes an output before each of its tokens.
fn assert_resumes(engine: &Engine, asked: &GenerateRequest, places: RangeInclusive<usize>) {
    let whole = one(engine, asked.clone());
    for place in places.filter(|place| *place < whole.ids.len()) {
        let Input::TokenIds(prompt) = &asked.input else { panic!("ids") };
        let input = Input::TokenIds([&prompt[..], &whole.ids[..place]].concat());
        let resume = Resume { generated_tokens: place as u32, output_index: 0, token_ids: Vec::new() };
        let rest = one(engine, GenerateRequest { input, resume: Some(resume), ..asked.clone() });
        assert_eq!(rest.ids, whole.ids[place..], "resumed after {place} tokens");
        assert_eq!(rest.logprobs, whole.logprobs[place..], "resumed after {place} tokens");
        assert!(whole.texts[1].ends_with(&rest.texts[1]), "resumed after {place} tokens");
    }
}

#[test]
fn resumed_outputs_reason_and_follow_the_grammar_as_whole_ones() {
    let engine = engine();
    let sampled = |request: GenerateRequest| {
        let sampling = SamplingOptions { temperature: Some(1.0), seed: Some(7), ..request.sampling.clone() };
        GenerateRequest { sampling, ..request }
    };
    assert_resumes(&engine, &sampled(request(true, tokens_markers(), Some(3))), 1..=4);
    assert_resumes(&engine, &sampled(request(true, text_markers(), Some(2))), 1..=7);
    let opening = with_bias(request(false, tokens_markers(), Some(2)), START);
    assert_resumes(&engine, &GenerateRequest { after_reasoning: true, ..opening }, 1..=4);
}

#[test]
fn each_output_reasons_on_its_part() {
    let engine = engine();
    let mut asked = request(true, tokens_markers(), Some(5));
    asked.sampling = SamplingOptions { temperature: Some(1.5), seed: Some(3), n: Some(4), ..asked.sampling };
    let (outputs, _) = run(&engine, asked);
    assert!(outputs.iter().all(|seen| seen.texts[1] == "yes, indeed" && seen.ids.contains(&END)), "{outputs:?}");
    assert!(outputs.iter().any(|seen| seen.texts[0] != outputs[0].texts[0]), "they differ");
}
