//! gen-bridge in front of a server made from SGLang's published schema. SGLang itself did not run.

use std::process::{Command, Stdio};

use tandem_common::pb::generate::v1::finished::Matched;
use tandem_common::pb::generate::v1::grammar::Kind;
use tandem_common::pb::generate::v1::{
    Choice, FinishReason, GenerateRequest, Grammar, ReturnOptions, Sampling, Stop, Whitespace,
};
use tandem_common::process::Service;
use tandem_tests::failure::failed;
use tandem_tests::{Process, default_model, repository};

use super::engines::{asking, client, generate};

/// Starts the server. In the mode `cumulative`, each event repeats all tokens.
fn server(mode: &str) -> Service {
    let mut command = Command::new(repository().join(".tandem/engines/bin/python"));
    command.arg(repository().join("tests/suite/bridge/sglang_schema.py")).arg(default_model()).arg(mode);
    Service::start("sglang-schema", command.stderr(Stdio::null()))
        .expect("it starts; `cargo xtask test` installs Python")
}

fn bridge(server: &Service) -> Process {
    let (url, model) = (format!("http://{}", server.address()), default_model().display().to_string());
    Process::start("127.0.0.1:0", &["gen-bridge", "--engine", "sglang", "--engine-url", &url, "--model", &model])
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_published_schema_are_read_in_both_modes() {
    for mode in ["incremental", "cumulative"] {
        let server = server(mode);
        let process = bridge(&server);
        let mut client = client(&process).await;
        let options = ReturnOptions { token_ids: true, logprobs: Some(2), ..ReturnOptions::default() };
        let request = GenerateRequest { return_options: Some(options), ..asking("What is the capital of France?", 30) };
        let (outputs, usage) = generate(&mut client, request.clone()).await.expect("an answer");
        let output = &outputs[0];
        assert_eq!(output.text, "The capital of France is Paris.");
        assert_eq!((output.matched.clone(), output.reason), (Some(Matched::StopTokenId(2)), FinishReason::Stop));
        assert_eq!((usage.completion_tokens as usize, output.tokens.len()), (output.ids.len(), output.ids.len()));
        assert!(output.tokens.iter().all(|token| token.logprob <= 0.0 && token.top_logprobs.len() == 2), "{output:?}");

        let longer = Stop { max_new_tokens: Some(20), ignore_eos: true, ..Stop::default() };
        let (longer, _) =
            generate(&mut client, GenerateRequest { stop: Some(longer), ..asking("Hi", 20) }).await.expect("an answer");
        assert_eq!((longer[0].ids.len(), longer[0].reason), (20, FinishReason::Length));

        let with = |kind, whitespace: Whitespace| GenerateRequest {
            grammar: Some(Grammar { kind: Some(kind), whitespace: whitespace.into(), ..Grammar::default() }),
            ..asking("Describe a person.", 60)
        };
        let values = ["a (b) [c] . \\ text\nof two lines", "\u{1f30d} and \u{e9}"].map(str::to_owned);
        let choice = Kind::Choice(Choice { values: values.to_vec() });
        let (chosen, _) = generate(&mut client, with(choice, Whitespace::Unspecified)).await.expect("an answer");
        assert!(values.contains(&chosen[0].text), "{chosen:?}");
        let schema = Kind::JsonSchema("{\"type\": \"boolean\"}".to_owned());
        let (boolean, _) = generate(&mut client, with(schema.clone(), Whitespace::Free)).await.expect("an answer");
        assert!(["true", "false"].contains(&boolean[0].text.trim()), "{boolean:?}");

        let refused = generate(&mut client, with(schema, Whitespace::Unspecified)).await.expect_err("any white space");
        let failure = failed(&refused);
        assert_eq!(
            (failure.reason.as_str(), failure.field.as_deref()),
            ("UNSUPPORTED_BY_ENGINE", Some("grammar.whitespace"))
        );
        let sampling = Sampling { repetition_penalty: Some(3.0), ..Sampling::default() };
        let refused = generate(&mut client, GenerateRequest { sampling: Some(sampling), ..asking("Hi", 2) }).await;
        assert_eq!(failed(&refused.expect_err("too large")).reason, "UNSUPPORTED_BY_ENGINE");
    }
}
