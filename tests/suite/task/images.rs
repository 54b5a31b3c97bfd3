//! Tasks with images: the family whose adapter writes the prompt itself, and damaged images.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gen_svc::load;
use serde_json::json;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::{ReturnOptions, Sampling, Stop, Usage};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::run_task_response::Event as TaskEvent;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_core::answer::Event;
use tandem_core::engine::{Config, DtypeChoice, Engine};
use tandem_core::media::HfMessages;
use tandem_core::request::{GenerateRequest, Input, Returns, SamplingOptions, StopOptions};
use tandem_template::LocalTime;
use tandem_tests::failure::failed;
use tandem_tests_full::image_checkpoint::Goldens;
use tandem_tests_full::image_model::{ImageModel, bitmap};
use tandem_torch::Libtorch;
use tonic::Status;
use tonic::transport::Channel;

use super::failover::{generation_of, serve_with_replicas};

const TOKENS: u32 = 24;

fn picture(number: u64) -> Vec<u8> {
    bitmap(60, 44, number)
}

fn image(bytes: &[u8]) -> chat::block::Kind {
    let source = Some(chat::media_block::Source::Base64(BASE64_STANDARD.encode(bytes)));
    chat::block::Kind::Image(chat::MediaBlock { source, mime_type: "image/bmp".to_owned() })
}

fn text(text: &str) -> chat::block::Kind {
    chat::block::Kind::Text(chat::TextBlock { text: text.to_owned() })
}

fn user(kinds: Vec<chat::block::Kind>) -> chat::ChatMessage {
    let blocks = kinds.into_iter().map(|kind| chat::Block { kind: Some(kind) }).collect();
    let content = Some(chat::chat_message::Content::Blocks(chat::BlockList { blocks }));
    chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() }
}

/// Returns a greedy task.
fn task(messages: Vec<chat::ChatMessage>) -> RunTaskRequest {
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages, ..chat::Conversation::default() }),
        sampling: Some(Sampling { temperature: Some(0.0), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(TOKENS), ignore_eos: true, ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    }
}

/// Returns the tokens and the usage of a task. It may fail before its stream begins.
async fn run(
    client: &mut TaskServiceClient<Channel>,
    messages: Vec<chat::ChatMessage>,
) -> Result<(Vec<u32>, Usage), Status> {
    let mut stream = client.run_task(task(messages)).await?.into_inner();
    let mut tokens = Vec::new();
    while let Some(response) = stream.message().await? {
        match response.event.expect("an event") {
            TaskEvent::Delta(delta) => tokens.extend(delta.token_ids),
            TaskEvent::Finished(finished) => return Ok((tokens, finished.usage.expect("the usage"))),
            _ => {}
        }
    }
    panic!("the stream ended without the end of the task")
}

/// Returns the tokens and the numbers of prompt tokens from messages, a path that is compared with
/// transformers.
fn expected(engine: &Engine, content: serde_json::Value) -> (Vec<u32>, u32) {
    let messages = vec![json!({"role": "user", "content": content})];
    let messages = HfMessages::new(messages, LocalTime::now());
    let request = GenerateRequest {
        sampling: SamplingOptions { temperature: Some(0.0), ..SamplingOptions::default() },
        stop: StopOptions { max_new_tokens: Some(TOKENS), ignore_eos: true, ..StopOptions::default() },
        returns: Returns { logprobs: Some(0), ..Returns::default() },
        ..GenerateRequest::new(Input::HfMessages(Box::new(messages)))
    };
    let prepared = request.prepare(engine.model()).expect("a prompt");
    let (count, mut events) = (prepared.ids.len() as u32, engine.submit(prepared, None).expect("accepted"));
    let mut ids = Vec::new();
    loop {
        match events.blocking_recv().expect("an end") {
            Event::Delta(delta) => ids.extend(delta.tokens.iter().map(|token| token.id)),
            Event::Finished(end) => ids.extend(end.last.tokens.iter().map(|token| token.id)),
            Event::Summary(_) => return (ids, count),
            Event::Accepted(_) | Event::PromptLogprobs(_) => {}
            Event::Refused(error) => panic!("refused: {}", error.chain()),
        }
    }
}

/// The adapter writes the prompt, and its attachments are expanded in token ids.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_gemma_4_with_attachments_have_the_answers_of_its_messages() {
    let folder = Goldens::read().gemma4();
    let config = Config {
        threads: 1,
        dtype: DtypeChoice::F32,
        kv_memory: Some(16 << 20),
        ..Config::new(folder.path().to_owned())
    };
    let engine = load::start(config, &Libtorch).expect("a model").0;
    let replicas = [generation_of(folder.path())];
    let (_service, mut client) = serve_with_replicas(folder.path(), &replicas).await;
    for numbers in [vec![1], vec![2], vec![1, 2], vec![3, 3]] {
        let mut kinds: Vec<_> = numbers.iter().map(|number| image(&picture(*number))).collect();
        let mut content: Vec<_> = (numbers.iter().map(|number| BASE64_STANDARD.encode(picture(*number))))
            .map(|base64| json!({"type": "image", "base64": base64}))
            .collect();
        kinds.push(text("What is red?"));
        content.push(json!({"type": "text", "text": "What is red?"}));
        let (engine, content) = (engine.clone(), content.into());
        let expected = tokio::task::spawn_blocking(move || expected(&engine, content));
        let expected = expected.await.expect("no panic");
        let (ids, usage) = run(&mut client, vec![user(kinds)]).await.expect("an answer");
        assert!(usage.image_tokens > 0 && usage.image_tokens < usage.prompt_tokens, "{usage:?}");
        assert_eq!((ids, usage.prompt_tokens), expected, "images {numbers:?}");
    }
}

/// The second message's second image is damaged.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_named_by_its_block() {
    let messages =
        vec![user(vec![image(&picture(0)), text("one")]), user(vec![image(&picture(1)), image(b"BM, but no image")])];
    let models = ImageModel::all().into_iter().map(|(name, model)| (name, model.folder()));
    for (name, folder) in models.chain([("gemma4".to_owned(), Goldens::read().gemma4())]) {
        let replicas = [generation_of(folder.path())];
        let (_service, mut client) = serve_with_replicas(folder.path(), &replicas).await;
        let status = run(&mut client, messages.clone()).await.expect_err("the image is damaged");
        let failure = failed(&status);
        assert_eq!(failure.reason, "INVALID_IMAGE", "{name}: {status:?}");
        let field = failure.field.as_deref().unwrap_or_default();
        let block = "conversation.messages[1].blocks.blocks[1].image";
        assert!([block, &format!("{block}.base64")].contains(&field), "{name}: {status:?}");
    }
}
