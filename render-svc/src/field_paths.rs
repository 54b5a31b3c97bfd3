//! Field paths of the contract: every error, warning and attachment names a field by its path in
//! the request message, as the `.proto` spells it.
//!
//! The domain names fields by their path in the conversation's JSON, which templates read. A request
//! keeps its shape here, because one JSON path has several fields: `messages[0].content` is `text`
//! or `blocks`.

mod step;

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::Value;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::field_names;
use tandem_common::status::Failure;
use tonic::Status;

use self::step::Step;
use crate::conversation::media;
use crate::error::Error;
use crate::prepare::hf_messages::FIELD;
use crate::render::{Output, Rendered};
use crate::warning::Warning;

/// The options of rendering, which RenderRequest and RunTaskRequest have in `options`.
static OPTIONS: LazyLock<HashSet<String>> = LazyLock::new(|| field_names("tandem.render.v1.RenderOptions"));

/// The fields of a request and their paths.
#[derive(Debug, Clone, Default)]
pub struct RequestPaths {
    messages: Vec<Message>,
    tools: Vec<Tool>,
    /// True if the options are fields of the request itself.
    has_flat_options: bool,
    /// The path of the request in a batch, with a dot at its end.
    prefix: String,
}

/// A field, and the place in its JSON text, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    field: String,
    within: String,
}

#[derive(Debug, Clone)]
struct Message {
    content: Content,
    /// The fields that are set, by name. Other keys are in `extra_json`.
    fields: Vec<&'static str>,
    has_extra: bool,
}

#[derive(Debug, Clone)]
enum Content {
    Unset,
    Text,
    Blocks(Vec<Block>),
}

#[derive(Debug, Clone)]
enum Block {
    Text,
    /// The name of the block's field, and the name of its source.
    Media(&'static str, &'static str),
    ToolUse,
    ToolResult(Content),
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Function,
    Json,
}

impl RequestPaths {
    /// Returns the paths of a request with this conversation and its options in `options`.
    #[must_use]
    pub fn new(conversation: Option<&chat::Conversation>) -> Self {
        let Some(conversation) = conversation else { return Self::default() };
        Self {
            messages: conversation.messages.iter().map(Message::new).collect(),
            tools: conversation.tools.iter().map(Tool::new).collect(),
            ..Self::default()
        }
    }

    /// Returns the paths of a request that has the options as its own fields.
    #[must_use]
    pub fn with_flat_options(self) -> Self {
        Self { has_flat_options: true, ..self }
    }

    /// Returns the paths of the request at index `i` of a batch.
    #[must_use]
    pub fn in_batch(self, i: usize) -> Self {
        Self { prefix: format!("requests[{i}]."), ..self }
    }

    /// Returns the status of an error in the request.
    #[must_use]
    pub fn status(&self, error: Error) -> Status {
        error.into_status(|failure| self.failure(failure))
    }

    /// Returns the failure with the field's path on the wire.
    #[must_use]
    pub fn failure(&self, failure: Failure) -> Failure {
        failure.locate(|path| {
            let Place { field, within } = self.place(path);
            (field, within)
        })
    }

    /// Returns the rendering with the contract's paths.
    #[must_use]
    pub fn rendered(&self, mut rendered: Rendered) -> Rendered {
        for Warning { path, text, .. } in &mut rendered.warnings {
            self.replace(path, text);
        }
        match &mut rendered.output {
            Output::Prompt { attachments, .. } => {
                attachments.iter_mut().for_each(|attachment| attachment.path = self.place(&attachment.path).field);
            }
            Output::HfMessages(hf) => hf.messages.iter_mut().for_each(|message| self.replace_in(message)),
        }
        rendered
    }

    /// Replaces the paths of media blocks without data, in a message or tool result.
    fn replace_in(&self, holder: &mut Value) {
        let blocks = holder.get_mut("content").and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten() {
            self.replace_in(block);
            // Every other media block has one of these keys.
            let has_source = ["base64", "url", "path"].iter().any(|key| block.get(key).is_some());
            if media::kind(block).is_some()
                && !has_source
                && let Some(Value::String(path)) = block.get_mut(FIELD)
            {
                *path = self.place(path).field;
            }
        }
    }

