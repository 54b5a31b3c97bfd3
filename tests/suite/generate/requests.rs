//! Generation over gRPC with the real model: ids, text, stops, cancellation, several clients,
//! invalid requests.

use std::time::Duration;

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_core::error::RequestError;
use tandem_tests::failure::{failed, is_failed};
use tandem_tests::resumed::{Resumed, check_resumes, check_resumes_with_a_grammar, greedy, resumed};
use tandem_tests::{Generation, Golden, default_artifacts, error_texts, goldens};
use tonic::transport::Channel;
use tonic::{Code, Status};

type Client = GenerateServiceClient<Channel>;

async fn serve() -> (Generation, Client) {
    let service = Generation::start().await;
    let client = GenerateServiceClient::new(service.running.channel().await);
    (service, client)
}

#[test]
fn a_prompt_that_the_tokenizer_cannot_encode_is_too_long() {
    let status = Status::from(RequestError::TextTooLong { field: "prompt", bytes: 11 << 20, limit: 10 << 20 });
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::InvalidArgument, "TEXT_TOO_LONG"));
    assert_eq!(failure.field.as_deref(), Some("prompt"));
    error_texts::check("generate/text-too-long", status.message());
}

/// A whole answer, joined from its events.
#[derive(Debug, Default)]
struct Answer {
    accepted: pb::Accepted,
    prompt_logprobs: Vec<pb::TokenInfo>,
    deltas: Vec<String>,
    reasoning: String,
    bytes: Vec<u8>,
    tokens: Vec<pb::TokenInfo>,
    token_ids: Vec<u32>,
    finished: pb::Finished,
    summary: pb::Summary,
}

impl Answer {
    fn text(&self) -> String {
        self.deltas.concat()
    }
}

async fn ask(client: &mut Client, request: pb::GenerateRequest) -> Result<Answer, Status> {
    let mut stream = client.generate(request).await?.into_inner();
    let (mut answer, mut order) = (Answer::default(), String::new());
    while let Some(response) = stream.message().await? {
        match response.event.expect("an event") {
            Event::Accepted(accepted) => (answer.accepted, _) = (accepted, order.push('a')),
            Event::Delta(delta) => {
                answer.reasoning += if delta.reasoning { &delta.text } else { "" };
                answer.bytes.extend(delta.bytes);
                answer.deltas.push(delta.text);
                answer.token_ids.extend(delta.token_ids);
                answer.tokens.extend(delta.tokens);
                order.push('d');
            }
            Event::Finished(finished) => (answer.finished, _) = (finished, order.push('f')),
            Event::PromptLogprobs(of) => {
                answer.prompt_logprobs.extend(of.tokens);
                order.push('p');
            }
            Event::Progress(_) => {}
            Event::Summary(summary) => (answer.summary, _) = (summary, order.push('s')),
        }
    }
    assert_eq!(order.replace(['d', 'p'], ""), "afs", "the order of events");
    assert!(order.rfind('p') < order.find('d'), "the prompt comes first: {order}");
    Ok(answer)
}

