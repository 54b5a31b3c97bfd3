//! Field paths of the contract: every error, warning and attachment names a field by its path in
//! the request message, as the `.proto` spells it.
//!
//! The domain names fields by their path in the conversation's JSON, which templates read. A request
//! keeps its shape here, because one JSON path has several fields: `messages[0].content` is `text`
//! or `blocks`.

use std::collections::HashSet;
use std::sync::LazyLock;

use tandem_common::field::Step::{Index, Key};
use tandem_common::field::{Path, Steps};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::field_names;
use tandem_common::status::Failure;
use tonic::Status;

use crate::error::Error;
use crate::prepare::hf_messages::{self, FIELD};
use crate::render::{HfMessages, Output, Rendered};
use crate::warning::Warning;

/// The options of rendering, which RenderRequest and RunTaskRequest have in `options`.
static OPTIONS: LazyLock<HashSet<String>> = LazyLock::new(|| field_names("tandem.render.v1.RenderOptions"));

/// The fields of a request and their paths.
#[derive(Debug, Clone, Default)]
pub struct RequestPaths {
    messages: Vec<Message>,
    /// For each tool, true if it is a function, not JSON text.
    tools: Vec<bool>,
    /// True if the options are fields of the request itself.
    has_flat_options: bool,
    /// The path of the request in a batch.
    prefix: Path,
}

/// A field, and the path in its JSON text, if it has one.
type Place = (Path, Path);

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

impl RequestPaths {
    /// Returns the paths of a request with this conversation and its options in `options`.
    #[must_use]
    pub fn new(conversation: Option<&chat::Conversation>) -> Self {
        let Some(conversation) = conversation else { return Self::default() };
        let is_function = |tool: &chat::Tool| matches!(tool.kind, Some(chat::tool::Kind::Function(_)));
        Self {
            messages: conversation.messages.iter().map(Message::new).collect(),
            tools: conversation.tools.iter().map(is_function).collect(),
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
        Self { prefix: Path::item("requests", i), ..self }
    }

    /// Returns true if a message has a block with a medium.
    #[must_use]
    pub fn have_media(&self) -> bool {
        let is_medium = |block: &Block| matches!(block, Block::Media(..));
        let has_media = |content: &Content| matches!(content, Content::Blocks(list) if list.iter().any(is_medium));
        self.messages.iter().any(|message| has_media(&message.content))
    }

    /// Returns the status of an error in the request.
    #[must_use]
    pub fn status(&self, error: Error) -> Status {
        error.into_status(|failure| self.failure(failure))
    }

    /// Returns the failure with the field's path on the wire.
    #[must_use]
    pub fn failure(&self, failure: Failure) -> Failure {
        failure.locate(|path| self.place(path))
    }

    /// Returns the rendering with the contract's paths. The place in JSON text is put before a warning's text.
    #[must_use]
    pub fn rendered(&self, mut rendered: Rendered) -> Rendered {
        for Warning { path, text, .. } in &mut rendered.warnings {
            let (field, within) = self.place(path);
            *path = field;
            if within != Path::default() {
                *text = format!("{within}: {text}");
            }
        }
        match &mut rendered.output {
            Output::Prompt { attachments, .. } => {
                attachments.iter_mut().for_each(|attachment| attachment.path = self.wire(&attachment.path));
            }
            Output::HfMessages(hf) => self.replace_fields(hf),
        }
        rendered
    }

    /// Replaces the paths of media blocks without data.
    fn replace_fields(&self, hf: &mut HfMessages) {
        let HfMessages { messages, origins, .. } = hf;
        hf_messages::each_media(messages, &mut |at, block| {
            // Every other media block has one of these keys.
            let has_source = ["base64", "url", "path"].iter().any(|key| block.contains_key(*key));
            if let Some(field) = block.get_mut(FIELD).filter(|field| field.is_string() && !has_source) {
                *field = self.wire(&origins.path(&at.path())).to_string().into();
            }
        });
    }

    /// Returns the path on the wire of a path in the conversation's JSON.
    #[must_use]
    pub fn wire(&self, path: &Path) -> Path {
        self.place(path).0
    }

    fn place(&self, path: &Path) -> Place {
        let (field, within) = self.place_in_request(path);
        (field.within(self.prefix.clone()), within)
    }

    fn place_in_request(&self, path: &Path) -> Place {
        let conversation = Path::from("conversation");
        match &*path.steps() {
            [Key("messages"), Index(i), way @ ..] => {
                let root = conversation.key("messages").index(*i);
                self.messages.get(*i).map_or_else(|| field(root.clone()), |message| message.place(&root, way))
            }
            [Key("tools"), Index(i), way @ ..] => {
                let root = conversation.key("tools").index(*i);
                match self.tools.get(*i) {
                    _ if way.is_empty() => field(root),
                    Some(true) => {
                        let (fields, parameters) = (["name", "description"], ("parameters", "parameters_json"));
                        fields_or_json(&root.key("function"), without(way, "function"), fields, parameters)
                    }
                    _ => json(&root, "tool_json", way),
                }
            }
            [Key("documents"), Index(i), way @ ..] => {
                json(&conversation.key("documents").index(*i), "document_json", way)
            }
            [Key(list @ ("messages" | "tools" | "documents")), ..] => field(conversation.join(&[Key(*list)])),
            [Key("template_args"), way @ ..] => json(&conversation, "template_args_json", way),
            [Key(option), ..] if OPTIONS.contains(*option) && !self.has_flat_options => {
                field(Path::from("options").join(&[Key(*option)]))
            }
            _ => field(path.clone()),
        }
    }
}

fn field(field: Path) -> Place {
    (field, Path::default())
}

/// Returns a place in a field with JSON text.
fn json(parent: &Path, field: &'static str, way: &Steps<'_>) -> Place {
    (parent.clone().key(field), way.into())
}

/// Returns the steps without the first one if it has this key.
fn without<'w, 's>(way: &'w Steps<'s>, key: &str) -> &'w Steps<'s> {
    match way {
        [Key(first), way @ ..] if *first == key => way,
        way => way,
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

    fn place(&self, root: &Path, way: &Steps<'_>) -> Place {
        match (&self.content, way) {
            (_, []) => field(root.clone()),
            (Content::Unset, [Key("content"), ..]) if self.has_extra => json(root, "extra_json", way),
            (content, [Key("content"), way @ ..]) => content.place(root, way),
            (_, [Key(key), inner @ ..]) if self.fields.contains(key) => match inner {
                [Index(_), inner @ ..] if *key == "tool_calls" => {
                    let arguments = ("arguments", "arguments_json");
                    fields_or_json(&root.join(&way[..2]), without(inner, "function"), ["name", "id"], arguments)
                }
                _ => field(root.join(&way[..1])),
            },
            _ => json(root, "extra_json", way),
        }
    }
}

/// Returns the place in a message with these fields, and with another one for the JSON text of a key.
fn fields_or_json(root: &Path, way: &Steps<'_>, fields: [&str; 2], (key, name): (&str, &'static str)) -> Place {
    match way {
        [Key(first), ..] if fields.contains(first) => field(root.join(&way[..1])),
        [Key(first), way @ ..] if *first == key => json(root, name, way),
        _ => field(root.clone()),
    }
}

impl Content {
    fn blocks(list: &chat::BlockList) -> Self {
        Self::Blocks(list.blocks.iter().map(Block::new).collect())
    }

