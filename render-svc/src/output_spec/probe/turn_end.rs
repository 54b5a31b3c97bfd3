//! The end of the assistant's turn: the mark that follows the assistant's text in every probed
//! conversation, at the end and before another message, and never occurs inside a turn. Where no mark
//! does, the end may be text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::conversations::{ANSWER, ARGUMENT, CALLS, NEXT, Prober, QUESTION, REASONING, SYSTEM};
use super::marks::{Mark, MarkReader};
use crate::output_spec::reasoning::PAIRS;

/// The facts about the assistant's turn.
#[derive(Default)]
pub(in super::super) struct ProbedTurn {
    /// The mark that ends every turn.
    pub(in super::super) end: Option<Mark>,
    inside: Inside,
}

impl ProbedTurn {
    /// Returns true if the answer follows after this token.
    pub(in super::super) fn continues_after(&self, id: u32) -> bool {
        self.inside.before_answer.contains(&Mark::Token(id))
    }
}

/// Probes the ends of turns.
pub(in super::super) fn probe_turn(prober: &Prober<'_>, reader: &MarkReader<'_>) -> ProbedTurn {
    let inside = Inside::probe(prober, reader);
    let end = TurnEndProbe::new(prober, reader, &inside).and_then(|probe| probe.end().or_else(|| probe.text_end()));
    ProbedTurn { end, inside }
}

/// The marks inside turns.
#[derive(Default)]
struct Inside {
    /// Marks between the reasoning, the answer and the tool calls of a turn.
    anywhere: BTreeSet<Mark>,
    /// Marks between the reasoning and what follows it.
    before_answer: BTreeSet<Mark>,
    /// The texts between the same parts.
    texts: Vec<String>,
}

impl Inside {
    fn probe(prober: &Prober<'_>, reader: &MarkReader<'_>) -> Self {
        let mut inside = Self::default();
        for turn in turns_with_parts(prober) {
            let texts = [REASONING, ANSWER, CALLS[0], CALLS[1], ARGUMENT];
            let starts = texts.iter().filter_map(|text| Some(turn.find(text)? + text.len()));
            let ends = texts.iter().filter_map(|text| turn.rfind(text));
            let text = part(&turn, starts.min(), ends.max());
            inside.anywhere.extend(reader.marks(text));
            inside.texts.push(text.to_owned());
            let reasoned = turn.find(REASONING).map(|at| at + REASONING.len());
            let followed = texts[1..].iter().filter_map(|text| turn.find(text)).filter(|&at| Some(at) > reasoned);
            inside.before_answer.extend(reader.marks(part(&turn, reasoned, followed.min())));
        }
        inside
    }

    fn has(&self, mark: &Mark) -> bool {
        self.anywhere.contains(mark)
    }
}

fn part(text: &str, start: Option<usize>, end: Option<usize>) -> &str {
    start.zip(end).and_then(|(start, end)| text.get(start..end)).unwrap_or_default()
}

/// Returns the rendered turns of several parts that the template takes.
fn turns_with_parts(prober: &Prober<'_>) -> Vec<String> {
    let thought = format!("<think>\n{REASONING}\n</think>\n\n{ANSWER}");
    let without_calls = [prober.reasoned(ANSWER), prober.assistant(&thought)];
    let with_calls = [
        prober.with_calls(prober.reasoned(ANSWER), &CALLS),
        prober.with_calls(prober.reasoned(""), &CALLS[..1]),
        prober.with_calls(prober.assistant(ANSWER), &CALLS[..1]),
    ];
    let question = || prober.user(QUESTION);
    let without_calls = without_calls.into_iter().filter_map(|turn| prober.render(&[question(), turn]));
    let with_calls = with_calls.into_iter().filter_map(|turn| prober.render_calls(&[question(), turn]));
    let after_question = |text: String| text.rsplit_once(QUESTION).map(|(_, turn)| turn.to_owned());
    without_calls.chain(with_calls).filter_map(after_question).collect()
}

/// A turn, rendered as the last message and before another one.
struct RenderedTurn {
    last: Option<String>,
    next: Option<String>,
}

