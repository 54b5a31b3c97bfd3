//! The parsers of a field's text.
//!
//! Like the reference, most faults of a parser's arguments are errors only when the parser needs the argument.

use tandem_template::python::LoadsError;

use super::elements;
use super::fault::{ContentError, Fault};
use super::free_json;
use super::pattern::{Pattern, PatternError, find_all, is_word};
use super::python;
use super::value::{Dict, Keys, Value};
use super::written::Unread;
use super::written_calls::Form;

type Needed<T> = Result<T, Fault>;

/// A parser of a field's text, with its arguments.
#[derive(Debug)]
pub(super) struct Content {
    strip: bool,
    rule: Needed<Rule>,
}

#[derive(Debug)]
enum Rule {
    Text,
    Int,
    Float,
    Bool,
    Json {
        keys: JsonKeys,
        delims: Needed<Vec<(String, String)>>,
        allow_non_json: bool,
    },
    XmlInline {
        tags: Needed<Pattern>,
        opening: String,
        values: Values,
        merges: bool,
        groups: Groups,
    },
    KvLines {
        line_sep: Needed<Option<String>>,
        kv_sep: Needed<String>,
        values: Values,
    },
    Calls(Form),
    /// The text before each tag.
    Elements(String),
}

/// How the keys of objects are written.
#[derive(Debug, Clone, Copy)]
enum JsonKeys {
    Quoted,
    /// Some without quotes, as the reference finds them.
    Unquoted,
    /// Some without quotes, also with characters besides those of a word. Only the rules of this project have it.
    Free,
}

/// Names of groups of a tag's pattern. Only the rules of this project have them.
#[derive(Debug)]
struct Groups {
    /// Takes part in a match if the value is JSON.
    json: Option<String>,
    /// The value, if it takes part in a match.
    text: Option<String>,
}

/// The parser of the values of an object, if there is one.
type Values = Option<Needed<Box<Content>>>;

/// The parsers that the reference lacks.
const OWN: [&str; 3] = ["json-calls", "python-calls", "xml-elements"];

/// Returns true if a name is that of a parser. Only the rules of this project have their own.
pub(super) fn is_known(name: &str, is_built_in: bool) -> bool {
    ["text", "int", "float", "bool", "json", "xml-inline", "kv-lines"].contains(&name)
        || is_built_in && OWN.contains(&name)
}

/// Returns true if the chunks of a parser's text are parts of its value.
pub(super) fn is_streamable(name: &str) -> bool {
    ["text", "int", "float", "bool"].contains(&name)
}

