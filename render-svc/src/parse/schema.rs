//! The names of tools, and the schemas of their parameters with each reference replaced.

use std::collections::HashSet;

use serde_json::{Map, Value as Json, json};

/// The names of the schema in a tool.
const SCHEMA_KEYS: [&str; 3] = ["parameters", "input_schema", "inputSchema"];
/// The keys of schemas to which references refer.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
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

/// How much larger the schemas of a request may become when references are replaced by their targets.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The values that may still be copied.
    values: usize,
    is_exceeded: bool,
}

impl Budget {
    /// Returns the budget of a request with these tools: a few times their size.
    pub(crate) fn of(tools: &Json) -> Self {
        Self { values: 10_000 + 4 * size(tools), is_exceeded: false }
    }

    /// Takes the size of a copy of a value. Returns false if it exceeds the budget, as does every copy after it.
    fn takes(&mut self, value: &Json) -> bool {
        let rest = if self.is_exceeded { None } else { self.values.checked_sub(size(value)) };
        self.values = rest.unwrap_or(0);
        self.is_exceeded = rest.is_none();
        !self.is_exceeded
    }

    /// Returns true if a copy has exceeded the budget.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}

/// Returns the number of values in a value, itself included.
fn size(value: &Json) -> usize {
    1 + match value {
        Json::Array(items) => items.iter().map(size).sum(),
        Json::Object(entries) => entries.values().map(size).sum(),
        _ => 0,
    }
}

/// Returns a tool in the form of `apply_chat_template`, with its parameters and without references between schemas.
pub(super) fn plain_tool(tool: &Json, budget: &mut Budget) -> Json {
    let root = schema(tool);
    let mut properties = Map::new();
    for (name, property) in root.and_then(|root| root.get("properties")?.as_object()).into_iter().flatten() {
        properties.insert(name.clone(), plain(property, root.unwrap_or(property), true, budget));
    }
    let mut parameters = json!({"type": "object", "properties": properties});
    for key in DEFINITIONS {
        if let Some(definitions) = root.and_then(|root| root.get(key)).filter(|value| budget.takes(value)) {
            parameters[key] = definitions.clone();
        }
    }
    json!({"type": "function", "function": {"name": name(tool), "parameters": parameters}})
}

/// Returns the values that a schema lists.
pub(crate) fn listed(schema: &Map<String, Json>) -> Option<Vec<Json>> {
    let one = schema.get("const").map(|value| vec![value.clone()]);
    schema.get("enum").and_then(Json::as_array).cloned().or(one)
}

/// Returns the name of the type of the values that a schema lists, besides null. None if they have several.
fn kind_of_listed(schema: &Map<String, Json>) -> Option<&'static str> {
    let mut values = listed(schema)?;
    values.retain(|value| !value.is_null());
    let is = |kind: fn(&Json) -> bool| values.iter().all(kind);
    match () {
        () if values.is_empty() => Some("null"),
        () if is(Json::is_string) => Some("string"),
        () if is(|value| value.is_i64() || value.is_u64()) => Some("integer"),
        () if is(Json::is_number) => Some("number"),
        () if is(Json::is_boolean) => Some("boolean"),
        () => None,
    }
}

/// Returns a parameter's schema with the target of a reference in its place, and a combination of one schema as this
/// schema. Where the budget is exceeded, any value is allowed. `keeps_null`: null stays one of several types.
pub(crate) fn plain(property: &Json, root: &Json, keeps_null: bool, budget: &mut Budget) -> Json {
    Plain { root, keeps_null, budget }.followed(property, 0)
}

struct Plain<'a> {
    root: &'a Json,
    keeps_null: bool,
    budget: &'a mut Budget,
}

impl Plain<'_> {
    fn followed(&mut self, property: &Json, depth: usize) -> Json {
        if !self.budget.takes(property) {
            return json!({});
        }
        let Some(object) = property.as_object().filter(|_| depth < MAX_DEPTH) else { return property.clone() };
        let root = self.root;
        if let Some(target) =
            object.get("$ref").and_then(Json::as_str).and_then(|path| root.pointer(path.strip_prefix('#')?))
        {
            return merged(object, "$ref", self.followed(target, depth + 1));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let Some(schemas) = object.get(key).and_then(Json::as_array) else { continue };
            let mut followed: Vec<Json> = schemas.iter().map(|schema| self.followed(schema, depth + 1)).collect();
            followed.retain(|schema| self.keeps_null || schema.get("type").is_none_or(|kind| kind != "null"));
            return match &mut followed[..] {
                [only] => merged(object, key, std::mem::take(only)),
                _ => merged(object, key, json!({key: followed})),
            };
        }
        self.typed(object.clone())
    }

    /// Returns a schema with the type of the values that it lists.
    fn typed(&self, mut object: Map<String, Json>) -> Json {
        if let Some(kind) = kind_of_listed(&object).filter(|_| !object.contains_key("type")) {
            let has_null = listed(&object).is_some_and(|values| values.contains(&Json::Null));
            object.insert("type".to_owned(), if has_null { json!([kind, "null"]) } else { kind.into() });
        }
        if self.keeps_null {
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
}

/// Returns the target of a reference with the other keywords of the object that refers to it. Where both have a
/// keyword, that of the target stays. Where both list values, the common ones stay.
fn merged(object: &Map<String, Json>, reference: &str, target: Json) -> Json {
    let Json::Object(mut target) = target else { return target };
    for (key, value) in object.iter().filter(|(key, _)| *key != reference) {
        match (target.get_mut(key), value) {
            (Some(Json::Array(values)), Json::Array(listed)) if key == "enum" => {
                let listed: HashSet<String> = listed.iter().map(Json::to_string).collect();
                values.retain(|value| listed.contains(&value.to_string()));
            }
            (Some(_), _) => {}
            (None, value) => drop(target.insert(key.clone(), value.clone())),
        }
    }
    target.into()
}