    /// Replaces the path of a warning. The place in JSON text is put before the warning's text.
    fn replace(&self, path: &mut String, text: &mut String) {
        let Place { field, within } = self.place(path);
        *path = field;
        if !within.is_empty() {
            *text = format!("{within}: {text}");
        }
    }

    /// Returns the path on the wire of a path in the conversation's JSON.
    #[must_use]
    pub fn wire(&self, path: &str) -> String {
        self.place(path).field
    }

    fn place(&self, path: &str) -> Place {
        let Place { field, within } = self.place_in_request(path);
        Place { field: format!("{}{field}", self.prefix), within }
    }

    fn place_in_request(&self, path: &str) -> Place {
        let step = Step::of(path);
        match (step.key, step.index) {
            ("messages", Some(i)) => self.message(i, step.rest),
            ("tools", Some(i)) => self.tool(i, step.rest),
            ("documents", Some(i)) => Place::json(format!("conversation.documents[{i}]"), "document_json", step.rest),
            ("messages" | "tools" | "documents", None) => Place::field(format!("conversation.{}", step.key)),
            ("template_args", _) => Place::json("conversation".to_owned(), "template_args_json", step.rest),
            (option, _) if OPTIONS.contains(option) && !self.has_flat_options => {
                Place::field(format!("options.{option}"))
            }
            _ => Place::field(path.to_owned()),
        }
    }

    fn message(&self, i: usize, path: &str) -> Place {
        let root = format!("conversation.messages[{i}]");
        match self.messages.get(i) {
            Some(message) => message.place(root, path),
            None => Place::field(root),
        }
    }

    fn tool(&self, i: usize, path: &str) -> Place {
        let root = format!("conversation.tools[{i}]");
        if path.is_empty() {
            return Place::field(root);
        }
        match self.tools.get(i) {
            Some(Tool::Function) => function(root, path),
            _ => Place::json(root, "tool_json", path),
        }
    }
}

fn function(root: String, path: &str) -> Place {
    let root = format!("{root}.function");
    let step = Step::of(path).skip("function");
    match step.key {
        "name" | "description" => Place::field(format!("{root}.{}", step.key)),
        "parameters" => Place::json(root, "parameters_json", step.after_key()),
        _ => Place::field(root),
    }
}

impl Place {
    fn field(field: String) -> Self {
        Self { field, within: String::new() }
    }

    /// Returns a place in a field with JSON text.
    fn json(parent: String, field: &str, within: &str) -> Self {
        let within = within.strip_prefix('.').unwrap_or(within).to_owned();
        Self { field: format!("{parent}.{field}"), within }
    }
}

impl Message {
    fn new(message: &chat::ChatMessage) -> Self {
        let chat::ChatMessage { role: _, content, reasoning_content, tool_calls, tool_call_id, name, extra_json } =
            message;
        let fields = [
            ("role", true),
            ("reasoning_content", reasoning_content.is_some()),
            ("tool_calls", !tool_calls.is_empty()),
            ("tool_call_id", tool_call_id.is_some()),
            ("name", name.is_some()),
        ];
        let content = match content {
            None => Content::Unset,
            Some(chat::chat_message::Content::Text(_)) => Content::Text,
            Some(chat::chat_message::Content::Blocks(list)) => Content::blocks(list),
        };
        let fields = fields.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
        Self { content, fields, has_extra: extra_json.is_some() }
    }

    fn place(&self, root: String, path: &str) -> Place {
        let step = Step::of(path);
        let is_typed = self.fields.contains(&step.key);
        match (step.key, step.index) {
            ("", _) => Place::field(root),
            ("content", index) => match &self.content {
                Content::Unset if self.has_extra => Place::json(root, "extra_json", path),
                content => content.place(root, index, step.rest),
            },
            ("tool_calls", Some(k)) if is_typed => call(format!("{root}.tool_calls[{k}]"), step.rest),
            (key, _) if is_typed => Place::field(format!("{root}.{key}")),
            _ => Place::json(root, "extra_json", path),
        }
    }
}