    /// Returns the place in the content of the message or tool result at `root`.
    fn place(&self, root: &Path, way: &Steps<'_>) -> Place {
        match (self, way) {
            (Self::Unset, _) => field(root.clone()),
            (Self::Text, _) => field(root.clone().key("text")),
            (Self::Blocks(blocks), [Index(j), way @ ..]) => {
                let root = root.clone().key("blocks").key("blocks").index(*j);
                blocks.get(*j).map_or_else(|| field(root.clone()), |block| block.place(&root, way))
            }
            (Self::Blocks(_), _) => field(root.clone().key("blocks")),
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

    fn place(&self, root: &Path, way: &Steps<'_>) -> Place {
        let root = root.clone();
        match (self, way) {
            (Self::Json | Self::Text, []) => field(root),
            (Self::Json, _) => json(&root, "other_json", way),
            (Self::Text, _) => field(root.key("text").key("text")),
            (Self::Media(kind, source), [_, ..]) if !source.is_empty() => field(root.key(*kind).key(*source)),
            (Self::Media(kind, _), _) => field(root.key(*kind)),
            (Self::ToolUse, _) => fields_or_json(&root.key("tool_use"), way, ["name", "id"], ("input", "input_json")),
            (Self::ToolResult(content), [Key("content"), way @ ..]) => content.place(&root.key("tool_result"), way),
            (Self::ToolResult(_), [key @ Key("tool_use_id" | "is_error"), ..]) => {
                field(root.key("tool_result").join(&[*key]))
            }
            (Self::ToolResult(_), _) => field(root.key("tool_result")),
        }
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
