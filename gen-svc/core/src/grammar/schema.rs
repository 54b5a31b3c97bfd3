//! JSON schemas in the form of the grammar library.
//!
//! The library refuses some schemas of usual generators, and computes with 64-bit floats. Schemas are changed so
//! that it keeps to them, and refused where it would not.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value, json};

use super::source::Whitespace;

/// Formats of strings that the library keeps to. JSON Schema makes all others annotations.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// Keywords with a schema.
const SCHEMAS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords with a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords with schemas by name.
const MAPS: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Keywords with a count, which may be written as a float.
const COUNTS: [&str; 6] = ["maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"];
/// The settings of the library inside a schema.
const SETTINGS: &str = "x-guidance";
/// White space between two tokens, if it is bounded.
const BOUNDED_WHITESPACE: &str = r" |(\r?\n){1,2}[ \t]{0,40}";
/// Pydantic's pattern of decimal numbers, which looks ahead, and one of the same strings that does not.
const DECIMAL: (&str, &str) = (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", r"^[+-]?(\d+\.?\d*|\.\d+)$");
/// The lowest bound that the library can compute with. It is a 64-bit float.
const LOWEST: i64 = -9_223_372_036_854_774_784;
/// The largest integer up to which every integer is a 64-bit float.
const LARGEST_EXACT: u64 = 1 << 53;

/// Returns the schema in the library's form.
///
/// # Errors
/// The schema has settings of the library, or an integer that the library would round.
pub(super) fn adapt(mut schema: Value, whitespace: Whitespace) -> Result<Value, String> {
    let root = schema.clone();
    let mut references = References::new(&root);
    adapt_schema(&mut schema, "#", &mut references)?;
    references.define_in(&mut schema)?;
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if let Value::Object(root) = &mut schema {
        root.insert(SETTINGS.to_owned(), settings(whitespace));
    }
    Ok(schema)
}

fn settings(whitespace: Whitespace) -> Value {
    match whitespace {
        Whitespace::Free => json!({}),
        Whitespace::Spaced => json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "}),
        Whitespace::Nothing => json!({"whitespace_flexible": false}),
        Whitespace::Bounded => json!({"whitespace_pattern": BOUNDED_WHITESPACE}),
    }
}

/// Adapts a schema and those inside it. `at` is its JSON pointer.
fn adapt_schema(schema: &mut Value, at: &str, references: &mut References<'_>) -> Result<(), String> {
    let Value::Object(fields) = schema else { return Ok(()) };
    if fields.contains_key(SETTINGS) {
        return Err(format!("must not have {SETTINGS}, at {at}: grammar.whitespace has its settings of white space"));
    }
    adapt_strings(fields);
    include_bounds(fields);
    adapt_numbers(fields, at)?;
    if let Some(Value::String(reference)) = fields.get_mut("$ref") {
        references.rename(reference);
    }
    for (key, value) in fields.iter_mut() {
        let (key, at) = (key.as_str(), format!("{at}/{key}"));
        match value {
            Value::Object(named) if MAPS.contains(&key) => {
                let mut named = named.iter_mut();
                named.try_for_each(|(name, inner)| adapt_schema(inner, &format!("{at}/{name}"), references))?;
            }
            Value::Array(list) if LISTS.contains(&key) => {
                let mut list = list.iter_mut().enumerate();
                list.try_for_each(|(i, inner)| adapt_schema(inner, &format!("{at}/{i}"), references))?;
            }
            inner if SCHEMAS.contains(&key) => adapt_schema(inner, &at, references)?,
            _ => {}
        }
    }
    Ok(())
}

/// Removes annotations, and replaces a pattern.
fn adapt_strings(fields: &mut Map<String, Value>) {
    if fields.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        fields.remove("format");
    }
    if let Some(pattern) = fields.get_mut("pattern").filter(|pattern| **pattern == DECIMAL.0) {
        *pattern = DECIMAL.1.into();
    }
    for count in COUNTS {
        let float = fields.get(count).filter(|count| !count.is_u64()).and_then(Value::as_f64);
        if let Some(whole) = float.filter(|float| *float >= 0.0 && float.fract() == 0.0 && *float < 1e15) {
            fields.insert(count.to_owned(), (whole as u64).into());
        }
    }
}