impl RenderedTurn {
    fn new(prober: &Prober<'_>, mut messages: Vec<Value>) -> Option<Self> {
        let last = prober.render(&messages).filter(|text| text.contains(ANSWER));
        messages.push(prober.user(NEXT));
        let next = prober.render(&messages).or_else(|| {
            // Some templates require that the assistant's message is the last.
            messages.push(prober.assistant("Yes"));
            prober.render(&messages)
        });
        let next = next.filter(|text| between(text).is_some());
        (last.is_some() || next.is_some()).then_some(Self { last, next })
    }

    /// Returns one of the renderings.
    fn any(&self) -> &str {
        self.last.as_deref().or(self.next.as_deref()).unwrap_or_default()
    }
}

/// Returns the text between the answer and the next question.
fn between(text: &str) -> Option<&str> {
    Some(text.rsplit_once(NEXT)?.0.rsplit_once(ANSWER)?.1)
}

/// The search for the end of turns.
struct TurnEndProbe<'a> {
    reader: &'a MarkReader<'a>,
    inside: &'a Inside,
    turns: Vec<RenderedTurn>,
    /// The marks before all words of every prompt. They start turns.
    leading: Vec<Mark>,
    /// The marks between the question and the end of a prompt. They end the user's turn and start
    /// the assistant's.
    prompt: Vec<Mark>,
    /// True if every rendering ends with the start of the assistant's turn.
    always_prompts: bool,
    /// Markers of reasoning.
    reasoning: Vec<Mark>,
}

impl<'a> TurnEndProbe<'a> {
    /// Renders the turns. None if the template renders none.
    fn new(prober: &Prober<'_>, reader: &'a MarkReader<'a>, inside: &'a Inside) -> Option<Self> {
        let question = || prober.user(QUESTION);
        let turns = [
            vec![question(), prober.assistant(ANSWER)],
            vec![question(), prober.reasoned(ANSWER)],
            vec![prober.system(), question(), prober.assistant(ANSWER)],
        ];
        let turns: Vec<_> = turns.into_iter().filter_map(|turn| RenderedTurn::new(prober, turn)).collect();
        let leading = leading_marks(prober, reader, &turns)?;
        let prompt = prober.render_prompt();
        let always_prompts = prompt.is_some() && prompt == prober.render(&[question()]);
        let prompt = prompt
            .as_deref()
            .and_then(|text| text.rsplit_once(QUESTION))
            .map(|(_, after)| reader.marks(after))
            .unwrap_or_default();
        let reasoning = PAIRS.iter().flat_map(|(start, end)| [reader.marks(start), reader.marks(end)].concat());
        Some(Self { reader, inside, turns, leading, prompt, always_prompts, reasoning: reasoning.collect() })
    }

    /// Returns the mark that ends every turn.
    fn end(&self) -> Option<Mark> {
        let mut ends = self.turns.iter().map(|turn| self.end_of(turn));
        let first = ends.next()?;
        ends.all(|end| end == first).then_some(first)?
    }

    /// Returns the text without control tokens that follows the answer in every rendering, if it is
    /// long enough to end no answer by chance. White space before it belongs to it, so that text of an
    /// answer must begin a line if the end does.
    fn text_end(&self) -> Option<Mark> {
        const MIN_SIGNS: usize = 4;
        const MAX_BYTES: usize = 256;
        let mut ends = self.turns.iter().map(|turn| {
            let (_, last) = turn.last.as_deref()?.rsplit_once(ANSWER)?;
            let end = last.trim_end();
            between(turn.next.as_deref()?)?.starts_with(end).then_some(end)
        });
        let end = ends.next()??;
        let signs = end.chars().filter(|c| !c.is_whitespace()).count();
        // A number may be the time or the size of the answer.
        let is_fixed = !end.contains(char::is_numeric);
        let is_distinct = is_fixed && signs >= MIN_SIGNS && end.contains(char::is_alphabetic) && end.len() <= MAX_BYTES;
        let is_inside = self.inside.texts.iter().any(|text| text.contains(end.trim_start()));
        let repeats = [QUESTION, SYSTEM].iter().any(|text| end.contains(text));
        let is_end = is_distinct && !is_inside && !repeats && !self.reader.has_token(end);
        (is_end && ends.all(|other| other == Some(end))).then(|| Mark::Text(end.to_owned()))
    }