fn golden(id: &str) -> Golden {
    goldens().into_iter().find(|golden| golden.id == id).unwrap_or_else(|| panic!("no golden {id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_text_is_the_decoded_text_without_special_tokens() {
    let (service, mut client) = serve().await;
    for golden in goldens() {
        let answer = ask(&mut client, greedy(&golden.prompt, 64)).await.expect("answers");
        assert_eq!(answer.token_ids, golden.greedy_ids, "{}", golden.id);
        let whole = service.tokenizer.decode(&golden.greedy_ids, true).expect("text");
        assert_eq!(answer.text(), whole, "{}", golden.id);
        for special in ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "\u{fffd}"] {
            assert!(!answer.text().contains(special), "{} shows {special}", golden.id);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_token_stop_string_is_never_partly_streamed() {
    let (service, mut client) = serve().await;
    let golden = &goldens()[0];
    let tokenizer = &service.tokenizer;
    let text = tokenizer.decode(&golden.greedy_ids, true).expect("text");
    // The text from the middle of one token to the middle of the third token after it.
    let boundary = |tokens| tokenizer.decode(&golden.greedy_ids[..tokens], true).expect("text").len();
    let stop = text.get(boundary(8) - 1..boundary(11) + 2).expect("an ASCII answer");
    let mut request = greedy(&golden.prompt, 64);
    request.stop.get_or_insert_default().stop_strings = vec!["never said".to_owned(), stop.to_owned()];
    let answer = ask(&mut client, request).await.expect("answers");
    let before = text.split(stop).next().expect("a part");
    assert_eq!(answer.text(), before);
    assert_eq!(answer.finished.reason(), pb::FinishReason::Stop);
    assert_eq!(answer.finished.matched, Some(Matched::StopString(stop.to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_id_ends_the_output_and_usage_counts_it() {
    let (_service, mut client) = serve().await;
    let golden = &goldens()[0];
    let stop = golden.greedy_ids[5];
    let first = golden.greedy_ids.iter().position(|&id| id == stop).expect("it is there");
    let mut request = greedy(&golden.prompt, 64);
    request.stop.get_or_insert_default().stop_token_ids = vec![stop];
    let answer = ask(&mut client, request).await.expect("answers");
    assert_eq!(answer.finished.matched, Some(Matched::StopTokenId(stop)));
    let usage = answer.summary.usage.expect("usage");
    assert_eq!(usage.completion_tokens as usize, first + 1);
    assert_eq!(usage.prompt_tokens as usize, golden.prompt_ids.len());
    assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
}

#[tokio::test(flavor = "multi_thread")]
async fn eos_ends_the_output_unless_ignore_eos_is_set() {
    let (_service, mut client) = serve().await;
    let ended = goldens().into_iter().find(|golden| golden.greedy_ids.last() == Some(&2)).expect("a short answer");
    let answer = ask(&mut client, greedy(&ended.prompt, 64)).await.expect("answers");
    assert_eq!(answer.finished.matched, Some(Matched::StopTokenId(2)));
    let mut request = greedy(&ended.prompt, 64);
    request.stop.get_or_insert_default().ignore_eos = true;
    let answer = ask(&mut client, request).await.expect("answers");
    assert_eq!(answer.finished.reason(), pb::FinishReason::Length);
    assert_eq!(answer.token_ids.len(), 64);
    assert!(!answer.text().contains("<|im_end|>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drawn_seed_is_returned_and_reproduces_the_answer() {
    let (_service, mut client) = serve().await;
    let prompt = golden("plain").prompt;
    let warm = |seed| pb::GenerateRequest {
        sampling: Some(pb::Sampling { temperature: Some(1.0), seed, ..Default::default() }),
        ..greedy(&prompt, 24)
    };
    let drawn = ask(&mut client, warm(None)).await.expect("answers");
    let again = ask(&mut client, warm(Some(drawn.summary.seed))).await.expect("answers");
    assert_eq!(drawn.token_ids, again.token_ids);
    let other = ask(&mut client, warm(Some(drawn.summary.seed.wrapping_add(1)))).await.expect("answers");
    assert_ne!(drawn.token_ids, other.token_ids);
    let accepted = drawn.accepted.sampling.expect("effective parameters");
    assert_eq!((accepted.temperature, accepted.seed), (Some(1.0), Some(drawn.summary.seed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_disconnect_cancels_the_request() {
    let (service, mut client) = serve().await;
    let mut request = greedy(&golden("plain").prompt, 4000);
    request.stop.get_or_insert_default().ignore_eos = true;
    let mut stream = client.generate(request).await.expect("accepted").into_inner();
    for _ in 0..5 {
        stream.message().await.expect("streams").expect("more");
    }
    assert_eq!(service.engine.gauges().running, 1);
    drop(stream);
    wait_until("the engine is idle", || service.engine.gauges().running == 0).await;
    let tokens = service.engine.gauges().tokens;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(service.engine.gauges().tokens, tokens, "no further tokens");
    assert!(tokens < 1000, "{tokens} tokens after the cancellation");
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 10 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_get_their_single_client_answers() {
    let (_service, client) = serve().await;
    let asked = goldens().into_iter().take(4).map(|golden| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let answer = ask(&mut client, greedy(&golden.prompt, 64)).await.expect("answers");
            assert_eq!(answer.token_ids, golden.greedy_ids, "{}", golden.id);
        })
    });
    for answer in asked.collect::<Vec<_>>() {
        answer.await.expect("as alone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_name_their_field_and_a_valid_one_succeeds() {
    let (_service, mut client) = serve().await;
    let sampling = |sampling| pb::GenerateRequest { sampling: Some(sampling), ..greedy("Hi", 1) };
    let stop = |stop| pb::GenerateRequest { stop: Some(stop), ..greedy("Hi", 1) };
    let ids = |ids| pb::GenerateRequest { input: Some(Input::TokenIds(pb::TokenIds { ids })), ..greedy("", 1) };
    let cases = [
        (sampling(pb::Sampling { temperature: Some(-1.0), ..Default::default() }), "sampling.temperature"),
        (sampling(pb::Sampling { temperature: Some(f32::NAN), ..Default::default() }), "sampling.temperature"),
        (sampling(pb::Sampling { top_p: Some(0.0), ..Default::default() }), "sampling.top_p"),
        (sampling(pb::Sampling { min_p: Some(1.5), ..Default::default() }), "sampling.min_p"),
        (sampling(pb::Sampling { repetition_penalty: Some(0.0), ..Default::default() }), "sampling.repetition_penalty"),
        (stop(pb::Stop { max_new_tokens: Some(0), ..Default::default() }), "stop.max_new_tokens"),
        (stop(pb::Stop { stop_strings: vec![String::new()], ..Default::default() }), "stop.stop_strings[0]"),
        (ids(vec![1, 1_000_000]), "token_ids.ids[1]"),
        (ids(vec![]), "token_ids.ids"),
        (greedy("", 1), "prompt"),
        (pb::GenerateRequest { input: None, ..greedy("", 1) }, "input"),
    ];
    let mut messages = Vec::new();
    for (request, field) in cases {
        let status = ask(&mut client, request).await.expect_err(field);
        let failure = failed(&status);
        let expected = (Code::InvalidArgument, "INVALID_REQUEST", Some(field));
        assert_eq!((failure.code, failure.reason.as_str(), failure.field.as_deref()), expected);
        messages.push(status.message().to_owned());
    }
    error_texts::check_rows("generate/bad-request", messages);
    ask(&mut client, greedy("Hi", 1)).await.expect("lives on");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_requests_name_their_reason() {
    let (_service, mut client) = serve().await;
    let mut check = async |request, code, reason: &str| {
        let status = ask(&mut client, request).await.expect_err(reason);
        let failure = failed(&status);
        assert_eq!((failure.code, failure.reason.as_str()), (code, reason));
        error_texts::check(&format!("generate/{reason}"), status.message());
    };
    let unknown = pb::GenerateRequest { model: "x".to_owned(), ..greedy("Hi", 1) };
    check(unknown, Code::NotFound, "MODEL_NOT_FOUND").await;
    let skewed = pb::GenerateRequest { expected_tokenizer_sha256: Some("00".to_owned()), ..greedy("Hi", 1) };
    check(skewed, Code::FailedPrecondition, "TOKENIZER_MISMATCH").await;
    let long =
        pb::GenerateRequest { input: Some(Input::TokenIds(pb::TokenIds { ids: vec![1; 9000] })), ..greedy("", 1) };
    check(long, Code::InvalidArgument, "PROMPT_TOO_LONG").await;
    // Refused by its bytes, before it is tokenized.
    let large = ask(&mut client, greedy(&" ".repeat(5_000_000), 1)).await.expect_err("it cannot fit");
    assert_eq!(failed(&large).reason, "PROMPT_TOO_LONG");
    error_texts::check("generate/prompt-bytes", large.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_a_running_request_with_finish_reason_deadline() {
    let (_service, mut client) = serve().await;
    let mut request = greedy(&golden("plain").prompt, 4000);
    request.stop.get_or_insert_default().ignore_eos = true;
    let mut request = tonic::Request::new(request);
    // The client's own timer is not set, so the server's deadline ends the stream.
    request.metadata_mut().insert("grpc-timeout", "2S".parse().expect("a value"));
    let mut stream = client.generate(request).await.expect("accepted").into_inner();
    let mut finished = None;
    while let Some(response) = stream.message().await.expect("ends in order") {
        if let Some(Event::Finished(end)) = response.event {
            finished = Some(end.reason());
        }
    }
    assert_eq!(finished, Some(pb::FinishReason::Deadline));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_logprobs_equal_prompt_logprobs_of_the_same_tokens() {
    let (service, mut client) = serve().await;
    let golden = &goldens()[0];
    let mut request = greedy(&golden.prompt, 12);
    request.return_options = Some(pb::ReturnOptions { token_ids: true, logprobs: Some(3), ..Default::default() });
    let answer = ask(&mut client, request.clone()).await.expect("answers");
    let ids = |tokens: &[pb::TokenInfo]| tokens.iter().map(|token| token.id).collect::<Vec<_>>();
    assert_eq!((&ids(&answer.tokens), &answer.token_ids[..]), (&answer.token_ids, &golden.greedy_ids[..12]));
    for token in &answer.tokens {
        let likeliest = &token.top_logprobs[0];
        assert_eq!((likeliest.id, likeliest.logprob, &likeliest.bytes), (token.id, token.logprob, &token.bytes));
        assert!(token.top_logprobs.is_sorted_by(|a, b| a.logprob >= b.logprob) && token.top_logprobs.len() == 3);
        assert_eq!(service.tokenizer.token_bytes(token.id), Some(&token.bytes[..]));
    }
    let whole = [golden.prompt_ids.clone(), answer.token_ids.clone()].concat();
    request.input = Some(Input::TokenIds(pb::TokenIds { ids: whole.clone() }));
    request.return_options = Some(pb::ReturnOptions { prompt_logprobs: Some(3), ..Default::default() });
    for _ in 0..2 {
        let scored = ask(&mut client, request.clone()).await.expect("answers");
        assert_eq!(ids(&scored.prompt_logprobs), whole[1..], "every token but the first, cached or not");
        assert!(scored.tokens.is_empty() && scored.token_ids.is_empty());
        for (found, expected) in scored.prompt_logprobs[golden.prompt_ids.len() - 1..].iter().zip(&answer.tokens) {
            assert!((found.logprob - expected.logprob).abs() < 1e-3, "{found:?}, not {expected:?}");
            assert_eq!(found.top_logprobs[0].id, expected.top_logprobs[0].id);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_has_at_least_min_new_tokens() {
    let (_service, mut client) = serve().await;
    let short = goldens().into_iter().find(|golden| golden.greedy_ids.last() == Some(&2)).expect("a short answer");
    let least = short.greedy_ids.len() as u32 + 5;
    let mut request = greedy(&short.prompt, 64);
    request.stop.get_or_insert_default().min_new_tokens = least;
    let answer = ask(&mut client, request).await.expect("answers");
    assert!(answer.token_ids.len() >= least as usize);
    assert!(!answer.token_ids[..least as usize].contains(&2));
    assert_eq!(answer.token_ids[..short.greedy_ids.len() - 1], short.greedy_ids[..short.greedy_ids.len() - 1]);
}

#[tokio::test]
async fn reasoning_is_separated_and_left_out_of_extracted_text() {
    let (_server, mut client) = serve().await;
    let golden = golden("plain");
    let plain = ask(&mut client, greedy(&golden.prompt, 40)).await.expect("answers");
    assert!(plain.reasoning.is_empty() && plain.bytes.is_empty() && plain.finished.extracted_text.is_none());
    // Any two tokens can be markers.
    let ids = &plain.token_ids;
    let until = ids.iter().skip(1).position(|&id| id != ids[0]).expect("another token") + 1;
    let mut request = greedy(&golden.prompt, 40);
    request.output_spec = Some(pb::OutputSpec {
        eos_token_ids: vec![2],
        reasoning: Some(marker_ids(&[ids[0]], &[ids[until]])),
        extraction: Some(pb::ExtractionRules { strip_reasoning: true, ..Default::default() }),
        ..Default::default()
    });
    request.return_options = Some(pb::ReturnOptions { bytes: true, extracted_text: true, ..Default::default() });
    let answer = ask(&mut client, request.clone()).await.expect("answers");
    assert_eq!(answer.text(), plain.text());
    assert_eq!(answer.bytes, plain.text().as_bytes());
    assert!(!answer.reasoning.is_empty() && plain.text().starts_with(&answer.reasoning), "{}", answer.reasoning);
    let extracted = answer.finished.extracted_text.expect("requested");
    assert!(plain.text().ends_with(&extracted) && extracted.len() + answer.reasoning.len() <= plain.text().len());

    let spec = request.output_spec.as_mut().expect("set");
    spec.reasoning = Some(marker_ids(&[5], &[4, 5]));
    let start_as_end = refused(&mut client, request).await;
    check_refused("generate/start-as-end", [start_as_end], ["output_spec.reasoning.end_token_ids[1]"]);
}

fn marker_ids(start: &[u32], end: &[u32]) -> pb::ReasoningMarkers {
    let (start_token_ids, end_token_ids) = (start.to_vec(), end.to_vec());
    pb::ReasoningMarkers { start_token_ids, end_token_ids, ..Default::default() }
}

fn marker_strings(start: &[&str], end: &[&str]) -> pb::ReasoningMarkers {
    let list = |strings: &[&str]| strings.iter().map(|&string| string.to_owned()).collect();
    pb::ReasoningMarkers { start_strings: list(start), end_strings: list(end), ..Default::default() }
}

/// The tokens of an output, and the text of each token in parts. Each part has a reasoning flag.
#[derive(Debug, Default)]
struct Parts {
    ids: Vec<u32>,
    of_tokens: Vec<Vec<(bool, String)>>,
    extracted: Option<String>,
}

async fn parts(client: &mut Client, request: pb::GenerateRequest, output: u32) -> Parts {
    let mut stream = client.generate(request).await.expect("accepted").into_inner();
    let (mut parts, mut of_token) = (Parts::default(), Vec::new());
    while let Some(response) = stream.message().await.expect("streams") {
        match response.event.expect("an event") {
            Event::Delta(delta) if delta.output_index == output => {
                of_token.push((delta.reasoning, delta.text));
                if let [id] = delta.token_ids[..] {
                    parts.ids.push(id);
                    parts.of_tokens.push(std::mem::take(&mut of_token));
                }
            }
            Event::Finished(finished) if finished.output_index == output => parts.extracted = finished.extracted_text,
            _ => {}
        }
    }
    assert_eq!(of_token, [], "the last delta of a token has its id");
    parts
}

/// Joins adjacent parts with the same flag.
fn merged(parts: impl IntoIterator<Item = (bool, String)>) -> Vec<(bool, String)> {
    let mut merged: Vec<(bool, String)> = Vec::new();
    for (reasoning, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
        match merged.last_mut() {
            Some(last) if last.0 == reasoning => last.1 += &text,
            _ => merged.push((reasoning, text)),
        }
    }
    merged
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_token_markers_separate_reasoning_in_resumed_outputs() {
    let (service, mut client) = serve().await;
    let golden = &goldens()[0];
    let text_of = |tokens: usize| service.tokenizer.decode(&golden.greedy_ids[..tokens], true).expect("text");
    let text = text_of(40);
    // The text from the middle of one token to the middle of the third token after it.
    let marker = |from: usize| &text[text_of(from).len() - 1..text_of(from + 3).len() + 1];
    let (start, end) = (marker(8), marker(20));
    let mut request = greedy(&golden.prompt, 40);
    request.sampling.get_or_insert_default().n = Some(2);
    request.output_spec = Some(pb::OutputSpec {
        reasoning: Some(marker_strings(&["never said", start], &[end])),
        extraction: Some(pb::ExtractionRules { strip_reasoning: true, ..Default::default() }),
        ..Default::default()
    });
    request.return_options = Some(pb::ReturnOptions { token_ids: true, extracted_text: true, ..Default::default() });

    let (before, rest) = text.split_once(start).expect("it is there");
    let (inside, after) = rest.split_once(end).expect("it is there");
    let expected = [(false, before.to_owned()), (true, format!("{start}{inside}{end}")), (false, after.to_owned())];
    for output in 0..2 {
        let whole = parts(&mut client, request.clone(), output).await;
        assert_eq!(merged(whole.of_tokens.concat()), expected, "output {output}");
        assert_eq!(whole.extracted.as_deref(), Some(format!("{before}{after}").trim()));
        for cut in (7..13).chain(19..25) {
            let resumed = resumed(&request, &golden.prompt_ids, &whole.ids[..cut], output);
            let rest = parts(&mut client, resumed, output).await;
            let all = [whole.of_tokens[..cut].concat(), rest.of_tokens.concat()].concat();
            assert_eq!(merged(all), expected, "cut at {cut}");
            assert_eq!(rest.extracted, whole.extracted, "cut at {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_ending_with_a_start_marker_starts_in_reasoning() {
    let (_service, mut client) = serve().await;
    let mut request = greedy(&(golden("plain").prompt + "<think>\n"), 8);
    let plain = ask(&mut client, request.clone()).await.expect("answers");
    let markers = marker_strings(&["<think>"], &["</think>"]);
    request.output_spec = Some(pb::OutputSpec { reasoning: Some(markers), ..Default::default() });
    let answer = ask(&mut client, request).await.expect("answers");
    assert_eq!((&answer.reasoning, &answer.text()), (&plain.text(), &plain.text()));
}

#[tokio::test]
async fn out_of_range_output_spec_field_is_named_in_the_error() {
    let (_service, mut client) = serve().await;
    let with = |change: &dyn Fn(&mut pb::OutputSpec)| {
        let mut spec = pb::OutputSpec::default();
        change(&mut spec);
        pb::GenerateRequest { output_spec: Some(spec), ..greedy("Hi", 1) }
    };
    let reasoning = |markers: pb::ReasoningMarkers| with(&|spec| spec.reasoning = Some(markers.clone()));
    let class = |token_ids| pb::SpecialTokenClass { token_ids, ..Default::default() };
    let (long, just) = ("x".repeat(65), "x".repeat(64));
    let cases = [
        (with(&|spec| spec.eos_token_ids = vec![2, 49_152]), "eos_token_ids[1]"),
        (
            with(&|spec| spec.special_token_classes = vec![class(vec![1]), class(vec![3, 4, 49_152])]),
            "special_token_classes[1].token_ids[2]",
        ),
        (reasoning(marker_ids(&[49_152], &[])), "reasoning.start_token_ids[0]"),
        (reasoning(marker_ids(&[3], &[4, u32::MAX])), "reasoning.end_token_ids[1]"),
        (reasoning(marker_strings(&[""], &[])), "reasoning.start_strings[0]"),
        (reasoning(marker_strings(&[&just], &["a", &long])), "reasoning.end_strings[1]"),
        (reasoning(marker_strings(&["a"; 17], &[])), "reasoning.start_strings"),
        (reasoning(marker_strings(&[], &["a"; 17])), "reasoning.end_strings"),
        (reasoning(marker_strings(&["a", "b"], &["c", "b"])), "reasoning.end_strings[1]"),
    ];
    let mut messages = Vec::new();
    for (request, field) in cases {
        let (found, message) = refused(&mut client, request).await;
        assert_eq!(found, format!("output_spec.{field}"));
        messages.push(message);
    }
    error_texts::check_rows("generate/output-spec", messages);
    let most = ["a"; 16];
    ask(&mut client, reasoning(marker_strings(&most, &[&just]))).await.expect("as many and as long as allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_spec_without_eos_ids_uses_the_model_eos_ids() {
    let (_service, mut client) = serve().await;
    let ended = goldens().into_iter().find(|golden| golden.greedy_ids.last() == Some(&2)).expect("a short answer");
    let spec = |eos_token_ids| Some(pb::OutputSpec { eos_token_ids, ..Default::default() });
    let mut request = pb::GenerateRequest { output_spec: spec(vec![]), ..greedy(&ended.prompt, 64) };
    let answer = ask(&mut client, request.clone()).await.expect("answers");
    assert_eq!(answer.finished.matched, Some(Matched::StopTokenId(2)));
    assert_eq!(answer.accepted.stop.clone().expect("set").stop_token_ids, [2]);
    request.stop.get_or_insert_default().ignore_eos = true;
    let answer = ask(&mut client, request.clone()).await.expect("answers");
    assert_eq!(answer.finished.reason(), pb::FinishReason::Length);
    assert!(!answer.text().contains("<|im_end|>"), "it leaves no text");
    // The request's ids replace the model's.
    request.stop.get_or_insert_default().ignore_eos = false;
    request.output_spec = spec(vec![5]);
    let answer = ask(&mut client, request).await.expect("answers");
    assert_eq!(answer.accepted.stop.expect("set").stop_token_ids, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn eos_id_forced_by_logit_bias_ends_the_output() {
    let (_service, mut client) = serve().await;
    // A text token, a special token, and the model's own eos.
    for (id, temperature) in [(300, 0.0), (300, 1.5), (7, 0.0), (2, 1.0)] {
        let mut request = greedy(&golden("plain").prompt, 8);
        let logit_bias = [(id, 100.0)].into();
        request.sampling =
            Some(pb::Sampling { temperature: Some(temperature), seed: Some(1), logit_bias, ..Default::default() });
        request.stop.get_or_insert_default().min_new_tokens = 0;
        request.output_spec = Some(pb::OutputSpec { eos_token_ids: vec![id], ..Default::default() });
        let answer = ask(&mut client, request).await.expect("answers");
        assert_eq!(answer.finished.reason(), pb::FinishReason::Stop, "{id} at {temperature}");
        assert_eq!(answer.finished.matched, Some(Matched::StopTokenId(id)));
        assert_eq!((answer.token_ids, answer.deltas.concat()), (vec![id], String::new()));
    }
}

#[tokio::test]
async fn include_stop_shows_the_request_stop_string() {
    let (_server, mut client) = serve().await;
    let golden = golden("plain");
    let plain = ask(&mut client, greedy(&golden.prompt, 40)).await.expect("answers");
    let words: Vec<&str> = plain.deltas.iter().map(String::as_str).filter(|text| text.len() > 3).collect();
    let stop_string = words[2].to_owned();
    let mut request = greedy(&golden.prompt, 40);
    request.stop = Some(pb::Stop { stop_strings: vec![stop_string.clone()], ..request.stop.expect("set") });
    let without = ask(&mut client, request.clone()).await.expect("answers");
    request.stop.as_mut().expect("set").include_stop = true;
    let with = ask(&mut client, request.clone()).await.expect("answers");
    assert_eq!(with.text(), without.text() + &stop_string);
    assert!(with.accepted.stop.expect("set").include_stop);
    // The stop string is not included if it also ends the model's turn.
    request.output_spec = Some(pb::OutputSpec { stop_strings: vec![stop_string], ..Default::default() });
    assert_eq!(ask(&mut client, request).await.expect("answers").text(), without.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_resumes_on_another_service_unchanged() {
    let ((_here, mut client), (_there, mut elsewhere)) = (serve().await, serve().await);
    let Resumed { request, prompt, whole } = check_resumes(&mut client, &mut elsewhere, &[1, 7, 20, 31]).await;
    let mut ended = resumed(&request, &prompt, &whole.ids, 2);
    let has_ended = refused(&mut client, ended.clone()).await;
    ended.stop = Some(pb::Stop { max_new_tokens: Some(whole.ids.len() as u32), ..Default::default() });
    let no_tokens_left = refused(&mut client, ended).await;
    let text = pb::GenerateRequest { resume: resumed(&request, &prompt, &[1], 0).resume, ..greedy("Hi", 2) };
    let text = refused(&mut client, text).await;
    let no_prompt = refused(&mut client, resumed(&request, &[], &[1, 2], 0)).await;
    let output = refused(&mut client, resumed(&request, &prompt, &[1], 16)).await;
    let tokens = "resume.generated_tokens";
    let fields = [tokens, tokens, "resume", tokens, "resume.output_index"];
    check_refused("generate/resume", [has_ended, no_tokens_left, text, no_prompt, output], fields);
}

/// Returns the field and the message of a rejected request.
async fn refused(client: &mut Client, request: pb::GenerateRequest) -> (String, String) {
    let status = ask(client, request).await.expect_err("the request is invalid");
    (failed(&status).field.expect("an invalid request names a field"), status.message().to_owned())
}

/// Checks the field of each rejected request, and the messages.
fn check_refused<const N: usize>(case: &str, refused: [(String, String); N], fields: [&str; N]) {
    assert_eq!(refused.each_ref().map(|(field, _)| field.as_str()), fields);
    error_texts::check_rows(case, refused.map(|(_, message)| message));
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_output_follows_its_grammar() {
    let (_service, mut client) = serve().await;
    let Resumed { request, prompt, whole } = check_resumes_with_a_grammar(&mut client).await;
    let other = refused(&mut client, resumed(&request, &prompt, &[2_000], 0)).await;
    let has_ended = refused(&mut client, resumed(&request, &prompt, &whole.ids, 0)).await;

    // Every token after this one takes longer than the token before.
    let hard = pb::grammar::Kind::Lark("start: x\nx: \" a\" | x x".to_owned());
    let hard =
        pb::GenerateRequest { grammar: Some(pb::Grammar { kind: Some(hard), ..pb::Grammar::default() }), ..request };
    let id = default_artifacts().tokenizer().expect("one").encode(" a", false).expect("encodes")[0];
    let mut many = resumed(&hard, &prompt, &vec![id; 3_000], 0);
    many.stop = None;
    let too_many = refused(&mut client, many).await;
    check_refused("generate/resume-grammar", [other, has_ended, too_many], ["resume.generated_tokens"; 3]);
}

#[tokio::test]
async fn hf_messages_are_rejected_without_image_support() {
    let (_service, mut client) = serve().await;
    let input = Some(Input::HfMessagesJson("[]".to_owned()));
    let result = ask(&mut client, pb::GenerateRequest { input, ..greedy("", 1) }).await.map(drop);
    is_failed("generate/images", result, Code::FailedPrecondition, "IMAGES_NOT_SUPPORTED", None);
}
