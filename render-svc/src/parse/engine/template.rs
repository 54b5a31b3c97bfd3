//! Loads a `response_template`: how the answers of a model are parsed.

use std::sync::Arc;

use super::content::{self, Content};
use super::fault::Fault;
use super::pattern::{Found, Pattern, PatternError, find_all};
use super::transform::{ShapeError, Transform};
use super::value::{Dict, Value};

const TEMPLATE_KEYS: &[&str] = &["version", "defaults", "fields", "start_anchor", "start_anchor_pattern"];
const FIELD_KEYS: &[&str] = &[
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
];

/// The name of a field that the opening of this one closes too. Only the rules of this project have it.
const INTERRUPTS: &str = "interrupts";

/// Why a response template cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{place} is {got}, not {wanted}")]
    Type { place: String, got: &'static str, wanted: &'static str },
    #[error("{place} has unknown keys: {}", keys.join(", "))]
    UnknownKeys { place: String, keys: Vec<String> },
    #[error("the version is not 1, which is the only one")]
    Version,
    #[error("{place} is empty")]
    Empty { place: String },
    #[error("{place} has both `{literal}` and `{pattern}`")]
    TwoAnchors { place: String, literal: &'static str, pattern: &'static str },
    #[error("{place}: {source}")]
    Pattern { place: String, source: PatternError },
    #[error("{place}.content names no content parser: {name}")]
    Content { place: String, name: String },
    #[error("{0}")]
    Argument(Fault),
    #[error("{place}.join needs `repeats`")]
    JoinWithoutRepeats { place: String },
    #[error("{place}.transform_each needs a `transform`")]
    EachWithoutTransform { place: String },
    #[error("{place}.transform: {source}")]
    Transform { place: String, source: ShapeError },
    #[error("{place} has no `transform` that takes the named groups: {}", names.join(", "))]
    UnusedGroups { place: String, names: Vec<String> },
    #[error("only one field can lack `open` and `open_pattern`: {}", fields.join(", "))]
    TwoImplicit { fields: Vec<String> },
    #[error("the template has neither `start_anchor` nor `start_anchor_pattern`")]
    NoStartAnchor,
}

/// A loaded response template.
#[derive(Debug)]
pub struct Template {
    pub(super) defaults: Dict,
    pub(super) fields: Vec<Field>,
    /// The field that takes the text outside of all others, by its index.
    pub(super) implicit: Option<usize>,
    /// The openings and closings of all fields, which searches refer to by their indexes.
    pub(super) anchors: Vec<Anchor>,
    /// The anchors that are sought outside of all fields but the implicit one.
    pub(super) outer: Vec<usize>,
    start: Option<Pattern>,
    /// The texts of all anchors, without the backslashes of patterns.
    texts: String,
}

/// A field of the message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Arc<str>,
    /// The anchors that close the field, by their indexes: its closing, and openings of fields that interrupt it.
    pub(super) close: Vec<usize>,
    /// True if the end of the answer closes the field too, since its closing matches an empty text.
    pub(super) closes_at_end: bool,
    pub(super) content: Content,
    /// True if the chunks of the field's text are no parts of its value.
    pub(super) is_dirty: bool,
    pub(super) repeats: bool,
    pub(super) join: Option<String>,
    pub(super) is_optional: bool,
    pub(super) transform: Option<Transform>,
    pub(super) transforms_each: bool,
}

/// What opens or closes a field.
#[derive(Debug)]
pub(super) struct Anchor {
    /// The field, by its index.
    pub(super) field: usize,
    pub(super) opens: bool,
    pub(super) pattern: Pattern,
    /// True if a match at the end of the text can become longer.
    pub(super) can_grow: bool,
    /// True if a match waits for its optional parts, also in the middle of the text.
    pub(super) waits: bool,
}

impl Template {
    /// Loads a template.
    pub fn new(template: &Value) -> Result<Self, TemplateError> {
        Self::load(template, false)
    }

