//! The fields of messages, and their types.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};

use super::comments::Comments;

/// Returns a link to a message or an enum.
pub(super) type Link<'a> = &'a dyn Fn(&str) -> String;

/// Returns the list of a message's fields. `path` is the message's path in its file.
pub(super) fn list(message: &DescriptorProto, path: &[i32], comments: &Comments, link: Link<'_>) -> String {
    let mut text = String::new();
    let mut last = None;
    for (index, field) in (0..).zip(&message.field) {
        let oneof = field.oneof_index.filter(|_| !field.proto3_optional());
        if let Some(oneof) = oneof.filter(|_| oneof != last) {
            let name = message.oneof_decl[oneof as usize].name();
            text += &item(&format!("**{name}**, at most one of"), comments.get(&[path, &[8, oneof]].concat()), "");
        }
        last = oneof;
        let head = format!("**`{}`** {}", field.name(), type_of(message, field, link));
        let indent = if oneof.is_some() { "  " } else { "" };
        text += &item(&head, comments.get(&[path, &[2, index]].concat()), indent);
    }
    text
}

/// Returns an item of a list: a head, and a comment of any number of paragraphs.
pub(super) fn item(head: &str, comment: &str, indent: &str) -> String {
    let colon = if comment.is_empty() { "" } else { ":" };
    let text = format!("{head}{colon}\n{comment}");
    let lines = text.trim_end().lines().enumerate().map(|(number, line)| match (number, line) {
        (0, line) => format!("{indent}- {line}\n"),
        (_, "") => "\n".to_owned(),
        (_, line) => format!("{indent}  {line}\n"),
    });
    lines.collect()
}

fn type_of(message: &DescriptorProto, field: &FieldDescriptorProto, link: Link<'_>) -> String {
    let entries = message.nested_type.iter().filter(|nested| nested.options.as_ref().is_some_and(|o| o.map_entry()));
    if let Some(entry) = entries.into_iter().find(|entry| field.type_name().ends_with(&format!(".{}", entry.name()))) {
        let [key, value] = [&entry.field[0], &entry.field[1]].map(|field| name_of(field, link));
        return format!("map from {key} to {value}");
    }
    let label = match field.label() {
        Label::Repeated => "repeated ",
        _ if field.proto3_optional() => "optional ",
        _ => "",
    };
    format!("{label}{}", name_of(field, link))
}

fn name_of(field: &FieldDescriptorProto, link: Link<'_>) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => link(field.type_name()),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}
