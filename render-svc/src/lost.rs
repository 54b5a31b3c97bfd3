//! Warns of each part of a conversation that is not in the prompt.
//!
//! Most parts are found in the prompt as they are. A template may also change a text, cut it, or leave
//! it out. The parts that are not found therefore get marks, and the conversation is rendered again. A
//! part none of whose marks is in that prompt was left out. A text that lacks one of them was cut.

mod marks;
mod parts;
mod schema;
mod texts;

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value;

use self::marks::{FoundMarks, Marked, Names};
use self::parts::{Group, List, Part, Place};
use self::texts::MIN_BYTES;
use crate::conversation::{CONTENT, Conversation};
use crate::probes::{Finding, TemplateFacts};
use crate::warning::{self, Warning, WarningCode};

/// The bytes that are searched at most, as a multiple of the prompt's size.
const MAX_SEARCHES: usize = 64;
/// The bytes of a prompt between a part and the one before it at most, such as the start of a turn.
const MAX_GAP_BYTES: usize = 1024;
/// The bytes of a text that are searched. The rest is compared where they are found.
const PREFIX_BYTES: usize = 16;
/// The most places where the first bytes of a text are found and the rest differs.
const MAX_PLACES: usize = 8;
/// The most parts that are replaced by marks. A response names few of each kind.
const MAX_MARKED: usize = 1024;

/// Returns a warning for each part that is not in the prompt of `renderer`, such as a template with
/// these facts. `render` renders a changed conversation as the prompt was rendered, and returns None if
/// it fails.
pub(crate) fn warnings(
    conversation: &Conversation,
    facts: &TemplateFacts,
    prompt: &str,
    renderer: &str,
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let parts = parts::of(conversation, facts);
    let found = Search::new(prompt).find_all(&parts);
    // A part that is left out may be found in a later one, which is then found nowhere or elsewhere.
    let is_in_order = |(part, found): (&Part<'_>, &Found)| match found {
        Found::InOrder => true,
        Found::Nowhere => part.finding == Finding::LeftOut,
        Found::Elsewhere | Found::Unsearched => false,
    };
    let is_dialogue = |part: &Part<'_>| part.group == Group::Dialogue;
    let is_ordered = parts.iter().zip(&found).filter(|(part, _)| is_dialogue(part)).all(is_in_order);
    let (mut doubtful, mut sure) = (Vec::new(), Vec::new());
    for (part, found) in parts.iter().zip(&found) {
        match (found, part.finding) {
            (Found::InOrder | Found::Elsewhere, _) if part.is_shared => doubtful.push(part),
            (Found::Elsewhere, _) if is_dialogue(part) || !part.is_long() => doubtful.push(part),
            (Found::InOrder | Found::Elsewhere, Finding::Shown) => sure.push(part),
            (Found::InOrder | Found::Elsewhere, Finding::Unknown) if part.is_long() => sure.push(part),
            _ => doubtful.push(part),
        }
    }
    doubtful.extend(sure.into_iter().filter(|part| is_dialogue(part) && !is_ordered));
    doubtful.truncate(MAX_MARKED);
    // The marks of a call's arguments replace the call's.
    doubtful.sort_by_key(|part| part.place);
    let (mut lost, mut cut) = (Vec::new(), Vec::new());
    for (part, found) in doubtful.iter().zip(found_marks(conversation, &doubtful, render)) {
        match found {
            FoundMarks::All => {}
            FoundMarks::AllBut(bytes) => cut.push((*part, bytes)),
            FoundMarks::None => lost.push(*part),
        }
    }
    let without: HashSet<Place> = lost.iter().map(|part| part.place).collect();
    let calls = |parts: &mut dyn Iterator<Item = &Part<'_>>| parts.filter_map(Part::call_of_argument).collect();
    let partly_shown: HashSet<Place> = calls(&mut parts.iter().filter(|part| !without.contains(&part.place)));
    let with_arguments: HashSet<Place> = calls(&mut parts.iter());
    lost.retain(|part| !partly_shown.contains(&part.place));
    cut.retain(|(part, _)| !with_arguments.contains(&part.place));
    let mut warnings = summed(&lost, &parts, &left_out(renderer));
    let text = format!("not wholly in the prompt: {renderer} cuts it, or leaves parts out");
    let of_cut = |(part, cuts): (&Part<'_>, Vec<usize>)| Warning {
        cuts,
        ..Warning::new(part.code, part.path_of_text(), text.clone())
    };
    warnings.extend(cut.into_iter().map(of_cut));
    warnings
}

fn left_out(renderer: &str) -> String {
    format!("not in the prompt: {renderer} leaves it out")
}