    /// Loads a template of this project, which may use parsers of calls that the reference lacks.
    pub fn built_in(template: &Value) -> Result<Self, TemplateError> {
        Self::load(template, true)
    }

    /// Returns the template that reads every answer as content.
    #[must_use]
    pub fn of_text() -> Self {
        Self {
            defaults: Dict::new(),
            fields: Vec::new(),
            implicit: None,
            anchors: Vec::new(),
            outer: Vec::new(),
            start: None,
            texts: String::new(),
        }
    }

    fn load(template: &Value, is_built_in: bool) -> Result<Self, TemplateError> {
        let place = "response_template";
        let template = dict(template, place)?;
        if template.get("version").is_some_and(|version| !version.is_one()) {
            return Err(TemplateError::Version);
        }
        check_keys(template, TEMPLATE_KEYS, place)?;
        let defaults = template.get("defaults").map_or(Ok(Dict::new()), |value| dict(value, "defaults").cloned())?;
        let missing = || TemplateError::Empty { place: "fields".to_owned() };
        let fields = dict(template.get("fields").ok_or_else(missing)?, "fields")?;
        if fields.is_empty() {
            return Err(missing());
        }
        let mut loader = Loader { is_built_in, ..Loader::default() };
        for (name, field) in fields {
            loader.field(name, field)?;
        }
        let implicit = loader.implicit()?;
        let start = anchor(template, ["start_anchor", "start_anchor_pattern"], place)?;
        let start = start.map(|(start, _)| start);
        if start.is_none() && !is_built_in {
            return Err(TemplateError::NoStartAnchor);
        }
        let Loader { mut fields, anchors, texts, interrupted, .. } = loader;
        for (name, opening) in interrupted {
            fields.iter_mut().filter(|field| *field.name == name).for_each(|field| field.close.push(opening));
        }
        let is_outer = |anchor: &Anchor| anchor.opens || Some(anchor.field) == implicit;
        // A closing comes after all openings, as the order of ties is that of the reference.
        let outer = anchors.iter().enumerate().filter(|(_, anchor)| is_outer(anchor)).map(|(index, _)| index);
        let outer = outer.collect();
        Ok(Self { defaults, fields, implicit, anchors, outer, start, texts })
    }

    /// Returns the text that joins the values of a field.
    pub(in super::super) fn join(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|known| &*known.name == field)?.join.as_deref()
    }

    /// Returns whether the value of a field lacks the white space around its text, if the value is the text.
    pub(in super::super) fn strips(&self, field: &str) -> Option<bool> {
        let field = self.fields.iter().find(|known| &*known.name == field)?;
        field.content.strips_text().filter(|_| field.transform.is_none())
    }

    /// Returns true if a field can close several times without losing a value.
    pub(in super::super) fn repeats(&self, field: &str) -> bool {
        self.fields.iter().any(|known| &*known.name == field && known.repeats)
    }

    /// Returns true if the template's anchors contain this text.
    pub(in super::super) fn mentions(&self, text: &str) -> bool {
        self.texts.contains(text)
    }

    /// Returns the first place at which an anchor matches a text.
    pub(in super::super) fn first_anchor(&self, text: &str) -> Option<usize> {
        let first = |anchor: &Anchor| find_all(&anchor.pattern, text).find(|found| found.end > found.start);
        self.anchors.iter().filter_map(|anchor| Some(first(anchor)?.start)).min()
    }

    /// Returns the part of the prompt that belongs to the answer: what follows the last start of an answer, or all of
    /// the prompt if it has none.
    pub(in super::super) fn answer_start<'t>(&self, prompt: &'t str) -> &'t str {
        let last: Option<Found> = self.start.as_ref().and_then(|start| find_all(start, prompt).last());
        last.and_then(|found| prompt.get(found.end..)).unwrap_or(prompt)
    }
}