/// Returns true if no number but an integer has the type.
fn is_integer(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::Array(types)) => {
            types.iter().any(|name| name == "integer") && types.iter().all(|name| name != "number")
        }
        name => name.is_some_and(|name| name == "integer"),
    }
}

/// Writes bounds that an integer must exceed as bounds that it may have: the library would add 1 to a float.
fn include_bounds(fields: &mut Map<String, Value>) {
    if !is_integer(fields) {
        return;
    }
    for (exclusive, inclusive, step) in [("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)] {
        let Some(bound) = fields.get(exclusive).and_then(whole) else { continue };
        let Some(bound) = bound.checked_add(step) else { continue };
        let other = fields.get(inclusive).and_then(whole);
        if fields.contains_key(inclusive) && other.is_none() {
            continue; // a bound with a fraction, or none
        }
        let stricter = other.map_or(bound, |other| if step > 0 { other.max(bound) } else { other.min(bound) });
        fields.remove(exclusive);
        fields.insert(inclusive.to_owned(), serde_json::from_str(&stricter.to_string()).unwrap_or_default());
    }
}

/// Returns an integer.
fn whole(value: &Value) -> Option<i128> {
    value.as_number()?.to_string().parse().ok()
}

/// Fails if the library would round an integer. Bounds beyond those of a signed 64-bit integer become the nearest
/// ones within it: every output still has the schema.
fn adapt_numbers(fields: &mut Map<String, Value>, at: &str) -> Result<(), String> {
    let is_integer = is_integer(fields);
    for key in ["const", "enum"] {
        if let Some(rounded) = fields.get(key).and_then(rounded) {
            return Err(inexact(rounded, &format!("{at}/{key}")));
        }
    }
    for key in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"] {
        let Some(Value::Number(bound)) = fields.get(key) else { continue };
        let (is_low, is_high) = (key.ends_with("inimum"), key.ends_with("aximum"));
        let (below, above) = (is_below(bound), is_above(bound));
        if is_low && below {
            fields.insert(key.to_owned(), LOWEST.into());
        } else if is_high && above {
            let highest = if is_integer { i64::MAX } else { -LOWEST };
            fields.insert(key.to_owned(), highest.into());
        } else if below || above || !is_exact(bound, is_integer) {
            return Err(inexact(bound, &format!("{at}/{key}")));
        }
    }
    Ok(())
}

fn inexact(number: &Number, at: &str) -> String {
    format!("must have integers that 64-bit floats represent exactly: {number} at {at} is not one; use a string")
}

/// Returns the first integer in a value that the library would round.
fn rounded(value: &Value) -> Option<&Number> {
    match value {
        Value::Number(number) => Some(number).filter(|number| !is_exact(number, true)),
        Value::Array(items) => items.iter().find_map(rounded),
        Value::Object(fields) => fields.values().find_map(rounded),
        _ => None,
    }
}

/// Returns the digits of an integer, and whether it is negative. None: it is written as a float.
fn digits(number: &Number) -> Option<(String, bool)> {
    let text = number.to_string();
    let (digits, is_negative) = text.strip_prefix('-').map_or((text.as_str(), false), |digits| (digits, true));
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| (digits.to_owned(), is_negative))
}

/// Returns true for integers up to the lowest one of 64 bits, which has no negative in 64 bits.
fn is_below(number: &Number) -> bool {
    digits(number).is_some_and(|(_, is_negative)| is_negative) && number.as_i64().is_none_or(|value| value == i64::MIN)
}

/// Returns true for integers from the highest one of 64 bits.
fn is_above(number: &Number) -> bool {
    digits(number).is_some_and(|(_, is_negative)| !is_negative) && number.as_i64().is_none_or(|value| value == i64::MAX)
}

