//! Warns of each part of a conversation that is not in the prompt.
//!
//! Most parts are found in the prompt as they are. A template may also change a text, cut it, or leave
//! it out. The parts that are not found therefore get marks, and the conversation is rendered again. A
//! part none of whose marks is in that prompt was left out. A text that lacks one of them was cut. Other letters
//! of the same size confirm both. Fields that no mark can find are taken out.

mod halves;
mod listed;
mod marks;
mod part;
mod parts;
mod pieces;
mod printed;
mod schema;
mod search;
mod steps;
mod texts;
mod unread;

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tandem_common::field::{Path, Step, Steps};
use tandem_template::StepsPool;

use self::halves::{Doubt, unaffected};
use self::marks::{FoundMarks, Marked, Names};
use self::part::{Group, List, Part, Place};
use self::search::{Found, Search};
use crate::conversation::Conversation;
use crate::probes::{Finding, TemplateFacts};
use crate::warning::{Warning, WarningCode};

/// The most parts that are replaced by marks. A response names few of each kind.
const MAX_MARKED: usize = 1024;

/// Returns a warning for each part that is not in the prompt of `renderer`, such as a template with
/// these facts, and for each field without which the prompt is the same. `render` renders a changed
/// conversation as the prompt was rendered, and returns None if it fails.
pub(crate) fn warnings(
    conversation: &Conversation,
    facts: &TemplateFacts,
    prompt: &str,
    renderer: &str,
    render: impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let mut warnings = of_parts(conversation, facts, prompt, renderer, &render);
    warnings.extend(unread::warnings(conversation, prompt, &left_out(renderer), render));
    let outer: HashMap<Path, _> = warnings.iter().map(|warning| (warning.path.clone(), warning.code)).collect();
    // The path of a message is that of its content.
    let is_outer = |steps: &Steps<'_>, code| {
        !matches!(steps, [Step::Key("messages"), Step::Index(_)]) && outer.get(&Path::from(steps)) == Some(&code)
    };
    warnings.retain(|Warning { path, code, .. }| {
        let steps = path.steps();
        !(1..steps.len()).any(|size| is_outer(&steps[..size], *code))
    });
    warnings
}

/// Returns a warning for each part that is not in the prompt.
fn of_parts(
    conversation: &Conversation,
    facts: &TemplateFacts,
    prompt: &str,
    renderer: &str,
    render: &impl Fn(&Conversation) -> Option<String>,
) -> Vec<Warning> {
    let parts = parts::of(conversation, facts, prompt);
    let found = Search::new(prompt).find_all(&parts);
    let disguised = |parts: &[Candidate<'_>]| match render(&marks::with_disguised(conversation, parts)) {
        Some(disguised) => Some(disguised == prompt),
        None if parts.len() > 1 && !StepsPool::is_spent() => Some(false),
        None => None,
    };
    // Most parts that are nowhere in the prompt are left out, as one rendering shows.
    let is_nowhere = |(part, found): &(&Part<'_>, &Found)| matches!(found, Found::Nowhere) && !part.is_shared;
    let nowhere = parts.iter().zip(&found).filter(is_nowhere).map(|(part, _)| (part, None));
    let mut nowhere: Vec<Candidate<'_>> = nowhere.take(MAX_MARKED).collect();
    if nowhere.is_empty() || disguised(&nowhere) != Some(true) {
        nowhere.clear();
    }
    let known = nowhere.iter().map(|(part, _)| part.place).collect();
    let doubtful = doubtful(&parts, &found, &known);
    let marks = found_marks(conversation, &doubtful, render);
    let Verdict { mut lost, mut cut, missing, shown_calls } =
        Verdict::new(&parts, &found, doubtful.into_iter().zip(marks));
    confirm(&mut lost, &mut cut, prompt, disguised);
    lost.extend(silent(conversation, &missing, prompt, render).into_iter().map(|part| (part, None)));
    lost.extend(nowhere);
    lost.sort_by_key(|(part, _)| part.place);
    let lost: Vec<_> = lost.into_iter().map(|(part, _)| part).collect();
    let lost = without_shown_calls(lost, &parts, shown_calls);
    let mut warnings = summed(conversation, &lost, &parts, &left_out(renderer));
    warnings.extend(cuts(cut, renderer));
    warnings
}

/// Returns the parts that may be left out although their texts are found, or shown although they are not, in the
/// order of their places. The parts at `known` are left out.
fn doubtful<'c>(parts: &'c [Part<'c>], found: &[Found], known: &HashSet<Place>) -> Vec<&'c Part<'c>> {
    // A part that is left out may be found in a later one, which is then found nowhere or elsewhere.
    let is_in_order = |(part, found): (&Part<'_>, &Found)| match found {
        Found::InOrder => true,
        Found::Nowhere => part.finding == Finding::LeftOut || known.contains(&part.place),
        Found::Elsewhere | Found::Unsearched => false,
    };
    let is_dialogue =
        |part: &Part<'_>| part.group == Group::Dialogue && part.call_of_name().is_none() && !part.is_repeat;
    let is_ordered = parts.iter().zip(found).filter(|(part, _)| is_dialogue(part)).all(is_in_order);
    let (mut doubtful, mut sure) = (Vec::new(), Vec::new());
    for (part, found) in parts.iter().zip(found).filter(|(part, _)| !known.contains(&part.place)) {
        match (found, part.finding) {
            (Found::InOrder | Found::Elsewhere, _) if part.is_repeat && !part.is_shared => {}
            (Found::InOrder | Found::Elsewhere, _) if part.is_shared => doubtful.push(part),
            (Found::Elsewhere, _) if is_dialogue(part) || !part.is_long() || part.whole_item().is_some() => {
                doubtful.push(part);
            }
            (Found::InOrder | Found::Elsewhere, Finding::Shown) => sure.push(part),
            (Found::InOrder, _) if part.call_of_name().is_some() => sure.push(part),
            (Found::InOrder | Found::Elsewhere, Finding::Unknown) if part.is_long() => sure.push(part),
            _ => doubtful.push(part),
        }
    }
    doubtful.extend(sure.into_iter().filter(|part| is_dialogue(part) && !is_ordered));
    doubtful.truncate(MAX_MARKED);
    // The marks of a call's arguments replace the call's.
    doubtful.sort_by_key(|part| part.place);
    doubtful
}

/// The doubtful parts by the marks that are found.
#[derive(Default)]
struct Verdict<'c> {
    /// The parts none of whose marks is found.
    lost: Vec<Candidate<'c>>,
    /// The bytes of texts whose marks are not found.
    cut: Vec<Candidate<'c>>,
    /// The parts of which a mark is found, and no text at its place.
    missing: Vec<&'c Part<'c>>,
    /// The calls that are shown without their name.
    shown_calls: HashSet<Place>,
}

