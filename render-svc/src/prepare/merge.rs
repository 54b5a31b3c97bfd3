//! Merges consecutive messages of one role. A merged message keeps the content of all its messages.

use serde_json::Value;

use super::forms::text_block;
use super::place::Place;
use super::rewrite::{Change, Rewrite};
use super::traced::Traced;
use crate::conversation::{Content, Object, REASONING_KEYS, content};

/// Merges each run of messages for whose role `is_merged` holds into its first message, and adds a
/// rewrite for each run. The second argument is true after a message of the assistant. Content must be
/// text or blocks, and tool calls must be a list.
#[must_use]
pub fn merge(
    messages: Vec<Traced>,
    is_merged: impl Fn(&str, bool) -> bool,
    rewrites: &mut Vec<Rewrite>,
) -> Vec<Traced> {
    let mut merged: Vec<Traced> = Vec::with_capacity(messages.len());
    let (mut changed, mut is_later) = (Vec::new(), false);
    for next in messages {
        let role = next.role();
        is_later |= role == Some("assistant");
        let is_wanted = role.is_some_and(|role| is_merged(role, is_later));
        match merged.last_mut().filter(|last| is_wanted && are_alike(last, &next)) {
            Some(last) => {
                join_message(last, next);
                changed.push(merged.len() - 1);
            }
            None => merged.push(next),
        }
    }
    changed.dedup();
    let rewrite = |i: usize| Rewrite { change: Change::Merged, messages: merged[i].sources.clone() };
    rewrites.extend(changed.into_iter().map(rewrite));
    merged
}

fn are_alike(message: &Traced, next: &Traced) -> bool {
    let has_calls = |message: &Value| message.get("tool_calls").is_none_or(|calls| calls.is_array() || calls.is_null());
    let is_plain =
        |message: &Traced| !matches!(content(&message.message), Content::Other(_)) && has_calls(&message.message);
    message.role() == next.role() && is_plain(message) && is_plain(next)
}

/// A value and its place.
struct Found {
    value: Value,
    place: Place,
}

fn join_message(message: &mut Traced, next: Traced) {
    let Traced { message: next, place: mut next_place, sources } = next;
    message.sources.extend(sources);
    if let (Value::Object(fields), Value::Object(next)) = (&mut message.message, next) {
        for (key, value) in next {
            let found = Found { value, place: next_place.take(&key) };
            let key = same_key(fields, &key);
            join_key(fields, &mut message.place, key, found);
        }
    }
    message.place.add_merged(next_place, 0);
}

/// Returns the key under which a message has such a value: templates read reasoning under the first of
/// its names only.
fn same_key<'k>(fields: &Object, key: &'k str) -> &'k str {
    let is_reasoning = REASONING_KEYS.contains(&key);
    let known = REASONING_KEYS.into_iter().find(|known| fields.get(*known).is_some_and(|value| !value.is_null()));
    known.filter(|_| is_reasoning).unwrap_or(key)
}

/// Merges one key of a message. Equal values are kept once, except content and tool calls, which
/// are always joined.
fn join_key(fields: &mut Object, place: &mut Place, key: &str, next: Found) {
    let is_said = matches!(key, "content" | "tool_calls");
    match fields.get_mut(key) {
        Some(earlier) if is_said || *earlier != next.value => {
            let found = Found { value: earlier.take(), place: place.take(key) };
            let joined = join(found, next, key);
            *earlier = joined.value;
            place.set(key, joined.place);
        }
        Some(_) => {}
        None => {
            fields.insert(key.to_owned(), next.value);
            place.set(key, next.place);
        }
    }
}

/// Joins two values of a key: texts with a blank line between them, names with a comma, lists to one
/// list, and all other values to a list.
fn join(earlier: Found, next: Found, key: &str) -> Found {
    let is_content = key == "content";
    let Found { value, place } = earlier;
    match (value, next.value) {
        (value, Value::Null) => Found { value, place },
        (Value::Null, value) => Found { value, place: next.place },
        (Value::String(text), Value::String(more)) => {
            let between = if key == "name" { ", " } else { "\n\n" };
            let place = match (text.is_empty(), more.is_empty()) {
                (true, _) => next.place,
                (false, true) => place,
                (false, false) => place.joined(next.place, text.len() + between.len()),
            };
            Found { value: join_text(text, between, &more).into(), place }
        }
        (value, more) => {
            let path = Place::at(place.path().clone());
            let (mut values, mut places) = items(Found { value, place }, is_content);
            let (more, more_places) = items(Found { value: more, place: next.place }, is_content);
            values.extend(more);
            places.extend(more_places);
            Found { value: values.into(), place: path.with_items(places) }
        }
    }
}

fn join_text(text: String, between: &str, more: &str) -> String {
    if text.is_empty() || more.is_empty() { text + more } else { text + between + more }
}

/// Returns a value as items of a list. In a list of blocks, a text becomes a block, and an empty
/// text is dropped.
fn items(found: Found, is_content: bool) -> (Vec<Value>, Vec<Place>) {
    let Found { value, place } = found;
    match value {
        Value::Array(items) => {
            let places = place.into_items(items.len());
            (items, places)
        }
        Value::String(text) if is_content && text.is_empty() => (Vec::new(), Vec::new()),
        Value::String(text) if is_content => (vec![text_block(&text)], vec![place.into_made()]),
        value => (vec![value], vec![place]),
    }
}
