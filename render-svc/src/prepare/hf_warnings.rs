//! Warnings about HF messages: the parts that the model's template leaves out of the prompt that the
//! generation service makes of them.

use serde_json::Value;

use crate::adapter::{AdapterOutput, Input};
use crate::conversation::{Conversation, blocks, media};
use crate::resolve::ResolvedRender;
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
    for (i, message) in input.conversation.messages.iter().enumerate() {
        add_media(message, &mut vec![i], &mut media);
    }
    let is_same = |conversation: &Conversation| {
        let output = (resolved.adapter().render)(resolved.model, &Input { conversation, ..*input });
        output.is_ok_and(|output| output.prompt == prompt)
    };
    let lost = lost(input.conversation, media, is_same);
    let text = "not in the prompt: the model's chat template leaves it out";
    warnings.extend(lost.iter().map(|at| Warning::new(WarningCode::ImagesIgnored, path(at), text)));
    warnings
}

/// The index of a message, and of a block in each list down to a medium.
type At = Vec<usize>;

fn add_media(holder: &Value, at: &mut At, media: &mut Vec<At>) {
    for (j, block) in blocks(holder).iter().enumerate() {
        at.push(j);
        match media::kind(block) {
            Some(_) => media.push(at.clone()),
            None => add_media(block, at, media),
        }
        at.pop();
    }
}

/// Returns the media without which the prompt is the same. A medium that is left out stays out while
/// others are looked for, so that of two of which one is shown only one is lost.
fn lost(conversation: &Conversation, media: Vec<At>, is_same: impl Fn(&Conversation) -> bool) -> Vec<At> {
    if media.is_empty() {
        return media;
    }
    let mut without_any = conversation.clone();
    media.iter().rev().for_each(|at| remove(&mut without_any, at));
    if is_same(&without_any) {
        return media;
    }
    if media.len() == 1 {
        return Vec::new();
    }
    let (mut without, mut lost) = (conversation.clone(), Vec::new());
    for at in media.into_iter().take(MAX_MEDIA).rev() {
        let mut next = without.clone();
        remove(&mut next, &at);
        if is_same(&next) {
            without = next;
            lost.push(at);
        }
    }
    lost.reverse();
    lost
}

fn remove(conversation: &mut Conversation, at: &[usize]) {
    let [message, outer @ .., last] = at else { return };
    let mut holder = &mut conversation.messages[*message];
    for block in outer {
        holder = &mut holder["content"][*block];
    }
    let blocks = holder.get_mut("content").and_then(Value::as_array_mut);
    blocks.into_iter().for_each(|blocks| _ = blocks.remove(*last));
}

fn path(at: &[usize]) -> String {
    let mut indices = at.iter();
    let message = indices.next().map(|message| format!("messages[{message}]")).unwrap_or_default();
    indices.fold(message, |path, block| format!("{path}.content[{block}]"))
}