impl<'c> Verdict<'c> {
    fn new(parts: &'c [Part<'c>], found: &[Found], marked: impl Iterator<Item = (&'c Part<'c>, FoundMarks)>) -> Self {
        let is_unfound = |(_, found): &(&Part<'_>, &Found)| matches!(found, Found::Nowhere | Found::Elsewhere);
        let unfound = parts.iter().zip(found).filter(is_unfound).map(|(part, _)| part);
        let has_text = |part: &&Part<'_>| !part.is_names() && part.call_of_name().is_none() && !part.is_repeat;
        let unfound: HashSet<Place> = unfound.filter(has_text).map(|part| part.place).collect();
        let with_values: HashSet<Place> = parts.iter().filter_map(Part::call_of_argument).collect();
        let mut verdict = Self::default();
        for (part, marks) in marked {
            // The marks of its values replace those of a call.
            let is_whole = marks == FoundMarks::All || with_values.contains(&part.place);
            match marks {
                FoundMarks::None => {
                    // The name of a call is lost only if the rest of the call is shown.
                    verdict.shown_calls.extend(part.call_of_name());
                    let is_lost = !part.is_repeat || part.call_of_name().is_none();
                    verdict.lost.extend(is_lost.then_some((part, None)));
                }
                _ if is_whole => verdict.missing.extend(unfound.contains(&part.place).then_some(part)),
                FoundMarks::AllBut(bytes) => verdict.cut.extend(bytes.into_iter().map(|byte| (part, Some(byte)))),
                FoundMarks::All => {}
            }
        }
        verdict
    }
}

/// Returns the parts without which the prompt is the same: a template may leave out a part because of its text.
fn silent<'c>(
    conversation: &Conversation,
    parts: &[&'c Part<'c>],
    prompt: &str,
    render: &impl Fn(&Conversation) -> Option<String>,
) -> Vec<&'c Part<'c>> {
    let mut renderings = 0;
    unaffected(parts, Doubt::Dropped, &mut |parts| {
        renderings += 1;
        let without = (renderings <= MAX_REMOVALS).then(|| marks::without(conversation, parts))?;
        Some(render(&without).is_some_and(|without| without == prompt))
    })
}

/// A part, or the byte of its text at which it may be cut.
type Candidate<'c> = (&'c Part<'c>, Option<usize>);

/// The most renderings in which parts are taken out.
const MAX_REMOVALS: usize = 6;
/// The most renderings that confirm lost parts.
const MAX_CONFIRMATIONS: usize = 24;

