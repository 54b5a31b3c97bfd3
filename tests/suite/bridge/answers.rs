//! Answers through the bridge, compared with gen-svc's on the same file.

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::grammar::Kind;
use tandem_common::pb::generate::v1::{Choice, FinishReason, GenerateRequest, Grammar, ReturnOptions, Sampling, Stop};
use tandem_tests::{Generation, default_artifacts, goldens};
use tonic::transport::Channel;

use tandem_tests::llama::Llama;

use super::engines::{Output, asking, bridge, client, generate, greedy};
use super::grammars::grammars_of_every_kind_bind;

/// The largest difference of log-probabilities of two tokens of which either may be the likeliest: the two engines
/// round differently.
const NEAR_TIE: f32 = 0.3;

/// The tokens of an output that are compared.
const COUNT: u32 = 24;

/// Returns the difference of log-probabilities between the likeliest token after these ids and another one.
async fn gap(client: &mut GenerateServiceClient<Channel>, ids: &[u32], other: u32) -> f32 {
    let options = ReturnOptions { token_ids: true, logprobs: Some(20), ..ReturnOptions::default() };
    let request = GenerateRequest { return_options: Some(options), ..greedy(ids, 1) };
    let (outputs, _) = generate(client, request).await.expect("an answer");
    let top = &outputs[0].tokens[0].top_logprobs;
    let other = top.iter().find(|token| token.id == other).expect("one of the likeliest");
    top[0].logprob - other.logprob
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_ids_are_the_engines_and_gen_svcs_up_to_near_ties() {
    let (llama, generation) = (Llama::start(1), Generation::start().await);
    let process = bridge(&llama, &[]);
    let mut bridged = client(&process).await;
    let mut own = GenerateServiceClient::new(generation.running.channel().await);
    let mut prompts: Vec<Vec<u32>> = goldens().into_iter().take(8).map(|golden| golden.prompt_ids).collect();
    prompts.extend(["Repeat exactly: 🌍 👩‍👩‍👧 é 漢字 🏳️‍🌈", "Write five emoji of animals."].map(|text| {
        let prompt = format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
        generation.tokenizer.encode(&prompt, false).expect("ids")
    }));
    let (mut equal, count) = (0, prompts.len());
    for prompt in prompts {
        // With a salt, the server does not use its cache, so that it computes the same batches twice.
        let request = GenerateRequest { cache_salt: "own".to_owned(), ..greedy(&prompt, COUNT) };
        let (theirs, _) = generate(&mut bridged, request).await.expect("the bridge answers");
        assert_eq!(theirs[0].ids, llama.greedy(&prompt, COUNT), "the bridge loses no id");
        let (ours, _) = generate(&mut own, greedy(&prompt, COUNT)).await.expect("gen-svc answers");
        let (theirs, ours) = (&theirs[0], &ours[0]);
        if theirs == ours {
            equal += 1;
            continue;
        }
        let at = theirs.ids.iter().zip(&ours.ids).take_while(|(one, other)| one == other).count();
        let other = *theirs.ids.get(at).expect("both outputs have another token here");
        let gap = gap(&mut own, &[prompt.as_slice(), &ours.ids[..at]].concat(), other).await;
        assert!(gap < NEAR_TIE, "a gap of {gap} after {at} tokens: {theirs:?} {ours:?}");
    }
    assert!(equal * 4 > count, "{equal} of {count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_limits_and_reports_are_those_of_the_contract() {
    let llama = Llama::start(2);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let whole = asking("What is the capital of France?", 30);
    let (outputs, usage) = generate(&mut client, whole.clone()).await.expect("an answer");
    assert_eq!(outputs[0].text, "The capital of France is Paris.");
    assert_eq!(outputs[0].matched, Some(Matched::StopTokenId(2)));
    assert_eq!(usage.completion_tokens as usize, outputs[0].ids.len());

    let with_stop = |stop: Stop| GenerateRequest { stop: Some(stop), ..whole.clone() };
    let stop = Stop { max_new_tokens: Some(30), stop_strings: vec!["Par".to_owned()], ..Stop::default() };
    let (stopped, _) = generate(&mut client, with_stop(stop)).await.expect("an answer");
    assert_eq!(stopped[0].text, "The capital of France is ");
    assert_eq!(stopped[0].matched, Some(Matched::StopString("Par".to_owned())));

    let stop = Stop { max_new_tokens: Some(30), stop_token_ids: vec![outputs[0].ids[2]], ..Stop::default() };
    let (stopped, _) = generate(&mut client, with_stop(stop)).await.expect("an answer");
    assert_eq!(stopped[0].ids, outputs[0].ids[..3]);

    let longer = Stop { max_new_tokens: Some(20), min_new_tokens: 15, ..Stop::default() };
    let (longer, _) = generate(&mut client, with_stop(longer)).await.expect("an answer");
    assert!(longer[0].ids.len() >= 15, "{longer:?}");
    assert!(!longer[0].ids[..15].contains(&2), "no end before the minimum: {longer:?}");

    let ignoring = Stop { max_new_tokens: Some(20), ignore_eos: true, ..Stop::default() };
    let (ignoring, _) = generate(&mut client, with_stop(ignoring)).await.expect("an answer");
    assert_eq!((ignoring[0].ids.len(), ignoring[0].reason), (20, FinishReason::Length));
    assert_eq!(ignoring[0].ids[..8], outputs[0].ids[..8], "the end is an ordinary token");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probabilities_are_of_every_token_inside_characters_too() {
    let (llama, generation) = (Llama::start(1), Generation::start().await);
    let process = bridge(&llama, &[]);
    let mut bridged = client(&process).await;
    let mut own = GenerateServiceClient::new(generation.running.channel().await);
    let options = ReturnOptions { token_ids: true, logprobs: Some(3), ..ReturnOptions::default() };
    let free = |count| asking("Repeat exactly: 🌍 👩‍👩‍👧", count);
    let choice = Some(Kind::Choice(Choice { values: vec!["🌍🌍".to_owned()] }));
    let grammar = Some(Grammar { kind: choice, ..Grammar::default() });
    let forced = |count| GenerateRequest { grammar: grammar.clone(), ..free(count) };
    let tokenizer = default_artifacts().tokenizer().expect("a tokenizer");
    // Bytes that start no character, then one that does.
    let token = |bytes: &[u8]| (0..49_152).find(|id| tokenizer.token_bytes(*id) == Some(bytes)).expect("a token");
    let biased = |byte: u8| {
        let logit_bias = [(token(&[byte]), 100.0)].into();
        let sampling = Sampling { temperature: Some(0.0), logit_bias, ..Sampling::default() };
        GenerateRequest { sampling: Some(sampling), ..free(6) }
    };
    for request in [free(12), forced(12), forced(2), biased(0x80), biased(0xf0)] {
        let request = GenerateRequest { return_options: Some(options), ..request };
        let (theirs, _) = generate(&mut bridged, request.clone()).await.expect("an answer");
        let (ours, _) = generate(&mut own, request).await.expect("an answer");
        assert_eq!(theirs[0].ids, ours[0].ids);
        assert_eq!(theirs[0].text, ours[0].text);
        for (one, other) in theirs[0].tokens.iter().zip(&ours[0].tokens) {
            assert_eq!((one.id, &one.bytes, one.top_logprobs.len()), (other.id, &other.bytes, 3));
            // Unlikely tokens differ more.
            let most = NEAR_TIE.max(other.logprob.abs() / 10.0);
            assert!((one.logprob - other.logprob).abs() < most, "{one:?} {other:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_reproduces_outputs_that_differ_from_one_another() {
    let llama = Llama::start(2);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let sampling = Sampling { temperature: Some(1.0), n: Some(3), seed: Some(7), ..Sampling::default() };
    let request = GenerateRequest { sampling: Some(sampling), ..asking("Write a story.", 16) };
    let (first, usage) = generate(&mut client, request.clone()).await.expect("an answer");
    let (second, _) = generate(&mut client, request).await.expect("an answer");
    let ids = |outputs: &[Output]| outputs.iter().map(|output| output.ids.clone()).collect::<Vec<_>>();
    assert_eq!(usage.completion_tokens as usize, ids(&first).concat().len());
    assert_ne!(first[0].ids, first[1].ids);
    assert_ne!(first[1].ids, first[2].ids);
    assert_eq!(ids(&first)[0], ids(&second)[0], "the first output runs alone until it has a token");
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_bind_the_output() {
    let llama = Llama::start(1);
    let process = bridge(&llama, &[]);
    grammars_of_every_kind_bind(&mut client(&process).await).await;
}
