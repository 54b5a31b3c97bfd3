//! Grammars through the bridge, for any engine with the default model.

use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::grammar::Kind;
use tandem_common::pb::generate::v1::{Choice, FinishReason, GenerateRequest, Grammar, Whitespace};
use tonic::transport::Channel;

use super::engines::{asking, generate};

/// Checks grammars of every kind, with characters that some engines take for another notation.
pub(super) async fn grammars_of_every_kind_bind(client: &mut GenerateServiceClient<Channel>) {
    let with = |grammar| GenerateRequest { grammar: Some(grammar), ..asking("Describe a person.", 80) };
    let of = |kind| Grammar { kind: Some(kind), ..Grammar::default() };
    let schema = r#"{"type": "object", "properties": {"a::=": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
        "required": ["a::=", "age"], "additionalProperties": false}"#;
    for (whitespace, has_space) in [(Whitespace::Unspecified, true), (Whitespace::None, false)] {
        let grammar = Grammar { whitespace: whitespace.into(), ..of(Kind::JsonSchema(schema.to_owned())) };
        let (json, _) = generate(client, with(grammar)).await.expect("an answer");
        let value: serde_json::Value = serde_json::from_str(&json[0].text).expect("JSON");
        assert!(value["a::="].is_string() && value["age"].is_i64() && json[0].reason == FinishReason::Stop, "{json:?}");
        assert!(has_space || json[0].text.contains(r#","age":"#), "{json:?}");
    }
    let (number, _) = generate(client, with(of(Kind::Regex("[0-9]{3}/::=[a-c]".to_owned())))).await.expect("an answer");
    let text = &number[0].text;
    assert!(text.len() == 8 && text[3..7] == *"/::=" && text[..3].parse::<u32>().is_ok(), "{text}");
    let whole = Kind::Choice(Choice { values: vec!["so".to_owned()] });
    let (whole, usage) = generate(client, with(of(whole))).await.expect("an answer");
    assert_eq!((whole[0].text.as_str(), usage.completion_tokens as usize), ("so", whole[0].ids.len()));
    assert!(!whole[0].ids.contains(&2), "a complete text needs no end token: {whole:?}");
    let lark = "start: \"a::=\" /b{2}\\/::=/".to_owned();
    let (lark, _) = generate(client, with(of(Kind::Lark(lark)))).await.expect("an answer");
    assert_eq!(lark[0].text, "a::=bb/::=");
    let values = ["a \"quoted\" \\ text\nof two lines", "🌍 and é"].map(str::to_owned);
    let choice = Kind::Choice(Choice { values: values.to_vec() });
    let (chosen, _) = generate(client, with(of(choice))).await.expect("an answer");
    assert!(values.contains(&chosen[0].text), "{chosen:?}");
}
