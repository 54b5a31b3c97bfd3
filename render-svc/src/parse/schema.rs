//! The names of tools, and the schemas of their parameters with each reference replaced.

use serde_json::{Map, Value as Json, json};

/// The names of the schema in a tool.
const SCHEMA_KEYS: [&str; 3] = ["parameters", "input_schema", "inputSchema"];
/// The most references that are followed one after another.
const MAX_DEPTH: usize = 8;

/// Returns the name of a tool.
pub(crate) fn name(tool: &Json) -> Option<&str> {
    tool.get("function").unwrap_or(tool).get("name")?.as_str()
}

/// Returns the schema of a tool's parameters. None if it has none.
pub(crate) fn schema(tool: &Json) -> Option<&Json> {
    let function = tool.get("function").unwrap_or(tool);
    SCHEMA_KEYS.iter().find_map(|key| function.get(*key)).filter(|schema| !schema.is_null())
}

/// Returns a tool in the form of `apply_chat_template`, with its parameters and without references between schemas.
pub(super) fn plain_tool(tool: &Json) -> Json {
    let root = schema(tool);
    let properties = root.and_then(|root| root.get("properties")?.as_object());
    let plain = |(name, property): (&String, &Json)| (name.clone(), plain(property, root.unwrap_or(property), true));
    let properties: Map<String, Json> = properties.into_iter().flatten().map(plain).collect();
    json!({"type": "function", "function": {"name": name(tool), "parameters": {"type": "object", "properties": properties}}})
}

/// Returns the values that a schema lists.
pub(crate) fn listed(schema: &Json) -> Option<Vec<Json>> {
    let one = schema.get("const").map(|value| vec![value.clone()]);
    schema.get("enum").and_then(Json::as_array).cloned().or(one).filter(|values| !values.is_empty())
}

/// Returns the name of the type of the values that a schema lists, besides null. None if they have several.
fn kind_of_listed(schema: &Json) -> Option<&'static str> {
    let values = listed(schema)?;
    let is = |kind: fn(&Json) -> bool| values.iter().filter(|value| !value.is_null()).all(kind);
    match () {
        () if is(Json::is_string) => Some("string"),
        () if is(|value| value.is_i64() || value.is_u64()) => Some("integer"),
        () if is(Json::is_number) => Some("number"),
        () if is(Json::is_boolean) => Some("boolean"),
        () => None,
    }
}

/// Returns a parameter's schema with the target of a reference in its place, and a combination of one schema as this
/// schema. `keeps_null`: null stays one of several types.
pub(crate) fn plain(property: &Json, root: &Json, keeps_null: bool) -> Json {
    followed(property, root, keeps_null, 0)
}

fn followed(property: &Json, root: &Json, keeps_null: bool, depth: usize) -> Json {
    let Some(object) = property.as_object().filter(|_| depth < MAX_DEPTH) else { return property.clone() };
    let follow = |schema: &Json| followed(schema, root, keeps_null, depth + 1);
    if let Some(target) =
        object.get("$ref").and_then(Json::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?))
    {
        return follow(target);
    }
    let is_null = |schema: &Json| !keeps_null && schema.get("type").is_some_and(|kind| kind == "null");
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(schemas) = object.get(key).and_then(Json::as_array) else { continue };
        let schemas: Vec<Json> = schemas.iter().map(follow).filter(|schema| !is_null(schema)).collect();
        return match &schemas[..] {
            [only] => only.clone(),
            _ => json!({key: schemas}),
        };
    }
    let mut object = object.clone();
    if let Some(kind) = kind_of_listed(property).filter(|_| !object.contains_key("type")) {
        let has_null = listed(property).is_some_and(|values| values.contains(&Json::Null));
        object.insert("type".to_owned(), if has_null { json!([kind, "null"]) } else { kind.into() });
    }
    if keeps_null {
        return object.into();
    }
    if let Some(Json::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Json::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    object.into()
}
