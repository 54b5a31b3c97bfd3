//! The grammar of one tool's arguments, by the schema of its parameters.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::lark::{Writer, quoted, with_key};
use crate::answer_rules::{Arguments, Form, Kind, Notation, Spelling};
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{Budget, Rules, listed, name, plain, schema};

/// Keywords with which a schema has properties in other places than `properties`.
const COMBINING: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas", "unevaluatedProperties"];

/// Keywords that limit a value beside a combination of schemas.
const LIMITING: [&str; 8] = ["type", "enum", "const", "minimum", "maximum", "pattern", "anyOf", "oneOf"];
/// Keywords that limit which properties an object has together.
const COUNTING: [&str; 4] = ["minProperties", "maxProperties", "dependentRequired", "propertyNames"];

/// Returns the expression of a call from the tool's name to the end of its arguments.
///
/// # Errors
/// The tool has a name that a call cannot have, or a parameter that the notation cannot write.
pub(super) fn tool(
    writer: &mut Writer<'_>,
    rules: &Arc<Rules>,
    index: usize,
    tool: &Json,
    budget: &mut Budget,
) -> Result<String, Error> {
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
        Arguments::Json => json_arguments(writer.notation, schema),
        Arguments::Named { key, separator, forms } => {
            let named = Named { key, separator, forms };
            let keys = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
            match keys.map(|(key, _)| key).find(|key| !writer.notation.is_read(rules, tool_name, &[key])) {
                Some(key) => Err(format!("has {key:?}, a name that the rules of the model do not read")),
                None => named.parameters(writer, schema, budget),
            }
        }
    };
    let arguments = arguments.map_err(|problem| refused("parameters", problem))?;
    Ok(format!("{start} {arguments}"))
}

/// Returns the expression of arguments that are one JSON object.
fn json_arguments(notation: &Notation, schema: &Json) -> Result<String, String> {
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("must have the type object".to_owned());
    }
    let end = notation.end.trim_start_matches(|c: char| c.is_whitespace() || "}])".contains(c)).trim();
    if !end.is_empty() && listed_texts(schema).iter().any(|text| text.contains(end)) {
        return Err(format!("lists a text with {end:?}, which ends a call of this model"));
    }
    Ok(format!("%json {}", closed(schema)))
}

/// Returns the texts that values of a schema must have: those of `enum` and `const` at any depth, and the names of properties.
fn listed_texts(schema: &Json) -> Vec<&str> {
    let mut texts = Vec::new();
    match schema {
        Json::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("enum" | "const", value) => texts.extend(texts_within(value)),
                    ("properties", Json::Object(properties)) => {
                        texts.extend(properties.keys().map(String::as_str));
                        properties.values().for_each(|property| texts.extend(listed_texts(property)));
                    }
                    (_, value) => texts.extend(listed_texts(value)),
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| texts.extend(listed_texts(item))),
        _ => {}
    }
    texts
}

/// Returns the texts in a value.
fn texts_within(value: &Json) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Json::String(text) => Box::new(std::iter::once(text.as_str())),
        Json::Array(items) => Box::new(items.iter().flat_map(texts_within)),
        Json::Object(entries) => Box::new(entries.values().flat_map(texts_within)),
        _ => Box::new(std::iter::empty()),
    }
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
    fn parameters(&self, writer: &mut Writer<'_>, schema: &Json, budget: &mut Budget) -> Result<String, String> {
        if let Some(key) = COMBINING.iter().find(|key| schema.get(**key).is_some()) {
            return Err(format!("must list its parameters in `properties` for a tool_choice, has {key}"));
        }
        if let Some(key) = COUNTING.iter().find(|key| schema.get(**key).is_some()) {
            return Err(format!("has {key}, which no grammar of this model's notation can keep"));
        }
        let (none, empty) = (Map::new(), Vec::new());
        let properties = match schema.get("properties") {
            None => &none,
            Some(properties) => properties.as_object().ok_or("has `properties` that are no object")?,
        };
        let required = match schema.get("required") {
            None => &empty,
            Some(required) => required.as_array().ok_or("has a `required` that is no list")?,
        };
        if let Some(name) = required.iter().find(|name| name.as_str().is_none_or(|name| !properties.contains_key(name)))
        {
            return Err(format!("requires {name}, which is not in `properties`"));
        }
        let mut parameters = Vec::new();
        for (name, property) in properties {
            let property = plain(property, schema, false, budget);
            if budget.is_exceeded() {
                return Err("has schemas that refer to others too often".to_owned());
            }
            let choices = self.choices(writer, name, &property, schema)?;
            let is_required = required.iter().any(|required| required == name);
            parameters.push((format!("{} {choices}", writer.text(&[self.key, name].concat())), is_required));
        }
        let separator = writer.text(self.separator);
        Ok(sequence(writer, &parameters, &separator))
    }

    fn form(&self, kind: Kind) -> Option<&Form> {
        self.forms.iter().find(|(other, _)| *other == kind).map(|(_, form)| form)
    }

    /// Returns the expression of a parameter's value, of one type or several.
    fn choices(&self, writer: &mut Writer<'_>, name: &str, property: &Json, schema: &Json) -> Result<String, String> {
        let mut expressions = Vec::new();
        for choice in alternatives(property)? {
            let expression =
                self.choice(writer, name, &choice, schema).map_err(|problem| format!("has {name:?} {problem}"))?;
            if !expressions.contains(&expression) {
                expressions.push(expression);
            }
        }
        match &expressions[..] {
            [] => Err(format!("has {name:?} without a value that it may have")),
            [only] => Ok(only.clone()),
            _ => Ok(format!("({})", expressions.join(" | "))),
        }
    }

    /// Returns the expression of a value of one type, or of any.
    fn choice(&self, writer: &mut Writer<'_>, name: &str, property: &Json, schema: &Json) -> Result<String, String> {
        let unknown = |kind: &str| format!("of type {kind}, which the model's notation writes in no known way");
        if let Some(target) = property.get("$ref") {
            return Err(format!("which refers to {target}, which is not in the schema or refers to itself"));
        }
        if property == &Json::Bool(false) {
            return Err("without a value that it may have".to_owned());
        }
        if property.get("allOf").is_some() || property.get("const").is_some() && property.get("enum").is_some() {
            return Err("with allOf, or const beside enum, which the model's notation cannot keep".to_owned());
        }
        let listed = property.as_object().and_then(listed);
        let Some(kind) = property.get("type") else {
            return match listed {
                Some(_) => Err("with values of several types, which the model's notation cannot list".to_owned()),
                // Any value is written as a text, or as JSON where that differs.
                None => {
                    let text = self.form(Kind::String).ok_or_else(|| unknown("string"))?;
                    let other = self.form(Kind::Object).filter(|other| other.middle != text.middle);
                    let text = value(writer, text, name, None, property, schema)?;
                    let other = other.map(|other| value(writer, other, name, None, property, schema)).transpose()?;
                    Ok(other.map_or(text.clone(), |other| format!("({text} | {other})")))
                }
            };
        };
        let kind_name = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
        let form = Kind::of(&kind_name).and_then(|kind| self.form(kind)).ok_or_else(|| unknown(&kind_name))?;
        if let Some(text) = listed.iter().flatten().flat_map(texts_within).find(|text| self.ends_in(text)) {
            return Err(format!("with the value {text:?}, which has the mark of the end of a value"));
        }
        value(writer, form, name, listed.as_deref(), property, schema)
    }

    /// Returns true if a text has the mark that ends a text.
    fn ends_in(&self, text: &str) -> bool {
        let end = self.form(Kind::String).map(|form| form.end.trim()).filter(|end| !end.is_empty());
        end.is_some_and(|end| text.contains(end) || end.starts_with(['"', '\'']) && text.contains(['\\', '\n']))
    }
}

