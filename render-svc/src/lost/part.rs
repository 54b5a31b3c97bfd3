//! A part of a conversation, and its place.

use tandem_common::field::{Path, Step, Steps};

use super::pieces::pieces;
use super::schema::PROPERTIES;
use super::texts::{MIN_BYTES, Texts};
use crate::conversation::CONTENT;
use crate::probes::Finding;
use crate::warning::WarningCode;

/// A list other than the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum List {
    Tools,
    Documents,
}

impl List {
    /// Returns its path in the conversation.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Documents => "documents",
        }
    }
}

/// The place of a part, in the order of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// Within the message of this index.
    Message(usize, Within),
    /// The item of this index, or its field of this number.
    Item(List, usize, Option<usize>),
}

/// A place within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Within {
    /// The name of its author.
    Name,
    Content,
    Block(usize),
    Reasoning(&'static str),
    /// The reasoning in a text.
    Section,
    /// The call of this index, or the value of this number in its arguments.
    Call(usize, Option<usize>),
    /// The name of the function that the call of this index calls.
    CallName(usize),
    /// The value of this number in content that is neither text nor text blocks.
    Value(usize),
    /// The call of a message in OpenAI's earlier form.
    FunctionCall,
}

/// A part.
#[derive(Debug)]
pub(super) struct Part<'c> {
    pub place: Place,
    pub code: WarningCode,
    /// The part is shown if one of these texts is.
    pub texts: Texts<'c>,
    /// The treatment of such a part in the template's probes.
    pub finding: Finding,
    /// True if a prompt may contain its texts without showing it, such as the name of a tool.
    pub is_shared: bool,
    /// True if it repeats the text of another part, and is shown wherever that text is.
    pub is_repeat: bool,
    pub group: Group,
    /// The steps from a tool to its function.
    pub within: &'static Steps<'static>,
    /// The way from a call, a message, an item or a tool's function to the field that the part is. Empty if
    /// it is none.
    pub steps: Vec<Step<&'c str>>,
}

/// Parts that a prompt shows in their order. Templates differ in the places of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Messages of the system and the developer.
    Instructions,
    /// All other messages.
    Dialogue,
    Tools,
    Documents,
}

impl Group {
    pub(super) const COUNT: usize = 4;
}

impl<'c> Part<'c> {
    /// Returns the name of a message's author.
    pub(super) fn of_name(at: usize, group: Group, name: &'c str, is_repeat: bool) -> Self {
        let (place, code) = (Place::Message(at, Within::Name), WarningCode::MessageIgnored);
        let (texts, finding) = (Texts::One(name), Finding::Unknown);
        Self { place, code, texts, finding, is_shared: !is_repeat, is_repeat, group, within: &[], steps: Vec::new() }
    }

    /// Makes it a part that the prompt shows as JSON.
    pub(super) fn set_printed(&mut self) {
        (self.finding, self.is_shared) = (Finding::Shown, false);
    }

    /// Returns the index of its message.
    pub(super) fn message(&self) -> Option<usize> {
        match self.place {
            Place::Message(at, _) => Some(at),
            Place::Item(..) => None,
        }
    }

    /// Returns the item of a list that it is or belongs to.
    pub(super) fn item(&self) -> Option<(List, usize)> {
        match self.place {
            Place::Message(..) => None,
            Place::Item(list, item, _) => Some((list, item)),
        }
    }

    /// Returns the item of a list that it is.
    pub(super) fn whole_item(&self) -> Option<(List, usize)> {
        self.item().filter(|_| matches!(self.place, Place::Item(_, _, None)))
    }

    /// Returns the call in whose arguments it is.
    pub(super) fn call_of_argument(&self) -> Option<Place> {
        match self.place {
            Place::Message(at, Within::Call(call, Some(_))) => Some(Place::Message(at, Within::Call(call, None))),
            _ => None,
        }
    }

    /// Returns the call whose name it is.
    pub(super) fn call_of_name(&self) -> Option<Place> {
        match self.place {
            Place::Message(at, Within::CallName(call)) => Some(Place::Message(at, Within::Call(call, None))),
            _ => None,
        }
    }