#[derive(Default)]
struct Loader {
    is_built_in: bool,
    fields: Vec<Field>,
    anchors: Vec<Anchor>,
    implicit: Vec<usize>,
    /// Names of fields, each with the opening that closes it.
    interrupted: Vec<(String, usize)>,
    texts: String,
}

impl Loader {
    fn implicit(&self) -> Result<Option<usize>, TemplateError> {
        match self.implicit.as_slice() {
            [] => Ok(None),
            [index] => Ok(Some(*index)),
            several => {
                let names = several.iter().filter_map(|index| self.fields.get(*index));
                Err(TemplateError::TwoImplicit { fields: names.map(|field| field.name.to_string()).collect() })
            }
        }
    }

    fn field(&mut self, name: &str, field: &Value) -> Result<(), TemplateError> {
        let place = format!("fields.{name}");
        let field = dict(field, &place)?;
        let own: &[&str] = if self.is_built_in { &[INTERRUPTS] } else { &[] };
        check_keys(field, &[FIELD_KEYS, own].concat(), &place)?;
        let parser = match field.get("content") {
            None => "text",
            Some(Value::Text(parser)) if content::is_known(parser, self.is_built_in) => parser,
            Some(Value::Text(name)) => return Err(TemplateError::Content { place, name: name.clone() }),
            Some(other) => return Err(wrong_type(other, &format!("{place}.content"), "a text")),
        };
        for key in ["open", "open_pattern", "close", "close_pattern"] {
            self.add_texts(field.get(key));
        }
        let open = anchor(field, ["open", "open_pattern"], &place)?;
        let close = anchor(field, ["close", "close_pattern"], &place)?;
        let repeats = field.get("repeats").is_some_and(Value::is_true);
        let join = match field.get("join") {
            None | Some(Value::Null) => None,
            Some(Value::Text(_)) if !repeats => return Err(TemplateError::JoinWithoutRepeats { place }),
            Some(Value::Text(join)) => Some(join.clone()),
            Some(other) => return Err(wrong_type(other, &format!("{place}.join"), "a text")),
        };
        let (transform, transforms_each) = transform(field, &place)?;
        let names = unused_groups(&[&open, &close], transform.as_ref());
        if !names.is_empty() {
            return Err(TemplateError::UnusedGroups { place, names });
        }
        let args = (field.get("content_args"), format!("{place}.content_args"));
        let content = Content::new(parser, args.0, &args.1, self.is_built_in).map_err(TemplateError::Argument)?;
        let closes_at_end = close.as_ref().is_some_and(|(pattern, _)| find_all(pattern, "").next().is_some());
        let index = self.fields.len();
        self.implicit.extend(open.is_none().then_some(index));
        let opening = self.anchor(index, true, open);
        let close = self.anchor(index, false, close).into_iter().collect();
        let interrupted = field.get(INTERRUPTS).and_then(Value::as_text);
        self.interrupted.extend(interrupted.map(str::to_owned).zip(opening));
        self.fields.push(Field {
            name: name.into(),
            close,
            closes_at_end,
            content,
            is_dirty: !content::is_streamable(parser),
            repeats,
            join,
            is_optional: field.get("optional").is_none_or(Value::is_true),
            transform,
            transforms_each,
        });
        Ok(())
    }

    fn add_texts(&mut self, anchor: Option<&Value>) {
        match anchor {
            Some(Value::Text(text)) => {
                self.texts.extend(text.chars().filter(|c| *c != '\\'));
                self.texts.push('\n');
            }
            Some(Value::List(items)) => items.iter().for_each(|item| self.add_texts(Some(item))),
            _ => {}
        }
    }

    fn anchor(&mut self, field: usize, opens: bool, anchor: Option<(Pattern, bool)>) -> Option<usize> {
        let (pattern, can_grow) = anchor?;
        self.anchors.push(Anchor { field, opens, pattern, can_grow, waits: self.is_built_in });
        Some(self.anchors.len() - 1)
    }
}

