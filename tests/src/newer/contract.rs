//! A later version of the contract: each message has one more field, each enum one more value, and
//! each service one more method.

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto,
};

const FIELD: &str = "added_later";
const NUMBER: i32 = 1990;

/// Returns the later version of encoded descriptors.
///
/// # Panics
/// If the bytes are not a set of descriptors.
pub fn evolved(files: &[u8]) -> Vec<u8> {
    let mut files = FileDescriptorSet::decode(files).expect("descriptors");
    for file in files.file.iter_mut().filter(|file| file.package().starts_with("tandem.")) {
        file.message_type.iter_mut().for_each(add_field);
        file.enum_type.iter_mut().for_each(add_value);
        for service in &mut file.service {
            let like = service.method[0].clone();
            service.method.push(MethodDescriptorProto { name: Some("AddedLater".to_owned()), ..like });
        }
    }
    files.encode_to_vec()
}

fn add_field(message: &mut DescriptorProto) {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    message.nested_type.iter_mut().for_each(add_field);
    message.field.push(FieldDescriptorProto {
        name: Some(FIELD.to_owned()),
        number: Some(NUMBER),
        label: Some(Label::Optional.into()),
        r#type: Some(Type::String.into()),
        json_name: Some("addedLater".to_owned()),
        ..FieldDescriptorProto::default()
    });
}

fn add_value(values: &mut EnumDescriptorProto) {
    let name = Some(format!("{}_ADDED_LATER", values.name().to_uppercase()));
    values.value.push(EnumValueDescriptorProto { name, number: Some(NUMBER), ..Default::default() });
}

/// Sets the new field of a message and of every message in it.
pub fn set_new_fields(message: &mut DynamicMessage) {
    for field in message.descriptor().fields() {
        if message.has_field(&field) && field.name() != FIELD {
            set_in_value(message.get_field_mut(&field));
        }
    }
    if message.descriptor().get_field_by_name(FIELD).is_some() {
        message.set_field_by_name(FIELD, Value::String("new".to_owned()));
    }
}

fn set_in_value(value: &mut Value) {
    match value {
        Value::Message(message) => set_new_fields(message),
        Value::List(items) => items.iter_mut().for_each(set_in_value),
        Value::Map(entries) => entries.values_mut().for_each(set_in_value),
        _ => {}
    }
}
