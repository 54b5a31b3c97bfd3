//! Warnings about HF messages: the parts that the model's template leaves out of the prompt that the
//! generation service makes of them.

use tandem_common::field::Path;

use crate::adapter::{AdapterOutput, Input};
use crate::conversation::{Conversation, media};
use crate::resolve::ResolvedRender;
use crate::walk::walk;
use crate::warning::{Warning, WarningCode};

/// The most media that are looked for one by one, with a rendering for each.
const MAX_MEDIA: usize = 16;

/// Returns the warnings of the prompt of mapped messages, and one for each medium without which the
/// prompt is the same.
#[must_use]
pub fn of_output(resolved: &ResolvedRender<'_>, input: &Input<'_>, output: AdapterOutput) -> Vec<Warning> {
    let AdapterOutput { prompt, mut warnings, .. } = output;
    if !resolved.model.takes_images {
        return warnings;
    }
    let mut media = Vec::new();
    walk(input.conversation, &mut |at, part| {
        let is_medium = part.block().is_some_and(|block| media::kind(block).is_some());
        media.extend(is_medium.then(|| at.path()));
    });
    let is_same = |conversation: &Conversation| {
        let output = (resolved.adapter().render)(resolved.model, &Input { conversation, ..*input });
        output.is_ok_and(|output| output.prompt == prompt)
    };
    let lost = lost(input.conversation, media, is_same);
    let text = "not in the prompt: the model's chat template leaves it out";
    warnings.extend(lost.into_iter().map(|path| Warning::new(WarningCode::ImagesIgnored, path, text)));
    warnings
}

/// Returns the media without which the prompt is the same. A medium that is left out stays out while
/// others are looked for, so that of two of which one is shown only one is lost.
fn lost(conversation: &Conversation, media: Vec<Path>, is_same: impl Fn(&Conversation) -> bool) -> Vec<Path> {
    if media.is_empty() {
        return media;
    }
    let mut without_any = conversation.clone();
    media.iter().rev().for_each(|path| without_any.remove(&path.steps()));
    if is_same(&without_any) {
        return media;
    }
    if media.len() == 1 {
        return Vec::new();
    }
    let (mut without, mut lost) = (conversation.clone(), Vec::new());
    for path in media.into_iter().take(MAX_MEDIA).rev() {
        let mut next = without.clone();
        next.remove(&path.steps());
        if is_same(&next) {
            without = next;
            lost.push(path);
        }
    }
    lost.reverse();
    lost
}
