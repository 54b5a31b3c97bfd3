//! The checks of a conversation before a template reads it: all look at the parts of one walk.

use serde_json::Value;
use tandem_common::field::Path;

use crate::conversation::{Conversation, Invalid, is_image, media};
use crate::limits::Limits;
use crate::walk::{At, Part, walk};
use crate::warning::{self, Warning};

/// The findings in a conversation of the right shape.
#[derive(Debug, Default)]
pub struct Checked {
    pub images: Images,
    /// The first call or list of calls of another shape, which only some renderings refuse.
    pub wrong_calls: Option<Invalid>,
    /// A warning for each message without content.
    pub without_content: Vec<Warning>,
    /// The path, the name and the value of each further key of a block.
    pub keys_of_blocks: Vec<(Path, String, Value)>,
    /// A warning for each key of a message that its results replace.
    pub keys_of_results: Vec<Warning>,
}

/// The images of a conversation.
#[derive(Debug, Default)]
pub struct Images {
    /// The path of the first one, such as `messages[1].content[0]`.
    pub first: Option<Path>,
    pub count: usize,
}

impl Checked {
    /// Checks that each message is an object, that tools and documents are lists of objects, that no
    /// medium has two sources, on which every adapter relies, and the limits of images.
    ///
    /// # Errors
    /// The first part with another shape, else the first image over a limit, by path.
    pub fn new(conversation: &Conversation, limits: &Limits) -> Result<Self, Invalid> {
        let mut checked = Self::default();
        let (mut shape, mut image) = (None, None);
        walk(conversation, &mut |at, part| {
            shape = shape.take().or_else(|| wrong_shape(at, part));
            if checked.images.add(at, part) && image.is_none() {
                image = part.block().and_then(|block| limits.refused_image(at, block, checked.images.count));
            }
            checked.wrong_calls = checked.wrong_calls.take().or_else(|| wrong_call(at, part));
            checked.without_content.extend(warning::without_content(at, part));
            checked.keys_of_blocks.extend(warning::keys_of_block(at, part));
            checked.keys_of_results.extend(warning::keys_of_results(at, part));
        });
        let lists = [("tools", &conversation.tools), ("documents", &conversation.documents)];
        let other = lists.into_iter().find(|(_, list)| list.as_ref().is_some_and(|list| !list.is_array()));
        let no_list = other.map(|(list, _)| Invalid::new(list, "must be a list"));
        match shape.or(no_list).or(image) {
            Some(invalid) => Err(invalid),
            None => Ok(checked),
        }
    }
}

impl Images {
    /// Returns the images of a conversation.
    #[must_use]
    pub fn of(conversation: &Conversation) -> Self {
        let mut images = Self::default();
        walk(conversation, &mut |at, part| _ = images.add(at, part));
        images
    }

    /// Returns true if a part is an image.
    fn add(&mut self, at: &At<'_>, part: Part<'_>) -> bool {
        let is_image = part.block().is_some_and(is_image);
        if is_image {
            self.count += 1;
            self.first.get_or_insert_with(|| at.path());
        }
        is_image
    }
}

/// The keys of a medium's source, of which a block has one.
const SOURCES: [&str; 3] = ["base64", "url", "path"];

fn wrong_shape(at: &At<'_>, part: Part<'_>) -> Option<Invalid> {
    let invalid = |is_wrong: bool, problem| is_wrong.then(|| Invalid::new(at.path(), problem));
    match part {
        Part::Message(message) => invalid(!message.is_object(), "must be an object with a role and content"),
        Part::Tool(item) | Part::Document(item) => invalid(!item.is_object(), "must be an object"),
        Part::Block(block, _) | Part::InnerBlock(block) => {
            media::kind(block)?;
            let mut sources = SOURCES.into_iter().filter(|key| block.get(key).is_some_and(|value| !value.is_null()));
            let (first, second) = (sources.next()?, sources.next()?);
            Some(at.invalid(second, format!("must not be set beside {first}: a block has one source")))
        }
        Part::Call(_) => None,
    }
}

fn wrong_call(at: &At<'_>, part: Part<'_>) -> Option<Invalid> {
    match part {
        Part::Message(message) => {
            let calls = message.get("tool_calls").filter(|calls| !calls.is_null() && !calls.is_array());
            calls.map(|_| at.invalid("tool_calls", "must be a list"))
        }
        Part::Call(call) if !call.is_object() => Some(Invalid::new(at.path(), "must be an object")),
        _ => None,
    }
}