/// Keeps the parts whose letters do not change the prompt. Marks make a text longer, and a template may show
/// its first words, or another text if it is long. A lost part of which the prompt shows a word may be cut. A
/// template may compute with a number.
fn confirm<'c>(
    lost: &mut Vec<Candidate<'c>>,
    cut: &mut Vec<Candidate<'c>>,
    prompt: &str,
    disguised: impl Fn(&[Candidate<'c>]) -> Option<bool>,
) {
    let mut renderings = 0;
    let mut is_same = |parts: &[Candidate<'c>]| {
        renderings += 1;
        if renderings <= MAX_CONFIRMATIONS { disguised(parts) } else { None }
    };
    let is_shown = |part: &Part<'_>| part.is_number() || part.words().any(|word| prompt.contains(word));
    let (shown, unseen): (Vec<_>, Vec<_>) = lost.drain(..).partition(|(part, _)| !part.is_names() && is_shown(part));
    let confirmed = unaffected(&shown, Doubt::Kept, &mut is_same);
    let places: HashSet<Place> = confirmed.iter().map(|(part, _)| part.place).collect();
    for (part, _) in shown.into_iter().filter(|(part, _)| !places.contains(&part.place)) {
        cut.extend(part.ends().into_iter().flatten().map(|byte| (part, Some(byte))));
    }
    let starts = unaffected(cut, Doubt::Kept, &mut is_same);
    let is_cut = |candidate: &Candidate<'_>| {
        starts.iter().any(|(part, byte)| (part.place, *byte) == (candidate.0.place, candidate.1))
    };
    // Of a piece whose first word is shown, the last one may be cut.
    let ends = cut.iter().filter(|candidate| !is_cut(candidate));
    let ends: Vec<_> = ends.filter_map(|(part, byte)| Some((*part, Some(part.piece_end((*byte)?)?)))).collect();
    *cut = [starts, unaffected(&ends, Doubt::Kept, &mut is_same)].concat();
    cut.sort_by_key(|(part, byte)| (part.place, *byte));
    *lost = [unseen, confirmed].concat();
}

/// Returns the lost parts without calls of which a name or a value is shown, and without the names of calls that
/// are lost.
fn without_shown_calls<'c>(
    mut lost: Vec<&'c Part<'c>>,
    parts: &[Part<'_>],
    mut shown: HashSet<Place>,
) -> Vec<&'c Part<'c>> {
    let places = |lost: &[&Part<'_>]| -> HashSet<Place> { lost.iter().map(|part| part.place).collect() };
    let without = places(&lost);
    shown.extend(parts.iter().filter(|part| !without.contains(&part.place)).filter_map(Part::call_of_argument));
    lost.retain(|part| !shown.contains(&part.place));
    let without = places(&lost);
    lost.retain(|part| part.call_of_name().is_none_or(|call| !without.contains(&call)));
    lost
}

/// Returns a warning for each part that is cut.
fn cuts(cut: Vec<Candidate<'_>>, renderer: &str) -> Vec<Warning> {
    let text = format!("not wholly in the prompt: {renderer} cuts it, or leaves parts out");
    let mut warnings: Vec<Warning> = Vec::new();
    for (part, byte) in cut {
        let path = part.path_of_text();
        match warnings.last_mut().filter(|last| (last.code, &last.path) == (part.code, &path)) {
            Some(last) => last.cuts.extend(byte),
            None => {
                let cuts = byte.into_iter().collect();
                warnings.push(Warning { cuts, ..Warning::new(part.code, path, text.clone()) });
            }
        }
    }
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
fn summed(conversation: &Conversation, lost: &[&Part<'_>], parts: &[Part<'_>], text: &str) -> Vec<Warning> {
    let items: HashSet<_> = lost.iter().filter_map(|part| part.whole_item()).collect();
    let size = |list: List| match list {
        List::Tools => conversation.tools.as_ref(),
        List::Documents => conversation.documents.as_ref(),
    };
    let is_lost_list = |list: List| {
        items.iter().filter(|item| item.0 == list).count() == size(list).and_then(Value::as_array).map_or(0, Vec::len)
    };
    let without: HashSet<Place> = lost.iter().map(|part| part.place).collect();
    let mut shown_values: HashMap<Place, Vec<&Steps<'_>>> = HashMap::new();
    for part in parts.iter().filter(|part| !without.contains(&part.place)) {
        let call = part.call_of_argument();
        call.into_iter().for_each(|call| shown_values.entry(call).or_default().push(&part.steps));
    }
    let is_lost = |call: Place, way: &Steps<'_>| {
        !shown_values.get(&call).is_some_and(|shown| shown.iter().any(|steps| steps.starts_with(way)))
    };
    let mut warnings: Vec<Warning> = Vec::new();
    let mut outer: Option<&Part<'_>> = None;
    for part in lost {
        if outer.is_some_and(|outer| part.is_within(outer)) {
            continue;
        }
        outer = Some(part);
        let path = match part.item() {
            Some((list, _)) if is_lost_list(list) => list.name().into(),
            Some(item) if part.whole_item().is_none() && items.contains(&item) => continue,
            _ => part.path(),
        };
        // A field of an argument is lost with its neighbours.
        let outer = part.call_of_argument().and_then(|call| part.outer_argument(|way| is_lost(call, way)));
        let path = outer.map_or(path, |outer| part.path_of_field(outer));
        // On the wire, the path of a field ends at the JSON that contains it.
        let text = match outer.unwrap_or_else(|| part.field()) {
            [] => text.to_owned(),
            field => format!("{} is {text}", Path::from(field)),
        };
        if warnings.last().is_none_or(|last| (last.code, &last.path) != (part.code, &path)) {
            warnings.push(Warning::new(part.code, path, text));
        }
    }
    warnings
}
