//! Outputs that are resumed after some of their tokens.

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::files::default_artifacts;
use crate::goldens::{Golden, goldens};

type Client = GenerateServiceClient<Channel>;

/// Returns a greedy request that returns token ids.
#[must_use]
pub fn greedy(prompt: &str, max_new_tokens: u32) -> pb::GenerateRequest {
    pb::GenerateRequest {
        input: Some(Input::Prompt(prompt.to_owned())),
        sampling: Some(pb::Sampling { temperature: Some(0.0), ..Default::default() }),
        stop: Some(pb::Stop { max_new_tokens: Some(max_new_tokens), ..Default::default() }),
        return_options: Some(pb::ReturnOptions { token_ids: true, ..Default::default() }),
        ..Default::default()
    }
}

/// An output: its ids, and the text of each.
#[derive(Debug)]
pub struct Collected {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The text that came with each token.
    pub texts: Vec<String>,
    /// The end of the output.
    pub finished: pb::Finished,
    /// The usage of the request.
    pub completion_tokens: u32,
}

impl Collected {
    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.texts.concat()
    }
}

/// Reads one output of a request.
///
/// # Errors
/// The request's.
///
/// # Panics
/// If a text comes without a token.
pub async fn collect(client: &mut Client, request: pb::GenerateRequest, output: u32) -> Result<Collected, Status> {
    let mut stream = client.generate(request).await?.into_inner();
    let mut collected =
        Collected { ids: vec![], texts: vec![], finished: pb::Finished::default(), completion_tokens: 0 };
    let mut text = String::new();
    while let Some(response) = stream.message().await? {
        match response.event.expect("an event") {
            Event::Delta(delta) if delta.output_index == output => {
                text += &delta.text;
                if let [id] = delta.token_ids[..] {
                    collected.ids.push(id);
                    collected.texts.push(std::mem::take(&mut text));
                }
            }
            Event::Finished(finished) if finished.output_index == output => collected.finished = finished,
            Event::Summary(summary) => collected.completion_tokens = summary.usage.expect("set").completion_tokens,
            _ => {}
        }
    }
    assert_eq!(text, "", "every text comes with its token");
    Ok(collected)
}

/// Returns the request that resumes an output after these tokens.
///
/// # Panics
/// If the request has no sampling.
#[must_use]
pub fn resumed(
    request: &pb::GenerateRequest,
    prompt: &[u32],
    before: &[u32],
    output_index: u32,
) -> pb::GenerateRequest {
    let ids = [prompt, before].concat();
    let generated_tokens = before.len() as u32;
    let sampling = pb::Sampling { n: None, ..request.sampling.clone().expect("set") };
    pb::GenerateRequest {
        input: Some(Input::TokenIds(pb::TokenIds { ids })),
        sampling: Some(sampling),
        resume: Some(pb::Resume { generated_tokens, output_index, ..pb::Resume::default() }),
        ..request.clone()
    }
}

/// An output that was resumed.
#[derive(Debug)]
pub struct Resumed {
    /// The request of the whole output.
    pub request: pb::GenerateRequest,
    pub prompt: Vec<u32>,
    /// The whole output.
    pub whole: Collected,
}

fn plain() -> Golden {
    goldens().into_iter().find(|golden| golden.id == "plain").expect("a golden")
}

/// Checks that the third output of a request continues unchanged after each cut, at another client. Each resume has
/// its own part of the prefix cache, so that the tokens before it are computed again.
///
/// # Panics
/// If an output differs.
pub async fn check_resumes(client: &mut Client, elsewhere: &mut Client, cuts: &[usize]) -> Resumed {
    let golden = plain();
    let prompt = default_artifacts().tokenizer().expect("one").encode(&golden.prompt, false).expect("encodes");
    let mut request = greedy(&golden.prompt, 40);
    request.sampling = Some(pb::Sampling {
        temperature: Some(0.9),
        seed: Some(11),
        repetition_penalty: Some(1.1),
        presence_penalty: Some(0.7),
        frequency_penalty: Some(0.4),
        n: Some(3),
        ..Default::default()
    });
    request.stop = Some(pb::Stop { max_new_tokens: Some(40), ignore_eos: true, ..Default::default() });
    let whole = collect(client, request.clone(), 2).await.expect("answers");
    // At some of the cuts, a part of this string is held back.
    let stop_string = whole.texts[30..34].concat();
    request.stop.as_mut().expect("set").stop_strings = vec![stop_string];
    let whole = collect(client, request.clone(), 2).await.expect("answers");
    assert!((30..40).contains(&whole.ids.len()), "{}", whole.ids.len());
    for cut in cuts.iter().copied().chain([whole.ids.len() - 1]) {
        let rest = resumed(&request, &prompt, &whole.ids[..cut], 2);
        let rest = pb::GenerateRequest { cache_salt: format!("after {cut}"), ..rest };
        let rest = collect(elsewhere, rest, 2).await.expect("resumes");
        assert_eq!([&whole.ids[..cut], &rest.ids].concat(), whole.ids, "cut at {cut}");
        assert_eq!(whole.texts[..cut].concat() + &rest.text(), whole.text(), "cut at {cut}");
        assert_eq!(rest.finished, whole.finished);
        assert_eq!(rest.completion_tokens as usize, whole.ids.len());
    }
    Resumed { request, prompt, whole }
}

/// Checks that an output under a grammar continues unchanged.
///
/// # Panics
/// If an output differs.
pub async fn check_resumes_with_a_grammar(client: &mut Client) -> Resumed {
    let golden = plain();
    let prompt = default_artifacts().tokenizer().expect("one").encode(&golden.prompt, false).expect("encodes");
    let kind = pb::grammar::Kind::Regex("[a-e]{3}-[0-9]{6}-[x-z]{4}".to_owned());
    let request = pb::GenerateRequest {
        grammar: Some(pb::Grammar { kind: Some(kind), ..pb::Grammar::default() }),
        ..greedy(&golden.prompt, 40)
    };
    let whole = collect(client, request.clone(), 0).await.expect("answers");
    for cut in [1, whole.ids.len() / 2] {
        let rest = collect(client, resumed(&request, &prompt, &whole.ids[..cut], 0), 0).await.expect("resumes");
        assert_eq!(whole.texts[..cut].concat() + &rest.text(), whole.text());
    }
    Resumed { request, prompt, whole }
}
