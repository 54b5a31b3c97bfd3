//! Answers to conversations with images resume when replicas are killed.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1::{ReturnOptions, Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_tests_full::image_model::{ImageModel, bitmap};

use super::check_tasks_after_kills;

/// Enough for answers that last over several kills.
const TOKENS: u32 = 2000;
const CONTEXT: u32 = 4096;

fn text(number: usize) -> chat::block::Kind {
    chat::block::Kind::Text(chat::TextBlock { text: format!("What is number {number}?") })
}

fn image(number: usize) -> chat::block::Kind {
    let bytes = bitmap(40, 28, number as u64);
    let source = match number % 2 {
        0 => chat::media_block::Source::Base64(BASE64_STANDARD.encode(bytes)),
        _ => chat::media_block::Source::Data(bytes),
    };
    chat::block::Kind::Image(chat::MediaBlock { source: Some(source), mime_type: "image/bmp".to_owned() })
}

/// Returns task `number`: greedy or seeded, with one image or two.
fn task(number: usize) -> RunTaskRequest {
    let images = (0..=number % 2).map(|other| image(number + other));
    let blocks = images.chain([text(number)]).map(|kind| chat::Block { kind: Some(kind) }).collect();
    let content = Some(chat::chat_message::Content::Blocks(chat::BlockList { blocks }));
    let message = chat::ChatMessage { role: "user".to_owned(), content, ..chat::ChatMessage::default() };
    let is_greedy = number < 2;
    RunTaskRequest {
        conversation: Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() }),
        sampling: Some(Sampling {
            temperature: Some(if is_greedy { 0.0 } else { 1.0 }),
            seed: Some(number as u64),
            ..Sampling::default()
        }),
        stop: Some(Stop { max_new_tokens: Some(TOKENS), ignore_eos: true, ..Stop::default() }),
        return_options: Some(ReturnOptions { token_ids: true, ..ReturnOptions::default() }),
        ..RunTaskRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_about_images_resume_when_replicas_are_killed() {
    let tasks: Vec<_> = (0..4).map(task).collect();
    for (name, mut model) in ImageModel::all() {
        eprintln!("{name}");
        model.set("config.json", "/text_config/max_position_embeddings", CONTEXT.into());
        let folder = model.folder();
        check_tasks_after_kills(folder.path(), &tasks, 2).await;
    }
}
