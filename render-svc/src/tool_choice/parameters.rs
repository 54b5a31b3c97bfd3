//! The grammar of one tool's arguments, by the schema of its parameters.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::lark::{Writer, quoted, with_key};
use crate::answer_rules::{Arguments, Form, Kind, Spelling};
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{Rules, listed, name, plain, schema};

/// Keywords with which a schema has properties in other places than `properties`.
const COMBINING: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "unevaluatedProperties"];

/// Keywords that limit which properties an object has together.
const COUNTING: [&str; 4] = ["minProperties", "maxProperties", "dependentRequired", "propertyNames"];

/// Returns the expression of a call from the tool's name to the end of its arguments.
///
/// # Errors
/// The tool has a name that a call cannot have, or a parameter that the notation cannot write.
pub(super) fn tool(writer: &mut Writer<'_>, rules: &Arc<Rules>, index: usize, tool: &Json) -> Result<String, Error> {
    let path = |field: &str| format!("tools[{index}].function.{field}");
    let refused = |field: &str, problem: String| Error::from(Invalid::new(&path(field)[..], problem));
    let tool_name = name(tool).unwrap_or_default();
    if tool_name.is_empty() || !tool_name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:/".contains(c)) {
        return Err(refused("name", "must be of letters, digits and _-.:/ for a tool_choice".to_owned()));
    }
    let none = json!({});
    let schema = schema(tool).unwrap_or(&none);
    if !writer.notation.is_read(rules, tool_name, &[]) {
        return Err(refused("name", "is no name that the rules of the model read in a call".to_owned()));
    }
    let start = format!("{} {}", quoted(tool_name), writer.text(&writer.notation.middle.clone()));
    let arguments = match &writer.notation.arguments {
        Arguments::Json => format!("%json {}", closed(schema)),
        Arguments::Named { key, separator, forms } => {
            let named = Named { key, separator, forms };
            let keys = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
            for (key, _) in keys {
                if !writer.notation.is_read(rules, tool_name, &[key]) {
                    return Err(refused(
                        "parameters",
                        format!("has {key:?}, a name that the rules of the model do not read"),
                    ));
                }
            }
            named.parameters(writer, schema).map_err(|problem| refused("parameters", problem))?
        }
    };
    Ok(format!("{start} {arguments}"))
}

/// Returns the schema of an object without further properties, if it does not mention them.
fn closed(schema: &Json) -> Json {
    let mut closed = schema.clone();
    let Some(object) = closed.as_object_mut() else { return closed };
    if !object.contains_key("additionalProperties") && !COMBINING.iter().any(|key| object.contains_key(*key)) {
        object.entry("type").or_insert_with(|| "object".into());
        object.insert("additionalProperties".to_owned(), false.into());
    }
    closed
}

/// Parameters that are written one after another.
struct Named<'a> {
    key: &'a str,
    separator: &'a str,
    forms: &'a [(Kind, Form)],
}

impl Named<'_> {
    fn parameters(&self, writer: &mut Writer<'_>, schema: &Json) -> Result<String, String> {
        if let Some(key) = COUNTING.iter().find(|key| schema.get(**key).is_some()) {
            return Err(format!("has {key}, which no grammar of this model's notation can keep"));
        }
        if let Some(key) = COMBINING.iter().find(|key| schema.get(**key).is_some()) {
            return Err(format!("must list its parameters in `properties` for a tool_choice, has {key}"));
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        let required: Vec<&str> =
            schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
        let mut parameters = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            let expression = self.parameter(writer, name, &plain(property, schema, false), schema)?;
            parameters.push((expression, required.contains(&name.as_str())));
        }
        let separator = writer.text(self.separator);
        Ok(sequence(writer, &parameters, &separator))
    }

    /// Returns true if a text has the mark that ends a text.
    fn ends_in(&self, text: &str) -> bool {
        let forms = self.forms.iter().filter(|(kind, _)| *kind == Kind::String);
        forms.map(|(_, form)| form.end.trim()).any(|end| !end.is_empty() && text.contains(end))
    }

    fn parameter(&self, writer: &mut Writer<'_>, name: &str, property: &Json, schema: &Json) -> Result<String, String> {
        let kind = kind(property);
        let unknown = |kind: Kind| {
            format!("has {name:?} of type {}, which the model's notation writes in no known way", kind.name())
        };
        let form = |kind: Kind| self.forms.iter().find(|(other, _)| *other == kind).map(|(_, form)| form);
        let key = writer.text(&[self.key, name].concat());
        let written = |writer: &mut Writer<'_>, form: &Form| value(writer, form, name, property, schema);
        if let Some(text) = texts(property).into_iter().flatten().find(|text| self.ends_in(text)) {
            return Err(format!("has {name:?} with the value {text:?}, which has the mark of the end of a value"));
        }
        if let Some(kind) = kind {
            let form = form(kind).ok_or_else(|| unknown(kind))?;
            return Ok(format!("{key} {}", written(writer, form)));
        }
        // A value of several types is written as a text, or as JSON where that differs.
        let text = form(Kind::String).ok_or_else(|| unknown(Kind::String))?;
        let other = form(Kind::Object).filter(|other| other.middle != text.middle);
        let text = value(writer, text, name, &json!({}), schema);
        match other {
            Some(other) => Ok(format!("{key} ({text} | {})", written(writer, other))),
            None => Ok(format!("{key} {text}")),
        }
    }
}

