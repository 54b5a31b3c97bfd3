//! Conversations in the contract's messages, and a render service for one template.

use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::render_response::Output;
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tonic::transport::Channel;

use crate::services::{Running, render_service};
use crate::tiny_model::ModelFolder;

pub async fn serve(template: &str) -> (Running, RenderServiceClient<Channel>) {
    let model = ModelFolder::new("tiny").with_template(template);
    let service = render_service(&[model.path()], None).await;
    let client = RenderServiceClient::new(service.channel().await);
    (service, client)
}

pub fn text(role: &str, text: &str) -> chat::ChatMessage {
    let content = Some(chat::chat_message::Content::Text(text.to_owned()));
    chat::ChatMessage { role: role.to_owned(), content, ..chat::ChatMessage::default() }
}

pub fn blocks(role: &str, kinds: Vec<chat::block::Kind>) -> chat::ChatMessage {
    let blocks = kinds.into_iter().map(|kind| chat::Block { kind: Some(kind) }).collect();
    let content = Some(chat::chat_message::Content::Blocks(chat::BlockList { blocks }));
    chat::ChatMessage { role: role.to_owned(), content, ..chat::ChatMessage::default() }
}

pub fn text_block(text: &str) -> chat::block::Kind {
    chat::block::Kind::Text(chat::TextBlock { text: text.to_owned() })
}

pub fn image_block(source: chat::media_block::Source) -> chat::block::Kind {
    chat::block::Kind::Image(chat::MediaBlock { source: Some(source), mime_type: String::new() })
}

pub fn conversation(messages: Vec<chat::ChatMessage>) -> chat::Conversation {
    chat::Conversation { messages, ..chat::Conversation::default() }
}

pub fn request(conversation: chat::Conversation) -> pb::RenderRequest {
    pb::RenderRequest { conversation: Some(conversation), ..pb::RenderRequest::default() }
}

pub fn prompt(response: pb::RenderResponse) -> String {
    match response.output {
        Some(Output::Prompt(prompt)) => prompt.text,
        other => panic!("no prompt but {other:?}"),
    }
}
