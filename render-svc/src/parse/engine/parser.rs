//! Parses an answer while it is written.

use std::sync::Arc;

use super::arena::{Arena, Id, Node};
use super::buffer::Buffer;
use super::coerce::{CoerceError, Tools};
use super::fault::ContentError;
use super::pattern::Found;
use super::template::{Field, Template};
use super::transform::{Transform, TransformError};
use super::value::{Dict, Keys, Value};
use super::watch::Watch;
use super::written::{CALLS, MAX_CALLS, Unread};

/// What happens to a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Open {
        field: Arc<str>,
    },
    /// A piece of the field's text. It is dirty if the field's value is made of the whole text.
    Chunk {
        field: Arc<str>,
        text: String,
        is_dirty: bool,
    },
    Close {
        field: Arc<str>,
        value: Value,
    },
    /// A part that the reference loses. Only a parser that keeps all text reports it.
    Note {
        /// The place of the text, in bytes from the start of the answer's part of the prompt.
        place: usize,
        note: Note,
    },
}

/// A part that the reference loses.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// The whole text of a field's region, with its anchors. The field's `Close` follows. The value lacks the parts of
    /// `unread`, each with its place.
    Region { text: String, unread: Vec<(usize, Note)> },
    /// The whole text of a region that has no value. No `Close` follows.
    Failed { text: String, error: FieldError },
    /// The answer ends before the closing of a field.
    Unclosed { field: Arc<str> },
    /// A text that no field takes.
    Outside { text: String },
}

/// Why an answer cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("field {field}: {source}")]
    Field { field: Arc<str>, source: FieldError },
    #[error("the answer lacks the fields {}", fields.join(", "))]
    Missing { fields: Vec<String> },
    /// Python never returns.
    #[error("field {field} opens and closes without end, since its patterns match an empty text")]
    NoProgress { field: Arc<str> },
    #[error("the answer has ended")]
    Finished,
}