impl Content {
    /// Returns the parser with a name and arguments. Fails for patterns that are not supported.
    pub(super) fn new(name: &str, args: Option<&Value>, place: &str, is_built_in: bool) -> Result<Self, Fault> {
        let empty = Dict::new();
        let args = match args {
            None => &empty,
            Some(Value::Dict(args)) => args,
            Some(other) => {
                let (place, got) = (place.to_owned(), other.type_name());
                return Ok(Self { strip: true, rule: Err(Fault::Type { place, got, wanted: "an object" }) });
            }
        };
        let is_on = |key| args.get(key).is_some_and(Value::is_true);
        let group = |key| args.get(key).filter(|_| is_built_in).and_then(Value::as_text).map(str::to_owned);
        let rule = match name {
            "text" => Ok(Rule::Text),
            "int" => Ok(Rule::Int),
            "float" => Ok(Rule::Float),
            "bool" => Ok(Rule::Bool),
            "json" => Ok(Rule::Json {
                keys: match (is_on("unquoted_keys"), is_built_in) {
                    (false, _) => JsonKeys::Quoted,
                    (true, false) => JsonKeys::Unquoted,
                    (true, true) => JsonKeys::Free,
                },
                delims: delims(args.get("string_delims"), place),
                allow_non_json: is_on("allow_non_json"),
            }),
            "xml-inline" => Ok(Rule::XmlInline {
                tags: tags(args, place)?,
                values: values(args, place)?,
                opening: args.get("tag_pattern").and_then(Value::as_text).map(literal_start).unwrap_or_default(),
                merges: is_on("merge_duplicates"),
                groups: Groups { json: group("json_group"), text: group("text_group") },
            }),
            "kv-lines" => Ok(Rule::KvLines {
                line_sep: match args.get("line_sep") {
                    None => Ok(Some("\n".to_owned())),
                    Some(Value::Null) => Ok(None),
                    Some(value) => non_empty(value, &format!("{place}.line_sep")).map(Some),
                },
                kv_sep: args.get("kv_sep").map_or(Ok(":".to_owned()), |sep| non_empty(sep, &format!("{place}.kv_sep"))),
                values: values(args, place)?,
            }),
            "json-calls" if is_built_in => match args.get("name_pattern") {
                Some(Value::Text(pattern)) => match Pattern::new(pattern) {
                    Ok(pattern) => Ok(Rule::Calls(Form::NamedJson(pattern))),
                    Err(source) => return Err(Fault::Pattern { place: format!("{place}.name_pattern"), source }),
                },
                _ => Ok(Rule::Calls(Form::Json { is_strict: is_on("strict") })),
            },
            "python-calls" if is_built_in => Ok(Rule::Calls(Form::Python)),
            "xml-elements" if is_built_in => {
                Ok(Rule::Elements(args.get("mark").and_then(Value::as_text).unwrap_or_default().to_owned()))
            }
            _ => Err(Fault::Parser { place: place.to_owned(), name: name.to_owned() }),
        };
        Ok(Self { strip: args.get("strip").is_none_or(Value::is_true), rule })
    }

    /// Returns whether white space around the text is left out, if the value is the text.
    pub(super) fn strips_text(&self) -> Option<bool> {
        matches!(self.rule, Ok(Rule::Text)).then_some(self.strip)
    }

    /// Returns the value of a text.
    fn parse(&self, text: &str, keys: Keys) -> Result<Value, ContentError> {
        let stripped = self.stripped(text);
        match self.rule.as_ref().map_err(fault)? {
            Rule::Text => Ok(Value::Text(stripped.to_owned())),
            Rule::Int => python::int(stripped).map(Value::Int).ok_or(ContentError::NotA("an integer")),
            Rule::Float => python::float(stripped).map(Value::Float).ok_or(ContentError::NotA("a number")),
            Rule::Bool => Ok(Value::Bool(stripped == "1" || stripped.eq_ignore_ascii_case("true"))),
            Rule::Json { keys: json_keys, delims, allow_non_json } => {
                let delims = delims.as_ref().map_err(fault)?;
                match Value::loads(&standard_json(text, delims, *json_keys)?, keys) {
                    Err(ContentError::Json(LoadsError::NotJson)) if *allow_non_json => {
                        Ok(Value::Text(stripped.to_owned()))
                    }
                    loaded => loaded,
                }
            }
            Rule::XmlInline { tags, values, merges, groups, .. } => {
                let tags = tags.as_ref().map_err(fault)?;
                xml_inline(text, tags, values.as_ref(), *merges, groups, keys).map(Value::from)
            }
            Rule::KvLines { line_sep, kv_sep, values } => {
                let line_sep = line_sep.as_ref().map_err(fault)?;
                self.kv_lines(text, line_sep.as_deref(), kv_sep, values.as_ref(), keys).map(Value::from)
            }
            Rule::Elements(mark) => elements::elements(text, mark).map(Value::from),
            // Calls are between anchors: `parse_between` reads them.
            Rule::Calls(_) => Err(ContentError::NotA("a value")),
        }
    }

