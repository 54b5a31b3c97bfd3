//! How a model writes calls, found by rendering some.
//!
//! The parts of a call are what an adapter writes around the names and the arguments of known calls. A notation counts
//! only if the rules read back other calls that are written in it.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::sample::{NAMES, REASONING, Sampler, Shape, Turn, tools_with};
use crate::parse::{AnswerReader, Context, IdForm, Rules, values};

/// The place of a call's identifier in a text.
pub(crate) const ID: char = '\u{F0000}';
/// The place of a call's index in a text.
pub(crate) const INDEX: char = '\u{F0001}';
/// The place of a parameter's name in the texts after it.
pub(crate) const KEY: char = '\u{F0002}';

/// The names of parameters of rendered calls, in the order of the alphabet.
const KEYS: [&str; 2] = ["qzaword", "qzbword"];
const VALUES: [&str; 2] = ["qz value", "qz other"];

/// The texts around the parts of a model's calls.
///
/// An answer with calls is `section`, the calls with `join` between them, and `last`. A call is `call`, the name of the
/// tool, `middle`, the arguments and `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notation {
    pub(crate) section: String,
    pub(crate) call: String,
    pub(crate) middle: String,
    pub(crate) arguments: Arguments,
    pub(crate) end: String,
    /// None: an answer has one call at most.
    pub(crate) join: Option<String>,
    pub(crate) last: String,
    pub(crate) id_form: IdForm,
    /// The texts around the reasoning before the calls, if the output spec has no markers of it.
    pub(crate) reasoning: Option<(String, String)>,
    /// True if there are marks around the content.
    pub(crate) marks_content: bool,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// A JSON object.
    Json,
    /// Parameters one after another, with `separator` between them: `key`, the name, and the value in the form of its
    /// type.
    Named { key: String, separator: String, forms: Vec<(Kind, Form)> },
}

/// The types of values that are written alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

impl Kind {
    const ALL: [Self; 6] = [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::Array, Self::Object];

    /// Returns its name in JSON schemas.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Returns the kind of a name in JSON schemas.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn value(self) -> Json {
        match self {
            Self::String => VALUES[0].into(),
            Self::Integer => 73192.into(),
            Self::Number => 73.25.into(),
            Self::Boolean => true.into(),
            Self::Array => json!(["qz item", 7]),
            Self::Object => json!({"qzinner": "qz item"}),
        }
    }
}

/// The text of a parameter after its name: `middle`, the value, and `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) middle: String,
    pub(crate) spelling: Spelling,
    pub(crate) end: String,
}

/// How a value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As it is.
    Raw,
    /// As JSON.
    Json,
    /// One of two words: true and false.
    Words([String; 2]),
}

impl Notation {
    /// Finds the notation of an adapter's calls. None if it renders none, or the rules do not read back calls in it.
    pub(super) fn probe(sampler: &Sampler<'_>, rules: &Arc<Rules>, context: &Context) -> Option<Self> {
        let shape = sampler.bare_shape()?;
        let tokens = sampler.special_tokens();
        let mut probe = Probe { sampler, shape, rules, context, tokens: &tokens, before: String::new() };
        let mut found = probe.found(rules)?;
        // The template may write more of the turn before the calls.
        probe.before = found.read_back(rules)?;
        if !probe.before.is_empty() {
            found = probe.found(rules)?;
        }
        let marks = found.last.rmatch_indices(['<', '[']).map(|(at, _)| at);
        let ends: Vec<usize> = [found.last.len()].into_iter().chain(marks).chain([0]).collect();
        let cut = |end| Self { last: found.last.get(..end).unwrap_or_default().to_owned(), ..found.clone() };
        ends.into_iter().map(cut).find(|notation| notation.read_back(rules).is_some_and(|content| content.is_empty()))
    }

    /// Returns the notation with lists and objects as JSON where their form is not known. None if all are known.
    fn with_json_values(&self) -> Option<Self> {
        let integer = self.arguments.form(Kind::Integer)?.clone();
        let unknown = [Kind::Array, Kind::Object].into_iter().filter(|kind| !self.writes(*kind));
        let unknown: Vec<_> = unknown.map(|kind| (kind, integer.clone())).collect();
        let mut changed = self.clone();
        match &mut changed.arguments {
            Arguments::Named { forms, .. } if !unknown.is_empty() => forms.extend(unknown),
            _ => return None,
        }
        Some(changed)
    }