/// Why a field has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("{0}")]
    Content(#[from] ContentError),
    #[error("transform: {0}")]
    Transform(#[from] TransformError),
    #[error("transform_each: the value is {0}, not a list of objects")]
    NotAList(&'static str),
    #[error("{0}")]
    Coerce(#[from] CoerceError),
    #[error("join: the value is {0}, not a text")]
    NotAText(&'static str),
    #[error("repeats: the default is {0}, not a list")]
    NoList(&'static str),
    #[error("join: the default is {0}, not a text")]
    NoText(&'static str),
}

/// A parser of one answer.
#[derive(Debug)]
pub struct Parser {
    template: Arc<Template>,
    tools: Tools,
    buffer: Buffer,
    watch: Watch,
    message: Dict,
    region: Region,
    /// True if faults of the answer are notes instead of errors.
    keeps_all: bool,
    /// Why nothing more is parsed.
    end: Option<ParseError>,
}

/// The field that takes the text.
#[derive(Debug, Default)]
struct Region {
    field: Option<usize>,
    captures: Vec<(String, String)>,
    text: String,
    is_open: bool,
    /// The place of the region's start, and the text of its opening.
    place: usize,
    opening: String,
}

impl Parser {
    /// Starts a parser after a prompt, and returns the events of the answer's part of the prompt.
    pub fn new(template: Arc<Template>, prompt: &str, tools: &[Value]) -> Result<(Self, Vec<Event>), ParseError> {
        let start = template.answer_start(prompt).to_owned();
        Self::after(template, &start, tools, false)
    }

    /// Starts a parser after this part of an answer. One that keeps all text has notes where the reference has errors
    /// or leaves out text.
    pub(in super::super) fn after(
        template: Arc<Template>,
        start: &str,
        tools: &[Value],
        keeps_all: bool,
    ) -> Result<(Self, Vec<Event>), ParseError> {
        let mut parser = Self {
            tools: Tools::new(tools, keeps_all),
            buffer: Buffer::default(),
            watch: Watch::new(&template),
            message: template.defaults.clone(),
            region: Region { field: template.implicit, ..Region::default() },
            keeps_all,
            end: None,
            template,
        };
        let mut events = Vec::new();
        if !start.is_empty() {
            parser.buffer.push(start);
            parser.process(&mut events, false)?;
        }
        Ok((parser, events))
    }

    /// Parses more text, and returns the events that it leads to. After an error, each call returns it again.
    pub fn feed(&mut self, text: &str) -> Result<Vec<Event>, ParseError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        self.buffer.push(text);
        let mut events = Vec::new();
        let result = self.process(&mut events, false);
        self.end = result.as_ref().err().cloned();
        result.map(|()| events)
    }

    /// Ends the answer, and returns the message and the last events.
    pub fn finish(&mut self) -> Result<(Dict, Vec<Event>), ParseError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let result = self.finished();
        self.end = Some(result.as_ref().err().cloned().unwrap_or(ParseError::Finished));
        result
    }

    fn finished(&mut self) -> Result<(Dict, Vec<Event>), ParseError> {
        let mut events = Vec::new();
        self.process(&mut events, true)?;
        let is_missing = |field: &&Field| !field.is_optional && !self.message.contains_key(&*field.name);
        let missing = self.template.fields.iter().filter(is_missing).map(|field| field.name.to_string());
        let fields: Vec<String> = missing.collect();
        if !fields.is_empty() && !self.keeps_all {
            return Err(ParseError::Missing { fields });
        }
        let mut message = std::mem::take(&mut self.message);
        message.retain(|key, value| self.template.defaults.contains_key(key) || !value.is_omitted());
        Ok((message, events))
    }

    /// Takes all anchors that are certain, and the text before the first one that is not.
    fn process(&mut self, events: &mut Vec<Event>, is_end: bool) -> Result<(), ParseError> {
        let template = Arc::clone(&self.template);
        // Anchors that match an empty text can follow each other at one place, but not for ever.
        let most = 2 * template.fields.len() + 4;
        let mut empty = 0;
        loop {
            let watched = match self.region.field.and_then(|index| template.fields.get(index)) {
                Some(field) if self.region.field != template.implicit => field.close.as_slice(),
                _ => template.outer.as_slice(),
            };
            let (best, hold) = self.watch.scan(&template, watched, &self.buffer, is_end);
            let Some((anchor, found)) = best.and_then(|(index, found)| Some((template.anchors.get(index)?, found)))
            else {
                let end = if is_end { self.buffer.end() } else { hold };
                self.accumulate(&template, events, end);
                self.buffer.advance(end);
                return if is_end { self.close(&template, events, None) } else { Ok(()) };
            };
            empty = if found.end > self.buffer.start() { 0 } else { empty + 1 };
            if empty > most && self.keeps_all {
                return self.give_up(&template, events);
            }
            if empty > most {
                let field = template.fields.get(anchor.field).map(|field| Arc::clone(&field.name));
                return Err(ParseError::NoProgress { field: field.unwrap_or_default() });
            }
            self.accumulate(&template, events, found.start);
            let captures = self.captures(&anchor.pattern, &found);
            let matched = self.buffer.text(found.start, found.end).to_owned();
            self.buffer.advance(found.end);
            let had_text = self.region.is_open;
            self.close(&template, events, Some(if anchor.opens { "" } else { &matched }))?;
            if anchor.opens {
                self.open(&template, events, anchor.field, captures);
                (self.region.place, self.region.opening) = (found.start, matched);
            } else if !had_text && found.start == found.end {
                return if self.keeps_all && is_end { self.give_up(&template, events) } else { Ok(()) };
            }
        }
    }

    fn captures(&self, pattern: &super::pattern::Pattern, found: &Found) -> Vec<(String, String)> {
        let group = |(index, name): (usize, &String)| {
            let (start, end) = found.group(index)?;
            Some((name.clone(), self.buffer.text(start, end).to_owned()))
        };
        pattern.names().iter().enumerate().filter_map(group).collect()
    }

    /// Takes the rest of the buffer as a text that no field takes.
    fn give_up(&mut self, template: &Template, events: &mut Vec<Event>) -> Result<(), ParseError> {
        self.close(template, events, None)?;
        let (place, end) = (self.buffer.start(), self.buffer.end());
        let text = self.buffer.text(place, end).to_owned();
        self.buffer.advance(end);
        if !text.is_empty() {
            events.push(Event::Note { place, note: Note::Outside { text } });
        }
        Ok(())
    }

    /// Gives the text before a place to the current field.
    fn accumulate(&mut self, template: &Template, events: &mut Vec<Event>, end: usize) {
        let place = self.buffer.start();
        let text = self.buffer.text(place, end);
        if text.is_empty() {
            return;
        }
        let field = self.region.field.and_then(|index| template.fields.get(index));
        let Some(Field { name, is_dirty, .. }) = field else {
            if self.keeps_all {
                events.push(Event::Note { place, note: Note::Outside { text: text.to_owned() } });
            }
            return;
        };
        if !self.region.is_open {
            events.push(Event::Open { field: Arc::clone(name) });
            self.region.is_open = true;
            self.region.place = place;
        }
        self.region.text.push_str(text);
        events.push(Event::Chunk { field: Arc::clone(name), text: text.to_owned(), is_dirty: *is_dirty });
    }

    fn open(&mut self, template: &Template, events: &mut Vec<Event>, field: usize, captures: Vec<(String, String)>) {
        self.region = Region { field: Some(field), captures, is_open: true, ..Region::default() };
        events.extend(template.fields.get(field).map(|field| Event::Open { field: Arc::clone(&field.name) }));
    }

    /// Closes the current field, unless nothing opened it, and returns to the implicit one. `closing` is the text that
    /// closes it; None if the answer ends there.
    fn close(&mut self, template: &Template, events: &mut Vec<Event>, closing: Option<&str>) -> Result<(), ParseError> {
        let region = std::mem::replace(&mut self.region, Region { field: template.implicit, ..Region::default() });
        let field = region.field.filter(|_| region.is_open).and_then(|index| template.fields.get(index));
        let Some(field) = field else { return Ok(()) };
        let (place, is_explicit) = (region.place, region.field != template.implicit);
        let whole = self.keeps_all.then(|| [&region.opening, &region.text, closing.unwrap_or_default()].concat());
        let is_unclosed = closing.is_none() && is_explicit && !field.close.is_empty() && !field.closes_at_end;
        let is_cut = self.keeps_all.then_some(is_unclosed);
        let closed = value(field, region, closing.unwrap_or_default(), &self.tools, is_cut);
        let closed = closed.and_then(|(value, unread)| {
            // The reader of an answer collects the calls from the events.
            if !self.keeps_all || *field.name != *CALLS {
                self.store(field, value.clone())?;
            }
            Ok((value, unread))
        });
        let name = Arc::clone(&field.name);
        if is_unclosed && self.keeps_all {
            events.push(Event::Note { place, note: Note::Unclosed { field: Arc::clone(&name) } });
        }
        match (closed, whole) {
            (Ok((value, unread)), whole) => {
                let whole = whole.map(|text| {
                    let unread = unread.into_iter().map(|unread| note(&text, place, unread)).collect();
                    Event::Note { place, note: Note::Region { text, unread } }
                });
                events.extend(whole.into_iter().chain([Event::Close { field: name, value }]));
            }
            (Err(error), Some(text)) => events.push(Event::Note { place, note: Note::Failed { text, error } }),
            (Err(source), None) => return Err(ParseError::Field { field: name, source }),
        }
        Ok(())
    }

    fn store(&mut self, field: &Field, value: Value) -> Result<(), FieldError> {
        let earlier = self.message.get_mut(&*field.name);
        let value = match (&field.join, value) {
            (Some(join), Value::Text(text)) => match earlier {
                Some(Value::Text(earlier)) => {
                    earlier.push_str(join);
                    earlier.push_str(&text);
                    return Ok(());
                }
                None | Some(Value::Null) => Value::Text(text),
                Some(other) => return Err(FieldError::NoText(other.type_name())),
            },
            (Some(_), other) => return Err(FieldError::NotAText(other.type_name())),
            (None, value) if field.repeats => match earlier {
                Some(Value::List(items)) if self.keeps_all && items.len() >= MAX_CALLS => {
                    return Err(ContentError::TooMany(MAX_CALLS).into());
                }
                Some(Value::List(items)) => {
                    items.push(value);
                    return Ok(());
                }
                None => Value::List(vec![value]),
                Some(other) => return Err(FieldError::NoList(other.type_name())),
            },
            (None, value) => value,
        };
        self.message.insert(field.name.to_string(), value);
        Ok(())
    }
}

/// Returns the note of a part of a region that the region's value lacks, with its place.
fn note(region: &str, place: usize, unread: Unread) -> (usize, Note) {
    let Unread { range, error } = unread;
    let (place, text) = (place + range.start, region.get(range).unwrap_or_default().to_owned());
    let note = match error {
        Some(error) => Note::Failed { text, error: FieldError::Content(error) },
        None => Note::Outside { text },
    };
    (place, note)
}

/// Returns the value of a field's text, and the parts that it lacks. `is_cut` says whether the answer ends within the
/// field; None if the value may lack parts of the text.
fn value(
    field: &Field,
    region: Region,
    closing: &str,
    tools: &Tools,
    is_cut: Option<bool>,
) -> Result<(Value, Vec<Unread>), FieldError> {
    let keys = if is_cut.is_some() { Keys::Distinct } else { Keys::LastWins };
    let (value, unread) = field.content.parse_between(&region.opening, &region.text, closing, keys)?;
    if let Some(is_cut) = is_cut {
        field.content.check_whole(&region.text, is_cut)?;
    }
    if field.transform.is_none() && tools.is_empty() {
        return Ok((value, unread));
    }
    let mut arena = Arena::default();
    let mut id = arena.insert(value);
    if let Some(transform) = &field.transform {
        id = transformed(transform, field.transforms_each, &mut arena, id, region.captures)?;
    }
    if field.content.is_deeply_untyped() {
        let mut value = arena.into_value(id);
        tools.coerce_deeply(&mut value)?;
        return Ok((value, unread));
    }
    if !field.content.is_typed() {
        tools.coerce(&mut arena, id)?;
    }
    Ok((arena.into_value(id), unread))
}

fn transformed(
    transform: &Transform,
    each: bool,
    arena: &mut Arena,
    content: Id,
    captures: Vec<(String, String)>,
) -> Result<Id, FieldError> {
    let captures = captures.into_iter().map(|(name, text)| (name, arena.insert(Value::Text(text))));
    let mut scope: Vec<(String, Id)> = captures.collect();
    if !each {
        scope.push(("content".to_owned(), content));
        return Ok(transform.apply(arena, &scope)?);
    }
    let items = match arena.open(content) {
        Node::List(items) => items.clone(),
        other => return Err(FieldError::NotAList(other.type_name())),
    };
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        let entries = match arena.open(item) {
            Node::Dict(entries) => entries.clone(),
            other => return Err(FieldError::NotAList(other.type_name())),
        };
        let mut scope = scope.clone();
        scope.extend(entries);
        out.push(transform.apply(arena, &scope)?);
    }
    Ok(arena.push(Node::List(out)))
}