    /// Returns true if it is the names of an object's properties.
    pub(super) fn is_names(&self) -> bool {
        self.item().is_some() && self.steps.last() == Some(&Step::Key(PROPERTIES))
    }

    /// Returns true if it is an argument of a call, or within a field of the same item.
    pub(super) fn is_within(&self, other: &Part<'_>) -> bool {
        if self.call_of_argument() == Some(other.place) {
            return true;
        }
        self.item().is_some()
            && self.item() == other.item()
            && !other.steps.is_empty()
            && self.steps.starts_with(&other.steps)
    }

    /// Returns the first and the last byte of its text, if it is one.
    pub(super) fn ends(&self) -> Option<[usize; 2]> {
        let is_name =
            |within| matches!(within, Within::Name | Within::Call(..) | Within::CallName(_) | Within::FunctionCall);
        let is_text = !matches!(self.place, Place::Message(_, within) if is_name(within));
        let Texts::One(text) = self.texts else { return None };
        let first = text.find(|c: char| !c.is_whitespace()).filter(|_| is_text)?;
        Some([first, text.trim_end().len() - 1])
    }

    /// Returns the last byte of the piece of its text in which this byte is, if it is one text.
    pub(super) fn piece_end(&self, byte: usize) -> Option<usize> {
        let Texts::One(text) = self.texts else { return None };
        pieces(text).into_iter().find(|piece| piece.contains(&byte)).map(|piece| piece.end - 1)
    }

    /// Returns true if its texts are numbers.
    pub(super) fn is_number(&self) -> bool {
        self.texts.all().iter().all(|text| text.parse::<f64>().is_ok())
    }

    /// Returns the words of its texts, without single letters.
    pub(super) fn words(&self) -> impl Iterator<Item = &'c str> {
        let words = self.texts.all().iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        words.filter(|word| word.len() > 1)
    }

    /// Returns true if none of its texts is in a prompt by chance.
    pub(super) fn is_long(&self) -> bool {
        self.texts.all().iter().all(|text| text.trim().len() >= MIN_BYTES)
    }

    /// Returns the path in the conversation.
    pub(super) fn path(&self) -> Path {
        self.path_of_field(self.field())
    }

    /// Returns the path of a field within its call, message or item.
    pub(super) fn path_of_field(&self, field: &Steps<'_>) -> Path {
        match self.place {
            Place::Message(at, within) => {
                let message = Path::item("messages", at);
                match within {
                    Within::Content | Within::Section => message,
                    Within::Name => message.key("name"),
                    Within::Block(block) => message.key(CONTENT).index(block),
                    Within::Reasoning(key) => message.key(key),
                    Within::Call(call, _) | Within::CallName(call) => message.key("tool_calls").index(call).join(field),
                    Within::Value(_) => message.join(field),
                    Within::FunctionCall => message.key("function_call"),
                }
            }
            Place::Item(list, item, _) => {
                let item = Path::item(list.name(), item);
                if self.steps.is_empty() { item.join(field) } else { item.join(self.within).join(field) }
            }
        }
    }

    /// Returns the steps to a field within its call, its item or the item's function, such as `title`.
    pub(super) fn field(&self) -> &Steps<'c> {
        // A schema without its properties is lost itself.
        let is_schema = matches!(self.steps[..], [_, Step::Key(PROPERTIES)]) && self.item().is_some();
        if is_schema { &self.steps[..1] } else { &self.steps }
    }

    /// Returns the steps, within its call, to the outermost argument or field of one that contains it and is lost.
    pub(super) fn outer_argument(&self, is_lost: impl Fn(&Steps<'_>) -> bool) -> Option<&Steps<'c>> {
        let arguments = self.steps.iter().position(|step| *step == Step::Key("arguments"))?;
        let mut ways = (arguments + 2..=self.steps.len()).map(|size| &self.steps[..size]);
        ways.find(|way| is_lost(way))
    }

    /// Returns the path of its text.
    pub(super) fn path_of_text(&self) -> Path {
        match self.place {
            Place::Message(at, Within::Content | Within::Section) => Path::item("messages", at).key(CONTENT),
            Place::Item(List::Tools, item, None) => {
                Path::item(List::Tools.name(), item).join(self.within).key("description")
            }
            _ => self.path(),
        }
    }
}