/// Returns the marks of each part that are in the prompt of the marked conversation. A template may look
/// up the tool of a call by its name, so that other names hide a call or make it fail. The names then
/// stay as they are. Without marks, a probe decides.
fn found_marks(
    conversation: &Conversation,
    parts: &[&Part<'_>],
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<FoundMarks> {
    if parts.is_empty() {
        return Vec::new();
    }
    let found = |names: Names| {
        let marked = Marked::new(conversation, parts, names);
        Some(marked.found(&render(&marked.conversation)?))
    };
    let is_named = |part: &Part<'_>| matches!(part.code, WarningCode::ToolCallsIgnored | WarningCode::ToolsIgnored);
    let first = found(Names::Marked);
    let is_certain = |first: &Vec<Option<FoundMarks>>| {
        !parts.iter().zip(first).any(|(part, found)| is_named(part) && *found == Some(FoundMarks::None))
    };
    let second = if first.as_ref().is_some_and(is_certain) { None } else { found(Names::Kept) };
    let of = |all: &Option<Vec<Option<FoundMarks>>>, part: usize| all.as_ref().and_then(|all| all[part].clone());
    let probed = |part: &Part<'_>| if part.finding == Finding::LeftOut { FoundMarks::None } else { FoundMarks::All };
    let best = |(at, part): (usize, &&Part<'_>)| of(&first, at).max(of(&second, at)).unwrap_or(probed(part));
    parts.iter().enumerate().map(best).collect()
}

/// Returns the warnings of parts that are left out, with this text. A list of which every item is lost
/// has one. The fields of an item that is lost have none, nor has a field within one that is lost.
fn summed(lost: &[&Part<'_>], parts: &[Part<'_>], text: &str) -> Vec<Warning> {
    let items: HashSet<_> = lost.iter().filter_map(|part| part.whole_item()).collect();
    let shown = parts.iter().filter_map(Part::whole_item).filter(|item| !items.contains(item));
    let partly_shown: HashSet<List> = shown.map(|(list, _)| list).collect();
    let mut warnings: Vec<Warning> = Vec::new();
    let mut outer: Option<&Part<'_>> = None;
    for part in lost {
        if outer.is_some_and(|outer| part.is_within(outer)) {
            continue;
        }
        outer = Some(part);
        let path = match part.item() {
            Some((list, _)) if !partly_shown.contains(&list) => list.name().to_owned(),
            Some(item) if part.whole_item().is_none() && items.contains(&item) => continue,
            _ => part.path(),
        };
        // On the wire, the path of a field ends at the JSON that contains it.
        let text = match part.field_path().strip_prefix('.') {
            Some(field) => format!("{field} is {text}"),
            None => text.to_owned(),
        };
        if warnings.last().is_none_or(|last| (last.code, &last.path) != (part.code, &path)) {
            warnings.push(Warning::new(part.code, path, text));
        }
    }
    warnings
}

/// The most renderings in which further keys of messages are looked for.
const MAX_KEY_RENDERINGS: usize = 16;

/// Returns a warning for each further key of a message, such as the mark of a failed result, without which
/// the prompt is the same.
pub(crate) fn unread_keys(
    conversation: &Conversation,
    prompt: &str,
    renderer: &str,
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let warnings = warning::further_keys(conversation, &left_out(renderer));
    let mut left = MAX_KEY_RENDERINGS;
    let mut are_unread = |warnings: &[Warning]| {
        if left == 0 {
            return false;
        }
        left -= 1;
        render(&without_keys(conversation, warnings)).is_some_and(|same| same == prompt)
    };
    unread_among(&warnings, &mut are_unread)
}

/// Returns all warnings, or those of the unread keys of either half.
fn unread_among(warnings: &[Warning], are_unread: &mut impl FnMut(&[Warning]) -> bool) -> Vec<Warning> {
    if warnings.is_empty() || are_unread(warnings) {
        return warnings.to_vec();
    }
    if warnings.len() == 1 {
        return Vec::new();
    }
    let (first, second) = warnings.split_at(warnings.len() / 2);
    [unread_among(first, are_unread), unread_among(second, are_unread)].concat()
}

/// Returns the conversation without the keys at the paths of these warnings.
fn without_keys(conversation: &Conversation, warnings: &[Warning]) -> Conversation {
    let paths: HashSet<&str> = warnings.iter().map(|warning| warning.path.as_str()).collect();
    let mut without = conversation.clone();
    let remove = |value: &mut Value, path: &str| {
        let fields = value.as_object_mut().into_iter();
        fields.for_each(|fields| fields.retain(|key, _| !paths.contains(&*format!("{path}.{key}"))));
    };
    for (i, message) in without.messages.iter_mut().enumerate() {
        let path = format!("messages[{i}]");
        remove(message, &path);
        let blocks = message.get_mut(CONTENT).and_then(Value::as_array_mut).into_iter().flatten().enumerate();
        blocks.for_each(|(j, block)| remove(block, &format!("{path}.{CONTENT}[{j}]")));
    }
    without
}

/// The place in a prompt where a part is found.
enum Found {
    /// After the part before it.
    InOrder,
    /// Before the end of the part before it.
    Elsewhere,
    Nowhere,
    /// Too much was searched.
    Unsearched,
}

/// Searches the texts of a conversation in the prompt, each after the one of its group before it where
/// it can.
struct Search<'p> {
    prompt: &'p str,
    /// The end of the last text that was found, by group.
    at: [usize; Group::COUNT],
    /// The start of the last call. Templates differ in the order of its arguments.
    call: usize,
    /// Bytes that may still be searched.
    left: usize,
}

impl<'p> Search<'p> {
    fn new(prompt: &'p str) -> Self {
        Self { prompt, at: [0; Group::COUNT], call: 0, left: prompt.len().saturating_mul(MAX_SEARCHES) }
    }

    fn find_all(&mut self, parts: &[Part<'_>]) -> Vec<Found> {
        let following = |i: usize| parts.get(i + 1).filter(|next| next.message() == parts[i].message());
        parts.iter().enumerate().map(|(i, part)| self.find_part(part, following(i))).collect()
    }

    /// Searches a text of the part. Reasoning that the template usually leaves out is searched only
    /// before the text that follows in its message.
    fn find_part(&mut self, part: &Part<'_>, following: Option<&Part<'_>>) -> Found {
        let is_near = part.code == WarningCode::ReasoningIgnored && part.finding == Finding::LeftOut;
        let end = is_near.then(|| self.end_before(part, following));
        let from = match part.call_of_argument() {
            Some(_) => self.call,
            None => self.at[part.group as usize],
        };
        self.call = from;
        let mut found = Found::Nowhere;
        for text in part.texts.all().iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
            match self.find_text(text, part.group, from..end.unwrap_or(self.prompt.len())) {
                Found::InOrder => return Found::InOrder,
                Found::Elsewhere => found = Found::Elsewhere,
                Found::Unsearched => return Found::Unsearched,
                Found::Nowhere => {}
            }
        }
        found
    }

    /// Returns the start of the text that follows a part, or a place not far behind the part before it.
    fn end_before(&mut self, part: &Part<'_>, following: Option<&Part<'_>>) -> usize {
        let at = self.at[part.group as usize];
        let size = part.texts.all().iter().map(|text| text.len()).sum::<usize>();
        let far = self.prompt.floor_char_boundary(at + size + MAX_GAP_BYTES);
        let prompt = self.prompt;
        let texts = following.into_iter().flat_map(|next| next.texts.all()).map(|text| text.trim());
        texts
            .filter(|text| !text.is_empty())
            .find_map(|text| self.find(&prompt[at..], text))
            .map_or(far, |end| at + end)
    }

    /// Searches a text in its order, and only there unless the range extends to the prompt's end.
    fn find_text(&mut self, text: &str, group: Group, range: Range<usize>) -> Found {
        if self.left == 0 && !self.prompt.is_empty() {
            return Found::Unsearched;
        }
        let prompt = self.prompt;
        if let Some(found) = self.find(&prompt[range.clone()], text) {
            let at = &mut self.at[group as usize];
            *at = (*at).max(range.start + found + text.len());
            return Found::InOrder;
        }
        let is_elsewhere = range.end == prompt.len() && self.find(prompt, text).is_some();
        if is_elsewhere { Found::Elsewhere } else { Found::Nowhere }
    }

    fn find(&mut self, prompt: &str, text: &str) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let found = find(prompt, text);
        self.left = self.left.saturating_sub(found.unwrap_or(prompt.len()) + text.len());
        found
    }
}

/// Returns the first place of a text. A short one is found as words only. Preparing the search of a
/// long text takes longer than finding its first bytes.
fn find(prompt: &str, text: &str) -> Option<usize> {
    if text.len() < MIN_BYTES {
        return prompt.match_indices(text).map(|(at, _)| at).find(|&at| is_whole(prompt, at, text));
    }
    let prefix = &text[..text.floor_char_boundary(PREFIX_BYTES)];
    let mut from = 0;
    for _ in 0..MAX_PLACES {
        let at = from + prompt[from..].find(prefix)?;
        if prompt[at..].starts_with(text) {
            return Some(at);
        }
        from = prompt.ceil_char_boundary(at + 1);
    }
    prompt[from..].find(text).map(|at| from + at)
}

/// Returns true if no letter or digit in the prompt continues the text at this place.
fn is_whole(prompt: &str, at: usize, text: &str) -> bool {
    let is_word = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    let (before, after) = (prompt[..at].chars().next_back(), prompt[at + text.len()..].chars().next());
    let is_continued = is_word(text.chars().next_back()) && is_word(after);
    let continues = is_word(before) && is_word(text.chars().next());
    !(is_continued || continues)
}