    fn map(self, change: impl Fn(&str) -> String) -> Self {
        let arguments = match self.arguments {
            Arguments::Json => Arguments::Json,
            Arguments::Named { key, separator, forms } => {
                let changed = |form: Form| Form { middle: change(&form.middle), end: change(&form.end), ..form };
                let forms = forms.into_iter().map(|(kind, form)| (kind, changed(form))).collect();
                Arguments::Named { key: change(&key), separator: change(&separator), forms }
            }
        };
        Self {
            section: change(&self.section),
            call: change(&self.call),
            middle: change(&self.middle),
            arguments,
            end: change(&self.end),
            join: self.join.as_deref().map(&change),
            last: change(&self.last),
            ..self
        }
    }

    /// Returns the content of an answer with values of all kinds and with a call without any. None if the rules do not
    /// read back the calls.
    fn read_back(&self, rules: &Arc<Rules>) -> Option<String> {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| self.writes(*kind)).collect();
        let properties: serde_json::Map<String, Json> =
            kinds.iter().map(|kind| (format!("qz_{}", kind.name()), json!({"type": kind.name()}))).collect();
        let values_of_kinds: serde_json::Map<String, Json> =
            kinds.iter().map(|kind| (format!("qz_{}", kind.name()), kind.value())).collect();
        let calls = [(NAMES[1], Json::from(values_of_kinds)), (NAMES[0], json!({}))];
        let calls = if self.join.is_some() { &calls[..] } else { &calls[..1] };
        let tools = values(Some(&tools_with(&properties.into())));
        let reader = AnswerReader::new(Arc::clone(rules), "", &tools).ok()?;
        let answer = reader.read(&self.write(calls));
        let found = answer.calls.iter().map(|call| (call.name.as_str(), serde_json::from_str(&call.arguments).ok()));
        let expected = calls.iter().map(|(name, arguments)| (*name, Some(arguments.clone())));
        (found.eq(expected) && answer.warnings.is_empty()).then_some(answer.content)
    }

    /// Returns true if the rules read back a call with these names: of the tool, and of its parameters where they are
    /// written one after another.
    pub(crate) fn is_read(&self, rules: &Arc<Rules>, tool: &str, keys: &[&str]) -> bool {
        let arguments = match &self.arguments {
            Arguments::Json => "{}".to_owned(),
            Arguments::Named { key, separator, .. } => {
                let Some(form) = self.arguments.form(Kind::String) else { return false };
                let written = keys
                    .iter()
                    .map(|name| [key, *name, &form.middle, VALUES[0], &form.end].concat().replace(KEY, name));
                written.collect::<Vec<_>>().join(separator)
            }
        };
        let text = [&self.section, &self.call, tool, &self.middle, &arguments, &self.end, &self.last].concat();
        let text = text.replace(ID, &self.id_form.id("", 0, tool, "")).replace(INDEX, "0");
        let Ok(reader) = AnswerReader::new(Arc::clone(rules), "", &[]) else { return false };
        let answer = reader.read(&text);
        let [call] = &answer.calls[..] else { return false };
        let found = serde_json::from_str::<serde_json::Map<String, Json>>(&call.arguments).unwrap_or_default();
        let is_same = self.arguments == Arguments::Json || found.keys().eq(keys.iter());
        call.name == tool && is_same && answer.warnings.is_empty()
    }

    /// Returns true if the answer to a prompt begins within reasoning. Only for models whose output spec has no markers of
    /// reasoning.
    pub(crate) fn begins_within_reasoning(&self, rules: &Rules, prompt: &str) -> bool {
        let start = rules.start_of(prompt);
        let is_open = |(open, close): &(String, String)| start.rfind(open.trim_end()) > start.rfind(close.trim());
        self.reasoning.as_ref().is_some_and(is_open)
    }

    /// Returns the text before the first call, without the start that the prompt ends with.
    pub(crate) fn section_after(&self, rules: &Rules, prompt: &str) -> &str {
        let start = rules.start_of(prompt);
        let parts = self.section.char_indices().map(|(at, c)| self.section.split_at(at + c.len_utf8()));
        let begun = parts.rev().find(|(begun, _)| !begun.trim().is_empty() && start.ends_with(begun));
        begun.map_or(&self.section, |(_, rest)| rest)
    }

    /// Returns true if an argument of this type can be written.
    pub(crate) fn writes(&self, kind: Kind) -> bool {
        self.arguments.form(kind).is_some() || self.arguments == Arguments::Json
    }

    /// Returns the text of calls.
    fn write(&self, calls: &[(&str, Json)]) -> String {
        let join = self.join.as_deref().unwrap_or_default();
        let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
            let id = self.id_form.id("", index, name, "");
            let call = [&self.call, *name, &self.middle, &self.arguments.write(arguments), &self.end].concat();
            call.replace(ID, &id).replace(INDEX, &index.to_string())
        });
        [&self.section, &calls.collect::<Vec<_>>().join(join), &self.last].map(String::as_str).concat()
    }
}

