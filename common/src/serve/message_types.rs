//! The fields of the request messages that take more memory than their bytes, from the contracts'
//! descriptors.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::pb;

static TYPES: LazyLock<MessageTypes> =
    LazyLock::new(|| MessageTypes::of(FileDescriptorSet::decode(pb::DESCRIPTORS).unwrap_or_default()));

/// The message types of all contracts.
struct MessageTypes {
    types: Vec<MessageType>,
    /// The index of each method's request type, by the method's path.
    requests: HashMap<String, usize>,
    /// The paths of the methods that take a stream of messages.
    streaming: HashSet<String>,
}

/// A message type: its fields that take more memory than their bytes, by number.
type MessageType = HashMap<u32, Field>;

/// A field whose values take more memory than their bytes.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: FieldKind,
    /// True for the requests of a batch: repeated messages of a type that a method takes.
    pub(super) is_batch: bool,
}

/// The contents of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldKind {
    Message(MessageIndex),
    /// One of several strings or byte strings.
    RepeatedString,
    /// Enumerators, one after the other or each with a tag.
    RepeatedEnum,
    /// JSON text. Its field has `json` in its name.
    Json,
}

/// The place of a message type in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageIndex(usize);

/// Returns true if the method at this path takes a stream of messages.
pub(super) fn streams_requests(path: &str) -> bool {
    TYPES.streaming.contains(path)
}

impl MessageIndex {
    /// Returns the request type of the method at this path, such as
    /// `/tandem.render.v1.RenderService/Render`.
    pub(super) fn of_request(path: &str) -> Option<Self> {
        TYPES.requests.get(path).copied().map(Self)
    }

    /// Returns the field with this number. None if its values take only the memory of their bytes.
    pub(super) fn field(self, number: u32) -> Option<&'static Field> {
        TYPES.types[self.0].get(&number)
    }
}

impl MessageTypes {
    fn of(set: FileDescriptorSet) -> Self {
        let mut messages = Vec::new();
        for file in &set.file {
            for message in &file.message_type {
                collect(&format!(".{}", file.package()), message, &mut messages);
            }
        }
        let indices: HashMap<_, _> = messages.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
        let (mut requests, mut streaming) = (HashMap::new(), HashSet::new());
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    streaming.extend(method.client_streaming().then(|| path.clone()));
                    requests.extend(indices.get(method.input_type()).map(|index| (path, *index)));
                }
            }
        }
        let is_request = |index: usize| requests.values().any(|request| *request == index);
        let types = messages.iter().map(|(_, message)| fields(message, &indices, is_request)).collect();
        Self { types, requests, streaming }
    }
}

/// Adds a message and the messages that are declared in it, with their full names.
fn collect<'a>(parent: &str, message: &'a DescriptorProto, messages: &mut Vec<(String, &'a DescriptorProto)>) {
    let name = format!("{parent}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, messages);
    }
    messages.push((name, message));
}

fn fields(
    message: &DescriptorProto,
    indices: &HashMap<&str, usize>,
    is_request: impl Fn(usize) -> bool,
) -> MessageType {
    let field = |field: &FieldDescriptorProto| {
        let is_repeated = field.label() == Label::Repeated;
        let kind = match field.r#type() {
            Type::Message => FieldKind::Message(MessageIndex(*indices.get(field.type_name())?)),
            Type::String | Type::Bytes if is_repeated => FieldKind::RepeatedString,
            Type::Enum if is_repeated => FieldKind::RepeatedEnum,
            Type::String if field.name().split('_').any(|word| word == "json") => FieldKind::Json,
            _ => return None,
        };
        let is_batch = is_repeated && matches!(kind, FieldKind::Message(MessageIndex(index)) if is_request(index));
        let number = u32::try_from(field.number()).ok()?;
        Some((number, Field { name: field.name().to_owned(), kind, is_batch }))
    };
    message.field.iter().filter_map(field).collect()
}