    /// Returns true if the text itself marks which of its values are texts.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self.rule, Ok(Rule::XmlInline { groups: Groups { json: Some(_), .. }, .. }))
    }

    /// Returns true if values within values are texts too, whose types the schemas of tools decide.
    pub(super) fn is_deeply_untyped(&self) -> bool {
        matches!(self.rule, Ok(Rule::Elements(_)))
    }

    /// Returns the value of the text between two anchors, and the parts that it lacks. Lists of calls may begin and end
    /// within the anchors. Their keys are distinct.
    pub(super) fn parse_between(
        &self,
        opening: &str,
        text: &str,
        closing: &str,
        keys: Keys,
    ) -> Result<(Value, Vec<Unread>), ContentError> {
        match &self.rule {
            Ok(Rule::Calls(form)) => {
                let written = form.parse(opening, text, closing)?;
                Ok((Value::List(written.calls), written.unread))
            }
            _ => Ok((self.parse(text, keys)?, Vec::new())),
        }
    }

    /// Fails if the value lacks a part of the text: the reference leaves out text that is in no tag. Fails also if the
    /// answer ends before the value does: further tags could follow. Fails if a tag begins within another: the end of
    /// the other is missing.
    pub(super) fn check_whole(&self, text: &str, is_cut: bool) -> Result<(), ContentError> {
        if is_cut && matches!(self.rule, Ok(Rule::XmlInline { .. } | Rule::Elements(_))) {
            return Err(ContentError::NotA("whole"));
        }
        let Ok(Rule::XmlInline { tags: Ok(tags), opening, .. }) = &self.rule else { return Ok(()) };
        let mut end = 0;
        for found in find_all(tags, text) {
            outside(text, end, found.start)?;
            end = found.end;
            let within = text.get(found.start..end).and_then(|tag| tag.strip_prefix(opening.as_str()));
            if !opening.is_empty() && within.is_some_and(|within| within.contains(opening.as_str())) {
                return Err(ContentError::Within(found.start));
            }
        }
        outside(text, end, text.len())
    }

    fn stripped<'t>(&self, text: &'t str) -> &'t str {
        if self.strip { python::strip(text) } else { text }
    }

    /// Returns the value of a text that a match lacks. Only a parser that passes texts on has one.
    fn parse_none(&self, at: usize) -> Result<Value, ContentError> {
        match self.rule.as_ref().map_err(fault)? {
            Rule::Text if !self.strip => Ok(Value::Null),
            _ => Err(ContentError::NoValue(at)),
        }
    }

    fn kv_lines(
        &self,
        text: &str,
        line_sep: Option<&str>,
        kv_sep: &Needed<String>,
        values: Option<&Needed<Box<Content>>>,
        keys: Keys,
    ) -> Result<Dict, ContentError> {
        let lines: Box<dyn Iterator<Item = &str>> = match line_sep {
            Some(sep) => Box::new(text.split(sep)),
            None => Box::new(text.split(python::is_space).filter(|line| !line.is_empty())),
        };
        let mut out = Dict::new();
        for line in lines.map(|line| self.stripped(line)).filter(|line| !line.is_empty()) {
            if let Some((key, value)) = line.split_once(kv_sep.as_ref().map_err(fault)?.as_str()) {
                let value = value_of(Some(self.stripped(value)), values, 0, keys)?;
                keys.insert(&mut out, self.stripped(key).to_owned(), value)?;
            }
        }
        Ok(out)
    }
}

/// Returns the text with which a match of the pattern's first choice begins.
fn literal_start(pattern: &str) -> String {
    let (mut literal, mut chars) = (String::new(), pattern.chars().peekable());
    while let Some(c) = chars.next() {
        let char = match c {
            '\\' => chars.next().filter(|escaped| !escaped.is_alphanumeric()),
            c => Some(c).filter(|c| !"([{.*+?^$|)".contains(*c)),
        };
        let is_repeated = chars.peek().is_some_and(|next| "*+?{".contains(*next));
        match char.filter(|_| !is_repeated) {
            Some(char) => literal.push(char),
            None => break,
        }
    }
    literal
}