impl Arguments {
    /// Returns the form of parameters of one kind.
    pub(crate) fn form(&self, kind: Kind) -> Option<&Form> {
        let Self::Named { forms, .. } = self else { return None };
        forms.iter().find(|(other, _)| *other == kind).map(|(_, form)| form)
    }

    fn write(&self, arguments: &Json) -> String {
        let Self::Named { key, separator, forms } = self else { return arguments.to_string() };
        let written = arguments.as_object().into_iter().flatten().filter_map(|(name, value)| {
            let (_, Form { middle, spelling, end }) = forms.iter().find(|(kind, _)| kind.value() == *value)?;
            let value = match (spelling, value) {
                (Spelling::Words([yes, _]), _) => yes.clone(),
                (Spelling::Raw, Json::String(text)) => text.clone(),
                _ => value.to_string(),
            };
            Some([key, name, middle, &value, end].map(String::as_str).concat().replace(KEY, name))
        });
        written.collect::<Vec<_>>().join(separator)
    }
}

/// Renders calls, and takes them apart.
struct Probe<'a> {
    sampler: &'a Sampler<'a>,
    shape: Shape,
    rules: &'a Arc<Rules>,
    context: &'a Context,
    /// The model's special tokens. Each is one character while texts are compared, so that none is cut.
    tokens: &'a [String],
    /// A text before the calls that belongs to the prompt.
    before: String,
}

/// The character of the first special token.
const FIRST_TOKEN: u32 = 0xF_1000;