fn call(root: String, path: &str) -> Place {
    let step = Step::of(path).skip("function");
    match step.key {
        "id" | "name" => Place::field(format!("{root}.{}", step.key)),
        "arguments" => Place::json(root, "arguments_json", step.after_key()),
        _ => Place::field(root),
    }
}

impl Content {
    fn blocks(list: &chat::BlockList) -> Self {
        Self::Blocks(list.blocks.iter().map(Block::new).collect())
    }

    /// Returns the place in the content of the message or tool result at `root`.
    fn place(&self, root: String, index: Option<usize>, path: &str) -> Place {
        match (self, index) {
            (Self::Unset, _) => Place::field(root),
            (Self::Text, _) => Place::field(format!("{root}.text")),
            (Self::Blocks(_), None) => Place::field(format!("{root}.blocks")),
            (Self::Blocks(blocks), Some(j)) => {
                let root = format!("{root}.blocks.blocks[{j}]");
                match blocks.get(j) {
                    Some(block) => block.place(root, path),
                    None => Place::field(root),
                }
            }
        }
    }
}

impl Block {
    fn new(block: &chat::Block) -> Self {
        use chat::block::Kind;
        match &block.kind {
            Some(Kind::Text(_)) => Self::Text,
            Some(Kind::Image(image)) => Self::Media("image", image.source.as_ref().map_or("", source_name)),
            Some(Kind::Audio(audio)) => Self::Media("audio", audio.source.as_ref().map_or("", source_name)),
            Some(Kind::Video(video)) => Self::Media("video", video.source.as_ref().map_or("", source_name)),
            Some(Kind::ToolUse(_)) => Self::ToolUse,
            Some(Kind::ToolResult(result)) => Self::ToolResult(match &result.content {
                None => Content::Unset,
                Some(chat::tool_result_block::Content::Text(_)) => Content::Text,
                Some(chat::tool_result_block::Content::Blocks(list)) => Content::blocks(list),
            }),
            Some(Kind::OtherJson(_)) | None => Self::Json,
        }
    }

    fn place(&self, root: String, path: &str) -> Place {
        let step = Step::of(path);
        match self {
            Self::Json if step.key.is_empty() => Place::field(root),
            Self::Json => Place::json(root, "other_json", path),
            Self::Text if step.key.is_empty() => Place::field(root),
            Self::Text => Place::field(format!("{root}.text.text")),
            Self::Media(kind, source) if step.key.is_empty() || source.is_empty() => {
                Place::field(format!("{root}.{kind}"))
            }
            Self::Media(kind, source) => Place::field(format!("{root}.{kind}.{source}")),
            Self::ToolUse => tool_use(format!("{root}.tool_use"), &step),
            Self::ToolResult(content) => match step.key {
                "content" => content.place(format!("{root}.tool_result"), step.index, step.rest),
                "tool_use_id" | "is_error" => Place::field(format!("{root}.tool_result.{}", step.key)),
                _ => Place::field(format!("{root}.tool_result")),
            },
        }
    }
}

fn tool_use(root: String, step: &Step<'_>) -> Place {
    match step.key {
        "id" | "name" => Place::field(format!("{root}.{}", step.key)),
        "input" => Place::json(root, "input_json", step.after_key()),
        _ => Place::field(root),
    }
}

fn source_name(source: &chat::media_block::Source) -> &'static str {
    use chat::media_block::Source;
    match source {
        Source::Base64(_) => "base64",
        Source::Data(_) => "data",
        Source::Location(_) => "location",
        Source::AttachmentId(_) => "attachment_id",
    }
}

impl Tool {
    fn new(tool: &chat::Tool) -> Self {
        match tool.kind {
            Some(chat::tool::Kind::Function(_)) => Self::Function,
            Some(chat::tool::Kind::ToolJson(_)) | None => Self::Json,
        }
    }
}