/// Fails if a part of a text is more than white space.
fn outside(text: &str, start: usize, end: usize) -> Result<(), ContentError> {
    let part = text.get(start..end).unwrap_or_default();
    if python::strip(part).is_empty() { Ok(()) } else { Err(ContentError::Outside(start)) }
}

fn fault(fault: &Fault) -> ContentError {
    ContentError::Fault(fault.clone())
}

fn non_empty(value: &Value, place: &str) -> Needed<String> {
    match value {
        Value::Text(text) if text.is_empty() => Err(Fault::Empty { place: place.to_owned() }),
        Value::Text(text) => Ok(text.clone()),
        other => Err(not_a_text(other, place)),
    }
}

fn not_a_text(value: &Value, place: &str) -> Fault {
    Fault::Type { place: place.to_owned(), got: value.type_name(), wanted: "a text" }
}

fn tags(args: &Dict, place: &str) -> Result<Needed<Pattern>, Fault> {
    let place = format!("{place}.tag_pattern");
    let pattern = match args.get("tag_pattern") {
        None | Some(Value::Null) => return Ok(Err(Fault::Missing { place })),
        Some(Value::Text(pattern)) => Pattern::new(pattern),
        Some(other) => return Ok(Err(not_a_text(other, &place))),
    };
    match pattern {
        Ok(pattern) => Ok(Ok(pattern)),
        Err(source @ PatternError::Invalid { .. }) => Ok(Err(Fault::Pattern { place, source })),
        Err(source) => Err(Fault::Pattern { place, source }),
    }
}

fn values(args: &Dict, place: &str) -> Result<Values, Fault> {
    let place = format!("{place}.value_parser");
    let parser = match args.get("value_parser") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Dict(parser)) => parser,
        Some(other) => {
            return Ok(Some(Err(Fault::Type { place, got: other.type_name(), wanted: "an object" })));
        }
    };
    match parser.get("name") {
        None => Ok(Some(Ok(Box::new(Content::new("text", parser.get("args"), &format!("{place}.args"), false)?)))),
        Some(Value::Text(name)) => {
            Ok(Some(Ok(Box::new(Content::new(name, parser.get("args"), &format!("{place}.args"), false)?))))
        }
        Some(other) => Ok(Some(Err(not_a_text(other, &format!("{place}.name"))))),
    }
}

/// Returns the pairs of delimiters. Python takes two characters of a text, and two keys of an object, for a pair too.
fn delims(value: Option<&Value>, place: &str) -> Needed<Vec<(String, String)>> {
    let place = format!("{place}.string_delims");
    let wrong = |value: &Value| Fault::Type { place: place.clone(), got: value.type_name(), wanted: "a list of pairs" };
    let Some(value) = value else { return Ok(Vec::new()) };
    let parts = parts(value).ok_or_else(|| wrong(value))?;
    let pair = |value: &Value| match self::parts(value)?.as_slice() {
        [Value::Text(open), Value::Text(close)] => Some((open.clone(), close.clone())),
        _ => None,
    };
    parts.iter().map(|part| pair(part).ok_or_else(|| wrong(part))).collect()
}

/// Returns what Python iterates over.
fn parts(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::List(items) => Some(items.clone()),
        Value::Text(text) => Some(text.chars().map(|c| Value::Text(c.to_string())).collect()),
        Value::Dict(entries) => Some(entries.keys().map(|key| Value::Text(key.clone())).collect()),
        _ => None,
    }
}

/// Returns a dialect of JSON as JSON.
fn standard_json(text: &str, delims: &[(String, String)], keys: JsonKeys) -> Result<String, ContentError> {
    if let Some(at) = text.find([MARK_START, MARK_END]).filter(|_| !delims.is_empty()) {
        return Err(ContentError::Reserved(at));
    }
    let (mut working, mut captured) = (text.to_owned(), Vec::new());
    for (open, close) in delims {
        working = with_marks(&working, open, close, &mut captured);
    }
    match keys {
        JsonKeys::Quoted => {}
        JsonKeys::Unquoted => working = with_quoted_keys(&working),
        JsonKeys::Free => working = free_json::quoted(&working, MARK_START),
    }
    Ok(if captured.is_empty() { working } else { with_strings(&working, &captured) })
}