/// Returns true if the library computes with this number and no other. It reads a 64-bit float. Of one inside 64
/// bits it takes the integer if `is_integer`, else it takes the shortest digits.
fn is_exact(number: &Number, is_integer: bool) -> bool {
    let Some((digits, is_negative)) = digits(number) else { return true };
    let Some(float) = number.as_f64() else { return false };
    if digits.parse::<u64>().is_ok_and(|value| value <= LARGEST_EXACT) {
        return true;
    }
    match number.as_i64() {
        Some(value) if is_integer => value != i64::MIN && float as i64 == value,
        _ => format!("{}", float.abs()) == digits && (is_negative == (float < 0.0)),
    }
}

/// References to schemas that the library does not find, or that are not adapted in their place: with escapes, or
/// outside the keywords of JSON Schema, as in OpenAPI's `components`. Their schemas get other names.
#[derive(Debug)]
struct References<'a> {
    root: &'a Value,
    /// The new names, by the pointers.
    names: BTreeMap<String, String>,
    /// Pointers whose schemas are not adapted yet.
    pending: Vec<String>,
}

impl<'a> References<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, names: BTreeMap::new(), pending: Vec::new() }
    }

    /// Replaces a reference inside the schema where it is needed.
    fn rename(&mut self, reference: &mut String) {
        let Some(pointer) = reference.strip_prefix('#').filter(|pointer| pointer.starts_with('/')) else { return };
        let has_escapes = pointer.contains(['~', '%']);
        let Some(pointer) = percent_decoded(pointer) else { return };
        let is_elsewhere = !has_escapes && !is_of_keywords(&pointer);
        if !(has_escapes || is_elsewhere) || self.root.pointer(&pointer).is_none() {
            return;
        }
        if !self.names.contains_key(&pointer) {
            let name = self.free_name();
            self.names.insert(pointer.clone(), name);
            self.pending.push(pointer.clone());
        }
        *reference = format!("#/$defs/{}", self.names[&pointer]);
    }

    /// Returns a name that no definition has.
    fn free_name(&self) -> String {
        let is_free = |name: &String| self.root.pointer(&format!("/$defs/{name}")).is_none();
        let names = (self.names.len()..).map(|count| format!("reference-{count}"));
        names.filter(is_free).find(|name| !self.names.values().any(|other| other == name)).unwrap_or_default()
    }

    /// Adds the schemas under their new names, adapted.
    ///
    /// # Errors
    /// As [`adapt`].
    fn define_in(mut self, schema: &mut Value) -> Result<(), String> {
        let mut found = Vec::new();
        while let Some(pointer) = self.pending.pop() {
            let Some(mut inner) = self.root.pointer(&pointer).cloned() else { continue };
            adapt_schema(&mut inner, &format!("#{pointer}"), &mut self)?;
            found.push((self.names[&pointer].clone(), inner));
        }
        if let Some(root) = schema.as_object_mut().filter(|_| !found.is_empty())
            && let Value::Object(definitions) = root.entry("$defs").or_insert_with(|| json!({}))
        {
            definitions.extend(found);
        }
        Ok(())
    }
}

/// Returns true if a pointer leads along keywords, so that its schema is adapted in its place.
fn is_of_keywords(pointer: &str) -> bool {
    let mut steps = pointer.split('/').skip(1).peekable();
    while let Some(key) = steps.next() {
        let is_index = steps.peek().is_some_and(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
        let has_more = MAPS.contains(&key) || (LISTS.contains(&key) && is_index);
        if !(has_more && steps.next().is_some() || SCHEMAS.contains(&key)) {
            return false;
        }
    }
    true
}

/// Decodes the `%` escapes of a URI's fragment. None: they are no UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let escape = after.get(..2).filter(|_| *first == b'%').and_then(|hex| str::from_utf8(hex).ok());
        let byte = escape.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}