    /// Returns the mark that ends a turn in both renderings.
    fn end_of(&self, turn: &RenderedTurn) -> Option<Mark> {
        let (before, after) = turn.any().split_once(QUESTION)?;
        let head = after.split_once(ANSWER).map(|(head, _)| self.reader.marks(head)).unwrap_or_default();
        // The last mark before both of the user's texts starts the user's turn. An end of turns is also
        // before the assistant's text.
        let start = self.reader.marks(before).pop();
        let start = start.filter(|mark| !self.prompt.contains(mark) && !head.contains(mark));
        let last = turn.last.as_deref().and_then(|text| text.rsplit_once(ANSWER));
        let last = last.map(|(_, after)| self.before_start(self.reader.marks(after)));
        let next = turn.next.as_deref().and_then(between).map(|text| {
            let mut marks = self.reader.marks(text);
            marks.pop_if(|mark| Some(&*mark) == start.as_ref());
            self.before_start(marks)
        });
        match (last, next) {
            (Some(last), Some(next)) => self.end_in_both(&last, &next, &head),
            (Some(last), None) => last.into_iter().rfind(|mark| self.is_end(mark) && !is_in_square_brackets(mark)),
            (None, next) => self.first_end(&next?),
        }
    }

    /// Returns the marks before the first one that starts a turn.
    fn before_start(&self, marks: Vec<Mark>) -> Vec<Mark> {
        marks.into_iter().take_while(|mark| !self.leading.contains(mark)).collect()
    }

    /// Returns the end from the marks after the answer, at the end and before another message.
    fn end_in_both(&self, last: &[Mark], next: &[Mark], head: &[Mark]) -> Option<Mark> {
        let common = last.iter().zip(next).take_while(|(last, next)| last == next).count();
        let (common, rest) = next.split_at(common);
        match common {
            // The template ends the turn only before another message.
            [] if last.is_empty() || self.is_prompt(last) => self.first_end(rest),
            // The first mark closes a section. The end, which is also that of the user's turn, is
            // written only before another message.
            [_] if last.len() == 1 && self.opens_section(head) && rest.first() == head.first() => self.first_end(rest),
            _ => common.iter().rfind(|mark| self.is_end(mark)).cloned(),
        }
    }

    /// Returns true if the marks at the end only start the assistant's next turn.
    fn is_prompt(&self, last: &[Mark]) -> bool {
        self.always_prompts && last.len() == 1 && last.last() == self.prompt.last()
    }

    fn is_end(&self, mark: &Mark) -> bool {
        !self.inside.has(mark)
    }

    /// Returns the first of the marks before another message that may be an end.
    fn first_end(&self, marks: &[Mark]) -> Option<Mark> {
        marks.iter().find(|mark| self.is_end(mark) && !is_in_square_brackets(mark)).cloned()
    }

    /// Returns true if the mark before the answer opens a section: it is neither in a prompt nor a
    /// marker of reasoning.
    fn opens_section(&self, head: &[Mark]) -> bool {
        head.last().is_some_and(|mark| !self.prompt.contains(mark) && !self.reasoning.contains(mark))
    }
}

/// Returns true for text such as `[/INST]`. Answers contain such text too, so it has to end the turn
/// in every rendering.
fn is_in_square_brackets(mark: &Mark) -> bool {
    matches!(mark, Mark::Text(text) if text.starts_with('['))
}

/// Returns the marks before all words of every rendering, except the eos token, which is also the bos
/// token of some models.
fn leading_marks(prober: &Prober<'_>, reader: &MarkReader<'_>, turns: &[RenderedTurn]) -> Option<Vec<Mark>> {
    let mut leading = reader.leading(turns.first()?.any());
    // A default system message without text leads with its end.
    if let Some(turn) = turns.iter().find(|turn| turn.any().contains(SYSTEM)) {
        let with_system = reader.leading(turn.any());
        leading.retain(|mark| with_system.contains(mark));
    }
    let eos = reader.marks(prober.eos_token());
    leading.retain(|mark| !eos.contains(mark));
    Some(leading)
}