/// The characters around the number of a text that was between delimiters.
const MARK_START: char = '\u{1}';
const MARK_END: char = '\u{2}';

/// Replaces texts between delimiters by their numbers.
fn with_marks(text: &str, open: &str, close: &str, captured: &mut Vec<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let mut mark = |out: &mut String, inner: &str| {
        out.push_str(&format!("{MARK_START}{}{MARK_END}", captured.len()));
        captured.push(inner.to_owned());
    };
    if open.is_empty() && close.is_empty() {
        for c in text.chars() {
            mark(&mut out, "");
            out.push(c);
        }
        mark(&mut out, "");
        return out;
    }
    while let Some((before, (inner, after))) =
        rest.find(open).and_then(|at| Some((rest.get(..at)?, rest.get(at + open.len()..)?.split_once(close)?)))
    {
        out.push_str(before);
        mark(&mut out, inner);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Puts keys after a brace or a comma that have no quotes into quotes.
fn with_quoted_keys(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['{', ',']) {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
        let (key, next) = after.split_at(end);
        match next.strip_prefix(':') {
            Some(next) if !key.is_empty() => {
                out.push('"');
                out.push_str(key);
                out.push_str("\":");
                rest = next;
            }
            _ => {
                out.push_str(key);
                rest = next;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Replaces the numbers of texts by the texts, as strings of JSON.
fn with_strings(text: &str, captured: &[String]) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(MARK_START) {
        out.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (digits, next) = after.split_at(end);
        // No number with leading zeros was put here.
        let index = digits.parse().ok().filter(|index: &usize| index.to_string() == digits);
        let number = index.and_then(|index| captured.get(index)).zip(next.strip_prefix(MARK_END));
        match number {
            Some((string, after)) => {
                out.push_str(&serde_json::Value::from(string.as_str()).to_string());
                rest = after;
            }
            None => {
                out.push(MARK_START);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn value_of(
    text: Option<&str>,
    values: Option<&Needed<Box<Content>>>,
    at: usize,
    keys: Keys,
) -> Result<Value, ContentError> {
    match (values, text) {
        (None, Some(text)) => Ok(Value::Text(text.to_owned())),
        (None, None) => Ok(Value::Null),
        (Some(parser), Some(text)) => parser.as_ref().map_err(fault)?.parse(text, keys),
        (Some(parser), None) => parser.as_ref().map_err(fault)?.parse_none(at),
    }
}

fn xml_inline(
    text: &str,
    tags: &Pattern,
    values: Option<&Needed<Box<Content>>>,
    merges: bool,
    groups: &Groups,
    keys: Keys,
) -> Result<Dict, ContentError> {
    let index = |name: &str| tags.names().iter().position(|known| known == name);
    let (key_index, value_index) = (index("key"), index("value"));
    let [json_index, text_index] = [&groups.json, &groups.text].map(|name| name.as_deref().and_then(index));
    let mut out = Dict::new();
    for found in find_all(tags, text) {
        let group = |index: usize| found.group(index).and_then(|(start, end)| text.get(start..end));
        let key = key_index.and_then(group).ok_or(ContentError::NoKey(found.start))?;
        let text = value_index.map_or(Some(""), group).or_else(|| text_index.and_then(group));
        let value = match text.filter(|_| json_index.and_then(group).is_some()) {
            Some(json) => Value::loads(json, keys)?,
            None => value_of(text, values, found.start, keys)?,
        };
        match out.get_mut(key) {
            Some(Value::List(earlier)) if merges => earlier.push(value),
            Some(earlier) if merges => *earlier = Value::List(vec![std::mem::replace(earlier, Value::Null), value]),
            _ => keys.insert(&mut out, key.to_owned(), value)?,
        }
    }
    Ok(out)
}
