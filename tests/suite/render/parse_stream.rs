//! An answer is read in pieces as it is read whole.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1::parsed_delta::Part;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::render::v1::stream_parse_output_request::Event as Message;
use tandem_common::pb::render::v1::stream_parse_output_response::Event;
use tandem_common::pb::render::v1::{
    OutputTokens, ParseOutputRequest, ParseOutputResponse, ParseOutputStart, StreamParseOutputRequest,
    parse_output_request,
};
use tandem_model_files::tokenizer::Tokenizer;
use tandem_tests::failure::failed;
use tandem_tests::{render_service, repository};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::Channel;

const ANSWER: &str = "<think>größer? 漢字</think>Ja, 🙂.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"ü\"}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
const RULES: &str = "ernie";

fn start() -> ParseOutputStart {
    let rules = Some(RULES.to_owned());
    ParseOutputStart { model: String::new(), prompt: String::new(), tools: Vec::new(), rules }
}

/// The parts of a streamed answer, and the answer.
type Read = (String, String, Vec<(String, String)>, ParseOutputResponse);

async fn read(client: &mut RenderServiceClient<Channel>, messages: Vec<Message>) -> Result<Read, Status> {
    let messages = messages.into_iter().map(|event| StreamParseOutputRequest { event: Some(event) });
    let mut events = client.stream_parse_output(tokio_stream::iter(messages)).await?.into_inner();
    let (mut reasoning, mut content, mut calls) = (String::new(), String::new(), Vec::new());
    let mut finished = None;
    while let Some(event) = events.next().await {
        assert!(finished.is_none(), "an event after the last one");
        match event?.event.expect("an event") {
            Event::Parsed(parsed) => {
                for delta in parsed.deltas {
                    match delta.part.expect("a part") {
                        Part::Reasoning(text) => reasoning.push_str(&text),
                        Part::Content(text) => content.push_str(&text),
                        Part::ToolCall(call) => calls.push((call.name, call.arguments_json)),
                    }
                }
            }
            Event::Finished(response) => finished = Some(response),
        }
    }
    Ok((reasoning, content, calls, finished.expect("the last event")))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_pieces_is_read_as_the_whole() {
    let model = repository().join("tests/contract/model");
    let tokenizer =
        Tokenizer::from_json(&std::fs::read(model.join("tokenizer.json")).expect("a file")).expect("a tokenizer");
    let service = render_service(&[model], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let ids = tokenizer.encode(ANSWER, false).expect("ids");
    let output =
        |output| ParseOutputRequest { output: Some(output), rules: Some(RULES.to_owned()), ..Default::default() };
    let whole = client.parse_output(output(parse_output_request::Output::Text(ANSWER.to_owned()))).await;
    let whole = whole.expect("an answer").into_inner();
    let message = whole.output.as_ref().and_then(|output| output.message.clone()).expect("a message");
    assert_eq!((message.reasoning_content.as_deref(), message.tool_calls.len()), (Some("größer? 漢字"), 2));
    let chars: Vec<char> = ANSWER.chars().collect();
    for size in [1, 2, 3, 7, 1000] {
        let texts = chars.chunks(size).map(|piece| Message::Text(piece.iter().collect()));
        let tokens = ids.chunks(size).map(|ids| Message::Tokens(OutputTokens { token_ids: ids.to_vec() }));
        for pieces in [texts.collect::<Vec<_>>(), tokens.collect()] {
            let messages = [vec![Message::Start(start())], pieces].concat();
            let (reasoning, content, calls, finished) = read(&mut client, messages).await.expect("an answer");
            assert_eq!(finished, whole, "{size}");
            assert_eq!(Some(reasoning), message.reasoning_content, "{size}");
            assert_eq!(Some(chat::chat_message::Content::Text(content)), message.content, "{size}");
            let expected = message.tool_calls.iter().map(|call| (call.name.clone(), call.arguments_json.clone()));
            assert_eq!(calls, expected.collect::<Vec<_>>(), "{size}");
        }
    }
    // More ids than are decoded again, and none of them text.
    let bytes: Vec<Message> = std::iter::once(Message::Start(start()))
        .chain((0..500).map(|_| Message::Tokens(OutputTokens { token_ids: ids[..9].to_vec() })))
        .collect();
    let repeated = tokenizer.decode(&ids[..9].repeat(500), false).expect("text");
    let (_, _, _, finished) = read(&mut client, bytes).await.expect("an answer");
    let whole = client.parse_output(output(parse_output_request::Output::Text(repeated))).await.expect("an answer");
    assert_eq!(finished, whole.into_inner());
}

/// A tokenizer that writes characters as tokens of one byte each.
#[tokio::test(flavor = "multi_thread")]
async fn characters_of_several_tokens_are_whole() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let source = repository().join(".tandem/tokenizers/llama2/tokenizer.json");
    std::fs::copy(&source, folder.path().join("tokenizer.json")).expect("a tokenizer, from `cargo xtask test`");
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0].content }}").expect("a template");
    let tokenizer = Tokenizer::from_json(&std::fs::read(source).expect("a file")).expect("a tokenizer");
    let service = render_service(&[folder.path().to_owned()], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    for text in
        ["ok 𓀀𓀁", "𠮷𠮷 a", "ᚠᛇᚻ", "🇩🇪🇫🇷!", " leading", "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}"]
    {
        let ids = tokenizer.encode(text, false).expect("ids");
        let output = parse_output_request::Output::Tokens(OutputTokens { token_ids: ids.clone() });
        let request = ParseOutputRequest { output: Some(output), rules: Some(RULES.to_owned()), ..Default::default() };
        let whole = client.parse_output(request).await.expect("an answer").into_inner();
        let content =
            |response: &ParseOutputResponse| response.output.clone().and_then(|output| output.message?.content);
        let expected = tokenizer.decode(&ids, false).expect("text").trim().to_owned();
        assert_eq!(content(&whole), Some(chat::chat_message::Content::Text(expected)));
        for size in 1..6 {
            let tokens = ids.chunks(size).map(|ids| Message::Tokens(OutputTokens { token_ids: ids.to_vec() }));
            let messages = std::iter::once(Message::Start(start())).chain(tokens).collect();
            assert_eq!(read(&mut client, messages).await.expect("an answer").3, whole, "{text} in pieces of {size}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_start_or_with_a_wrong_part_is_refused() {
    let service = render_service(&[repository().join("tests/contract/model")], None).await;
    let mut client = RenderServiceClient::new(service.channel().await);
    let text = || Message::Text("a".to_owned());
    let tokens = |id| Message::Tokens(OutputTokens { token_ids: vec![id] });
    let begin = || Message::Start(start());
    let unknown = ParseOutputStart { rules: Some("none".to_owned()), ..start() };
    let large = || Message::Text("a".repeat(3 << 20));
    let cases = [
        (vec![], "INVALID_REQUEST", Some("start")),
        (vec![text()], "INVALID_REQUEST", Some("start")),
        (vec![begin(), begin()], "INVALID_REQUEST", Some("start")),
        (vec![Message::Start(unknown)], "INVALID_REQUEST", Some("start.rules")),
        (vec![begin(), text(), tokens(1)], "INVALID_REQUEST", Some("tokens")),
        (vec![begin(), tokens(1), text()], "INVALID_REQUEST", Some("text")),
        (vec![begin(), tokens(u32::MAX)], "INVALID_REQUEST", Some("tokens.token_ids[0]")),
        (vec![begin(), large(), large(), large(), large()], "TEXT_TOO_LONG", Some("text")),
    ];
    for (messages, reason, field) in cases {
        let failure = failed(&read(&mut client, messages).await.expect_err("a wrong stream"));
        assert_eq!((failure.reason.as_str(), failure.field.as_deref()), (reason, field));
    }
}