fn token_char(index: usize) -> char {
    u32::try_from(index)
        .ok()
        .and_then(|index| char::from_u32(FIRST_TOKEN + index))
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

impl Probe<'_> {
    fn found(&self, rules: &Arc<Rules>) -> Option<Notation> {
        let found = self.with_json().or_else(|| self.with_named())?.map(|text| self.restored(text));
        let found = Notation { reasoning: self.reasoning(&found), ..found };
        // A template may write lists in a way that only it has, and the rules may read JSON too.
        let with_json = found.with_json_values();
        let is_read = with_json.as_ref().is_some_and(|notation| notation.read_back(rules).is_some());
        with_json.filter(|_| is_read).or(Some(found))
    }

    fn with_json(&self) -> Option<Notation> {
        let arguments = [json!({KEYS[0]: VALUES[0], KEYS[1]: 73192}), json!({KEYS[0]: VALUES[1]})];
        let properties = json!({KEYS[0]: {"type": "string"}, KEYS[1]: {"type": "integer"}});
        let one = self.answer(vec![(NAMES[0], arguments[0].clone())], &properties)?;
        let (open, rest) = one.split_once(NAMES[0])?;
        let (middle, close) = split_at_json(rest, &arguments[0])?;
        let both = NAMES.into_iter().zip(arguments.clone()).collect();
        let second = self.answer(both, &properties).and_then(|two| {
            let (_, rest) = two.strip_prefix(open)?.split_once(NAMES[0])?;
            let (_, rest) = split_at_json(rest, &arguments[0])?;
            let (between, rest) = rest.split_once(NAMES[1])?;
            let (middle, _) = split_at_json(rest, &arguments[1])?;
            Some((between.to_owned(), middle.to_owned()))
        });
        Some(self.assembled(open, middle, Arguments::Json, close, second))
    }

    fn with_named(&self) -> Option<Notation> {
        let properties = json!({KEYS[0]: {"type": "string"}, KEYS[1]: {"type": "string"}});
        let both = json!({KEYS[0]: VALUES[0], KEYS[1]: VALUES[1]});
        let one = self.answer(vec![(NAMES[0], both)], &properties)?;
        let (open, rest) = one.split_once(NAMES[0])?;
        let (first, rest) = rest.split_once(KEYS[0])?;
        let (_, rest) = rest.split_once(VALUES[0])?;
        let (between, rest) = rest.split_once(KEYS[1])?;
        let (_, close) = rest.split_once(VALUES[1])?;
        let (between, close) = (between.replace(KEYS[0], &KEY.to_string()), close.replace(KEYS[1], &KEY.to_string()));
        let key = suffix_of_both(first, &between);
        let (middle, between) = (first.strip_suffix(&key)?, between.strip_suffix(&key)?);
        let value_end = prefix_of_both(between, &close);
        let separator = between.strip_prefix(&value_end)?.to_owned();
        let after = close.strip_prefix(&value_end)?;
        let forms = Kind::ALL.into_iter().filter_map(|kind| Some((kind, self.form(kind, after)?))).collect();
        let both = vec![(NAMES[0], json!({KEYS[0]: VALUES[0]})), (NAMES[1], json!({KEYS[0]: VALUES[1]}))];
        let second = self.answer(both, &properties).and_then(|two| {
            let (_, rest) = two.strip_prefix(open)?.split_once(VALUES[0])?;
            let (between, rest) = rest.split_once(NAMES[1])?;
            let (middle, _) = rest.split_once(KEYS[0])?;
            let between = between.replace(KEYS[0], &KEY.to_string());
            Some((between.strip_prefix(&value_end)?.to_owned(), middle.strip_suffix(&key)?.to_owned()))
        });
        let arguments = Arguments::Named { key, separator, forms };
        Some(self.assembled(open, middle, arguments, after, second))
    }

    /// Returns the form of values of one kind. `after` is the text after the last value.
    fn form(&self, kind: Kind, after: &str) -> Option<Form> {
        let properties = json!({KEYS[0]: {"type": kind.name()}});
        let rendered = |value: &Json| {
            let answer = self.answer(vec![(NAMES[0], json!({KEYS[0]: value}))], &properties)?;
            let (_, rest) = answer.split_once(KEYS[0])?;
            Some(rest.replace(KEYS[0], &KEY.to_string()))
        };
        let text = rendered(&kind.value())?;
        let parts = |spelled: &str, text: &str| {
            let (middle, rest) = text.split_once(spelled)?;
            Some((middle.to_owned(), rest.strip_suffix(after)?.to_owned()))
        };
        let ((middle, end), spelling) = match kind {
            Kind::String => (parts(VALUES[0], &text)?, Spelling::Raw),
            Kind::Boolean => {
                let other = rendered(&json!(false))?;
                let middle = prefix_of_both(&text, &other);
                let (text, other) = (text.strip_prefix(&middle)?, other.strip_prefix(&middle)?);
                let words = [["true", "false"], ["True", "False"]];
                let end_of =
                    |[yes, no]: [&str; 2]| text.strip_prefix(yes).filter(|end| other.strip_prefix(no) == Some(end));
                let (words, end) = words.into_iter().find_map(|words| Some((words, end_of(words)?)))?;
                ((middle, end.strip_suffix(after)?.to_owned()), Spelling::Words(words.map(str::to_owned)))
            }
            Kind::Integer | Kind::Number => (parts(&kind.value().to_string(), &text)?, Spelling::Json),
            Kind::Array | Kind::Object => {
                let (middle, rest) = split_at_json(&text, &kind.value())?;
                ((middle.to_owned(), rest.strip_suffix(after)?.to_owned()), Spelling::Json)
            }
        };
        Some(Form { middle, spelling, end })
    }

    /// Puts a notation together. `second` are the texts before the name and before the arguments of a second call, from
    /// the first call's arguments.
    fn assembled(
        &self,
        open: &str,
        middle: &str,
        arguments: Arguments,
        close: &str,
        second: Option<(String, String)>,
    ) -> Notation {
        let alone = || Notation {
            section: String::new(),
            call: open.to_owned(),
            middle: middle.to_owned(),
            arguments: arguments.clone(),
            end: close.to_owned(),
            join: None,
            last: String::new(),
            id_form: self.shape.id_form,
            reasoning: None,
            marks_content: self.rules.marks_content(),
        };
        let found = second.and_then(|(between, second_middle)| {
            let (call, length) = indexed_suffix(open, &between);
            let middle = indexed(middle, &second_middle)?;
            let between = between.get(..between.len() - length)?;
            let end = prefix_of_both(between, close);
            let join = between.strip_prefix(&end)?.to_owned();
            let section = open.get(..open.len() - length)?.to_owned();
            let last = close.strip_prefix(&end)?.to_owned();
            Some(Notation { section, call, middle, end, join: Some(join), last, ..alone() })
        });
        found.unwrap_or_else(alone)
    }

    /// Returns the texts around reasoning before the calls, if the output spec has no markers.
    fn reasoning(&self, found: &Notation) -> Option<(String, String)> {
        if self.context.reasoning.is_some() {
            return None;
        }
        let calls = vec![(NAMES[0], json!({KEYS[0]: VALUES[0]}))];
        let tools = tools_with(&json!({KEYS[0]: {"type": "string"}}));
        let turn = Turn { content: "", reasoning: Some(REASONING), calls, tools };
        let turn = self.sampler.turn(&turn, self.shape)?;
        let (open, rest) = self.without_head(&turn)?.split_once(REASONING)?;
        let first = [&found.section, &found.call].map(String::as_str).concat();
        let start = first.split([ID, INDEX]).next().filter(|start| !start.is_empty())?;
        let (close, _) = rest.split_once(&[start, NAMES[0]].concat()).filter(|_| first == start)?;
        Some((open.trim_start().to_owned(), close.to_owned()))
            .filter(|(open, close)| !open.is_empty() && !close.is_empty())
    }

    /// Returns an answer of calls alone, without the start and the end of the turn and without empty reasoning.
    fn answer(&self, calls: Vec<(&str, Json)>, properties: &Json) -> Option<String> {
        let turn = Turn { content: "", reasoning: None, calls, tools: tools_with(properties) };
        let turn = self.sampler.turn(&turn, self.shape)?;
        let mut answer = self.without_head(&turn)?.trim_start();
        let own = self.context.reasoning.as_ref().map(|(open, close)| (open.as_str(), close.as_str()));
        for (open, close) in own.into_iter().chain(self.rules.reasoning_marks()) {
            let has_reasoning = answer.starts_with(open) || answer.starts_with(close);
            if let Some((_, rest)) = answer.split_once(close).filter(|_| has_reasoning) {
                answer = rest.trim_start();
            }
        }
        let ends = self.context.ends.iter().filter(|end| !end.trim().is_empty());
        let end = ends.filter_map(|end| answer.find(end.as_str())).min();
        let answer = end.and_then(|end| answer.get(..end)).unwrap_or(answer).trim_end();
        let answer = answer.strip_prefix(&self.before).unwrap_or(answer).trim_start();
        let tokens = self.tokens.iter().enumerate();
        let answer = tokens.fold(answer.to_owned(), |answer, (index, token)| {
            answer.replace(token.as_str(), token_char(index).encode_utf8(&mut [0; 4]))
        });
        Some(self.shape.ids.iter().fold(answer, |answer, id| {
            // Some templates write the last nine characters.
            let nine = id.get(id.len().saturating_sub(9)..).unwrap_or(id);
            let is_named = NAMES.iter().any(|name| id.contains(name));
            if is_named { answer } else { answer.replace(id, &ID.to_string()).replace(nine, &ID.to_string()) }
        }))
    }

    /// Returns a text with the texts of its special tokens.
    fn restored(&self, text: &str) -> String {
        let token = |c: char| self.tokens.get(usize::try_from(u32::from(c).checked_sub(FIRST_TOKEN)?).ok()?);
        text.chars().map(|c| token(c).cloned().unwrap_or_else(|| c.to_string())).collect()
    }

    /// Returns the part of a turn after its start.
    fn without_head<'t>(&self, turn: &'t str) -> Option<&'t str> {
        let head = self.rules.head.as_deref().unwrap_or_default();
        let after = |head: &str| turn.find(head).and_then(|at| turn.get(at + head.len()..));
        after(head).or_else(|| after(head.trim()))
    }
}