/// Returns the schemas of one type each that a parameter's schema allows.
///
/// # Errors
/// The schema combines others in a way that one choice after another cannot express.
fn alternatives(property: &Json) -> Result<Vec<Json>, String> {
    let Some(object) = property.as_object() else { return Ok(vec![property.clone()]) };
    for key in ["anyOf", "oneOf"] {
        let Some(Json::Array(schemas)) = object.get(key) else { continue };
        if let Some(other) = object.keys().find(|other| *other != key && LIMITING.contains(&other.as_str())) {
            return Err(format!("has {key} beside {other}, which no grammar of this model's notation can keep"));
        }
        let nested: Result<Vec<_>, _> = schemas.iter().map(alternatives).collect();
        return Ok(nested?.concat());
    }
    let Some(Json::Array(kinds)) = object.get("type") else { return Ok(vec![property.clone()]) };
    let mut known: Vec<&Json> = Vec::new();
    for kind in kinds {
        if kind.as_str().and_then(Kind::of).is_none() {
            return Err(format!("may have the type {kind}, which the model's notation writes in no known way"));
        }
        if !known.contains(&kind) {
            known.push(kind);
        }
    }
    let of_kind = |kind: &&Json| {
        let mut object = object.clone();
        object.insert("type".to_owned(), (*kind).clone());
        object.into()
    };
    Ok(known.iter().map(of_kind).collect())
}

/// Returns the expression of a value with the texts around it. `listed` are the values that it may be.
fn value(
    writer: &mut Writer<'_>,
    form: &Form,
    name: &str,
    listed: Option<&[Json]>,
    property: &Json,
    schema: &Json,
) -> Result<String, String> {
    let (middle, end) = (with_key(&form.middle, name), with_key(&form.end, name));
    let (middle, last) = (writer.text(&middle), writer.text(&end));
    let choices = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        if texts.is_empty() {
            Err("without a value of its type".to_owned())
        } else {
            Ok(format!("({})", texts.join(" | ")))
        }
    };
    let value = match (&form.spelling, listed) {
        (Spelling::Words([yes, no]), listed) => {
            let is_listed = |value: bool| listed.is_none_or(|listed| listed.contains(&value.into()));
            let words = [(yes, true), (no, false)].into_iter().filter(|(_, value)| is_listed(*value));
            let words: Vec<&str> = words.map(|(word, _)| word.as_str()).collect();
            format!("{} {last}", choices(&words)?)
        }
        (Spelling::Json, _) => format!("%json {} {last}", with_definitions(property, schema)),
        (Spelling::Raw, Some(listed)) => {
            let texts: Option<Vec<&str>> = listed.iter().map(Json::as_str).collect();
            let texts = texts.ok_or("with values of several types, which the model's notation cannot list")?;
            format!("{} {last}", choices(&texts)?)
        }
        (Spelling::Raw, None) => match end.chars().next().filter(|first| "\"'".contains(*first)) {
            Some(quote) => writer.quoted_until(quote, &end),
            // The rules end a text at the first mark, with or without the white space before it.
            None => writer.until(Some(end.trim_start()).filter(|end| !end.is_empty()).unwrap_or(&end)),
        },
    };
    Ok(format!("{middle} {value}"))
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