/// Returns the expression of a value with the texts around it.
fn value(writer: &mut Writer<'_>, form: &Form, name: &str, property: &Json, schema: &Json) -> String {
    let (middle, end) = (with_key(&form.middle, name), with_key(&form.end, name));
    let middle = writer.text(&middle);
    let choices =
        |texts: Vec<String>| format!("({})", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" | "));
    let value = match &form.spelling {
        Spelling::Words(words) => format!("{} {}", choices(words.to_vec()), writer.text(&end)),
        Spelling::Json => format!("%json {} {}", with_definitions(property, schema), writer.text(&end)),
        Spelling::Raw => match texts(property) {
            Some(texts) => format!("{} {}", choices(texts), writer.text(&end)),
            None => match end.chars().next().filter(|first| "\"'".contains(*first)) {
                Some(quote) => writer.quoted_until(quote, &end),
                // The rules end a text at the first mark, with or without the white space before it.
                None => writer.until(Some(end.trim_start()).filter(|end| !end.is_empty()).unwrap_or(&end)),
            },
        },
    };
    format!("{middle} {value}")
}

/// Returns the texts that a parameter may be, if its schema lists them.
fn texts(property: &Json) -> Option<Vec<String>> {
    listed(property)?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Returns the kind of a parameter's values. None if they may be of several.
fn kind(property: &Json) -> Option<Kind> {
    match property.get("type") {
        Some(Json::String(name)) => Kind::of(name),
        _ => None,
    }
}

/// Returns the schema of a parameter with the definitions that it may refer to.
fn with_definitions(property: &Json, schema: &Json) -> Json {
    let mut property = property.clone();
    let refers = property.to_string().contains("\"$ref\"");
    let Some(object) = property.as_object_mut().filter(|_| refers) else { return property };
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = schema.get(key) {
            object.entry(key).or_insert_with(|| definitions.clone());
        }
    }
    property
}

/// Returns the expression of parameters in order, each with whether it is required, with a text between the present
/// ones. Each parameter and each rest of the list is one rule: a grammar grows with the number of parameters.
fn sequence(writer: &mut Writer<'_>, parameters: &[(String, bool)], separator: &str) -> String {
    let optional = |text: String, is_required: bool| if is_required { text } else { format!("({text})?") };
    if separator.is_empty() {
        let all = parameters.iter().map(|(text, is_required)| optional(text.clone(), *is_required));
        return all.collect::<Vec<_>>().join(" ");
    }
    if parameters.is_empty() {
        return String::new();
    }
    let (mut starts, mut rest) = (Vec::new(), String::new());
    for (text, is_required) in parameters.iter().rev() {
        let parameter = writer.rule(text);
        if *is_required {
            starts.clear();
        }
        starts.push(format!("{parameter} {rest}"));
        let more = optional(format!("{separator} {parameter}"), *is_required);
        rest = writer.rule(&format!("{more} {rest}"));
    }
    starts.reverse();
    optional(format!("({})", starts.join(" | ")), parameters.iter().any(|(_, is_required)| *is_required))
}