/// Splits a text at the first JSON value that equals `value`.
fn split_at_json<'t>(text: &'t str, value: &Json) -> Option<(&'t str, &'t str)> {
    let first = value.to_string().chars().next()?;
    text.match_indices(first).find_map(|(at, _)| {
        let mut found = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Json>();
        let is_equal = found.next()?.ok()? == *value;
        is_equal.then(|| (&text[..at], &text[at + found.byte_offset()..]))
    })
}

fn prefix_of_both(one: &str, other: &str) -> String {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

fn suffix_of_both(one: &str, other: &str) -> String {
    let reversed: String =
        one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    reversed.chars().rev().collect()
}

/// Returns the character of both texts, or the mark of an index if the second one counts on.
fn counted(one: char, other: char) -> Option<char> {
    let counts = || one.to_digit(10).is_some_and(|digit| other.to_digit(10) == Some(digit + 1));
    if one == other { Some(one) } else { counts().then_some(INDEX) }
}

/// Returns the longest end of both texts, with marks of an index, and its length in bytes in either.
fn indexed_suffix(one: &str, other: &str) -> (String, usize) {
    let pairs = one.chars().rev().zip(other.chars().rev());
    let (reversed, lengths): (String, Vec<usize>) =
        pairs.map_while(|(a, b)| Some((counted(a, b)?, a.len_utf8()))).unzip();
    (reversed.chars().rev().collect(), lengths.iter().sum())
}

/// Returns the text of both, with marks of an index.
fn indexed(one: &str, other: &str) -> Option<String> {
    if one.chars().count() != other.chars().count() {
        return None;
    }
    one.chars().zip(other.chars()).map(|(a, b)| counted(a, b)).collect()
}