/// Returns the named groups of anchors if no transform takes them.
fn unused_groups(anchors: &[&Option<(Pattern, bool)>], transform: Option<&Transform>) -> Vec<String> {
    let named = anchors.iter().filter_map(|anchor| anchor.as_ref()).flat_map(|(pattern, _)| pattern.names());
    let mut names: Vec<String> = named.filter(|_| transform.is_none()).cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn transform(field: &Dict, place: &str) -> Result<(Option<Transform>, bool), TemplateError> {
    let transform = field.get("transform").filter(|transform| **transform != Value::Null);
    let each = match field.get("transform_each") {
        None => false,
        Some(Value::Bool(each)) => *each,
        Some(other) => return Err(wrong_type(other, &format!("{place}.transform_each"), "a bool")),
    };
    let Some(transform) = transform else {
        let error = TemplateError::EachWithoutTransform { place: place.to_owned() };
        return if each { Err(error) } else { Ok((None, false)) };
    };
    let transform = Transform::new(transform);
    let transform = transform.map_err(|source| TemplateError::Transform { place: place.to_owned(), source })?;
    Ok((Some(transform), each))
}

/// Returns the pattern under one of two keys, and whether its match at the end of a text can become longer.
fn anchor(dict: &Dict, keys: [&'static str; 2], place: &str) -> Result<Option<(Pattern, bool)>, TemplateError> {
    let [literal, pattern] = keys;
    let at = |key: &str| format!("{place}.{key}");
    let compiled = |compiled: Result<Pattern, PatternError>, key: &str| {
        compiled.map_err(|source| TemplateError::Pattern { place: at(key), source })
    };
    match (dict.get(literal), dict.get(pattern)) {
        (Some(_), Some(_)) => Err(TemplateError::TwoAnchors { place: place.to_owned(), literal, pattern }),
        (None, None) => Ok(None),
        (Some(value), None) => {
            let literals = literals(value, &at(literal))?;
            let extends = |one: &String| literals.iter().any(|other| one != other && one.starts_with(other.as_str()));
            let can_grow = literals.iter().any(extends);
            Ok(Some((compiled(Pattern::of_literals(&literals), literal)?, can_grow)))
        }
        (None, Some(Value::Text(text))) => Ok(Some((compiled(Pattern::new(text), pattern)?, true))),
        (None, Some(other)) => Err(wrong_type(other, &at(pattern), "a text")),
    }
}

fn literals(value: &Value, place: &str) -> Result<Vec<String>, TemplateError> {
    let literals = match value {
        Value::Text(text) => vec![text.clone()],
        Value::List(items) => {
            let text = |item: &Value| match item {
                Value::Text(text) => Ok(text.clone()),
                other => Err(wrong_type(other, place, "a list of texts")),
            };
            items.iter().map(text).collect::<Result<_, _>>()?
        }
        other => return Err(wrong_type(other, place, "a text or a list of texts")),
    };
    if literals.is_empty() || literals.iter().any(String::is_empty) {
        return Err(TemplateError::Empty { place: place.to_owned() });
    }
    Ok(literals)
}

fn dict<'v>(value: &'v Value, place: &str) -> Result<&'v Dict, TemplateError> {
    value.as_dict().ok_or_else(|| wrong_type(value, place, "an object"))
}

fn wrong_type(value: &Value, place: &str, wanted: &'static str) -> TemplateError {
    TemplateError::Type { place: place.to_owned(), got: value.type_name(), wanted }
}

fn check_keys(dict: &Dict, known: &[&str], place: &str) -> Result<(), TemplateError> {
    let unknown = dict.keys().filter(|key| !known.contains(&key.as_str()));
    let keys: Vec<String> = unknown.cloned().collect();
    if keys.is_empty() { Ok(()) } else { Err(TemplateError::UnknownKeys { place: place.to_owned(), keys }) }
}
