//! Paths of rewritten conversations: whatever an error, a warning or `omit_media` names leads to the
//! part of the request with the same word, in random conversations and rewritings. Each block, call
//! and result of a conversation has another word.

use std::ops::Range;

use render_svc::catalog::ModelTable;
use render_svc::error::Error;
use render_svc::field_paths::RequestPaths;
use render_svc::job::RenderJob;
use render_svc::limits::Limits;
use render_svc::prepare::forms::{ContentForm, Forms};
use render_svc::prepare::normalize::Turns;
use render_svc::prepare::policy::{Policy, Rewritten};
use render_svc::prepare::typed_blocks::Conversion;
use render_svc::probes::ArgumentsShape;
use render_svc::render::{Output, Rendered, render};
use serde_json::{Value, json};
use tandem_common::field::Step;
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::{chat_message, media_block, tool_result_block};
use tandem_common::pb::render::v1 as pb;
use tandem_tests::conversations::{conversation, image_block, request, text_block};
use tandem_tests::{ModelFolder, Random};

/// Distinguishes images, and reads the arguments of calls as objects.
const TEMPLATE: &str = "{% for m in messages %}{% for b in m.content %}{% if b.type == 'image' %}<image>{% endif %}\
                        {% endfor %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";

/// A random conversation, and the words in it.
struct Maker {
    random: Random,
    words: usize,
    has_images: bool,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed << 20);
        let has_images = random.below(2) == 0;
        Self { random, words: 0, has_images }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    fn word(&mut self) -> String {
        self.words += 1;
        format!("word{}.", self.words)
    }

    fn conversation(&mut self) -> chat::Conversation {
        let count = 1 + self.random.below(8);
        conversation((0..count).map(|_| self.message()).collect())
    }

    fn message(&mut self) -> chat::ChatMessage {
        let roles = ["system", "system", "user", "user", "user", "assistant", "assistant", "tool"];
        let role = roles[self.random.below(8) as usize];
        let content = match self.random.below(8) {
            0 => None,
            1 => Some(chat_message::Content::Text(String::new())),
            2 | 3 => Some(chat_message::Content::Text(self.word())),
            _ => Some(chat_message::Content::Blocks(self.blocks(role))),
        };
        let calls = if role == "assistant" { self.random.below(3) } else { 0 };
        chat::ChatMessage {
            role: role.to_owned(),
            content,
            tool_calls: (0..calls).map(|_| self.call()).collect(),
            name: self.one_in(6).then(|| "ann".to_owned()),
            ..chat::ChatMessage::default()
        }
    }

    fn call(&mut self) -> chat::ToolCall {
        chat::ToolCall { id: None, name: self.word(), arguments_json: "{}".to_owned() }
    }

    fn blocks(&mut self, role: &str) -> chat::BlockList {
        let count = self.random.below(5);
        let has_results_only = role == "tool" && self.one_in(2);
        let blocks = (0..count).map(|_| match role {
            _ if has_results_only => self.result(),
            "assistant" if self.one_in(3) => self.tool_use(),
            "user" if self.one_in(4) => self.result(),
            _ => self.text_or_image(),
        });
        chat::BlockList { blocks: blocks.map(|kind| chat::Block { kind: Some(kind) }).collect() }
    }

    fn text_or_image(&mut self) -> Kind {
        let word = self.word();
        match self.random.below(3) {
            0 if self.has_images => image_block(media_block::Source::Base64(word)),
            _ => text_block(&word),
        }
    }

    fn tool_use(&mut self) -> Kind {
        Kind::ToolUse(chat::ToolUseBlock { id: None, name: self.word(), input_json: String::new() })
    }

    fn result(&mut self) -> Kind {
        let content = match self.random.below(4) {
            0 => None,
            1 => Some(tool_result_block::Content::Text(self.word())),
            _ => {
                let blocks = (0..self.random.below(4)).map(|_| chat::Block { kind: Some(self.text_or_image()) });
                Some(tool_result_block::Content::Blocks(chat::BlockList { blocks: blocks.collect() }))
            }
        };
        Kind::ToolResult(chat::ToolResultBlock { tool_use_id: Some(self.word()), content, is_error: None })
    }

    /// Returns a random subset of the capabilities, or that of the template.
    fn capabilities(&mut self) -> Option<pb::CapabilityOverride> {
        use pb::Capability::{RequiresStrictTurns, SupportsContentBlocks, SupportsSystemRole, SupportsToolCalls};
        let all = [RequiresStrictTurns, SupportsContentBlocks, SupportsSystemRole, SupportsToolCalls];
        let chosen = all.into_iter().filter(|_| self.one_in(2)).map(i32::from).collect();
        (!self.one_in(8)).then_some(pb::CapabilityOverride { capabilities: chosen })
    }

    fn job(&mut self, said: &chat::Conversation, omit_media: bool) -> RenderJob {
        let options = pb::RenderOptions { capabilities: self.capabilities(), ..pb::RenderOptions::default() };
        let request = pb::RenderRequest { options: Some(options), omit_media, ..request(said.clone()) };
        RenderJob::try_from(request).expect("the conversation is valid")
    }
}

/// Returns the blocks of a conversation. The blocks of a result replace it.
fn all_blocks(said: &mut chat::Conversation) -> Vec<&mut Kind> {
    let contents = said.messages.iter_mut().filter_map(|message| message.content.as_mut());
    let lists = contents.filter_map(|content| match content {
        chat_message::Content::Blocks(list) => Some(list),
        chat_message::Content::Text(_) => None,
    });
    lists.flat_map(|list| &mut list.blocks).filter_map(|block| block.kind.as_mut()).flat_map(inner_blocks).collect()
}

fn inner_blocks(block: &mut Kind) -> Vec<&mut Kind> {
    let has_blocks = match block {
        Kind::ToolResult(result) => {
            matches!(&result.content, Some(tool_result_block::Content::Blocks(list)) if !list.blocks.is_empty())
        }
        _ => false,
    };
    if !has_blocks {
        return vec![block];
    }
    match block {
        Kind::ToolResult(chat::ToolResultBlock { content: Some(tool_result_block::Content::Blocks(list)), .. }) => {
            list.blocks.iter_mut().filter_map(|block| block.kind.as_mut()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the innermost block or call of a JSON conversation on a path.
fn at_json<'v>(messages: &'v [Value], path: &str) -> &'v Value {
    let steps =
        path.strip_prefix("messages[").and_then(|path| path.split_once(']')).unwrap_or_else(|| panic!("{path}"));
    let mut value = &messages[steps.0.parse::<usize>().expect("an index")];
    for (step, index) in steps.1.split('.').filter_map(|step| step.strip_suffix(']')?.split_once('[')) {
        assert!(["content", "tool_calls"].contains(&step), "{path}");
        value = &value[step][index.parse::<usize>().expect("an index")];
    }
    assert!(!value.is_null(), "{path} leads to nothing");
    value
}

/// Returns the innermost block, call or message of the contract's conversation on a path, as text.
fn at_wire(said: &chat::Conversation, path: &str) -> String {
    let index = |rest: &str| {
        let (index, rest) = rest.split_once(']')?;
        Some((index.parse::<usize>().ok()?, rest.to_owned()))
    };
    let next = |rest: &str, field: &str| rest.strip_prefix(field).and_then(index);
    let (i, rest) = next(path, "conversation.messages[").unwrap_or_else(|| panic!("{path}"));
    let message = &said.messages[i];
    if let Some((k, _)) = next(&rest, ".tool_calls[") {
        return format!("{:?}", message.tool_calls[k]);
    }
    let (Some((j, rest)), Some(chat_message::Content::Blocks(list))) =
        (next(&rest, ".blocks.blocks["), &message.content)
    else {
        return format!("{message:?}");
    };
    let block = &list.blocks[j];
    match (next(&rest, ".tool_result.blocks.blocks["), &block.kind) {
        (Some((k, _)), Some(Kind::ToolResult(result))) => match &result.content {
            Some(tool_result_block::Content::Blocks(list)) => format!("{:?}", list.blocks[k]),
            _ => panic!("{path} leads to nothing"),
        },
        _ => format!("{block:?}"),
    }
}

/// Checks that a path leads to the block or call with the word, in both spellings.
#[track_caller]
fn leads(said: &chat::Conversation, messages: &[Value], path: &str, word: &str) {
    assert!(at_json(messages, path).to_string().contains(word), "{path} does not lead to {word} in {messages:?}");
    let wire = RequestPaths::new(Some(said)).wire(&path.into()).to_string();
    assert!(at_wire(said, &wire).contains(word), "{wire} does not lead to {word}");
}

fn images(message: &Value, found: &mut Vec<Value>) {
    for block in message["content"].as_array().into_iter().flatten() {
        images(block, found);
        if block["type"] == "image" {
            found.push(block.clone());
        }
    }
}

fn shown_images(models: &ModelTable, job: RenderJob) -> Option<Vec<Value>> {
    let Rendered { output: Output::HfMessages(hf), .. } = render(models, job, &Limits::default()).expect("renders")
    else {
        return None;
    };
    let mut found = Vec::new();
    hf.messages.iter().for_each(|message| images(message, &mut found));
    Some(found)
}

/// Compares the paths in place of images' data with these data.
fn check_omitted(models: &ModelTable, seed: u64) {
    let mut maker = Maker::new(seed);
    let said = maker.conversation();
    let job = maker.job(&said, false);
    let messages = job.conversation.messages.clone();
    let omitted = RenderJob { omit_media: true, ..job.clone() };
    let Some(images) = shown_images(models, job) else { return };
    let paths = shown_images(models, omitted).expect("HF messages");
    assert_eq!(images.len(), paths.len());
    for (image, path) in images.iter().zip(paths) {
        let path = path["field"].as_str().expect("a path");
        leads(&said, &messages, path, image["base64"].as_str().expect("a word"));
        assert!(at_json(&messages, path)["base64"].is_string(), "{path} is no image");
    }
}

/// Replaces one block by a block that cannot be rendered, and checks the error's path.
fn check_error(models: &ModelTable, seed: u64) {
    let mut maker = Maker::new(seed);
    let mut said = maker.conversation();
    let word = maker.word();
    let mut blocks = all_blocks(&mut said);
    if blocks.is_empty() {
        return;
    }
    let chosen = maker.random.below(blocks.len() as u64) as usize;
    // Only an assistant's message has calls.
    let is_call = matches!(blocks[chosen], Kind::ToolUse(_));
    let block = match is_call {
        true => json!({"type": "tool_use", "id": word, "name": "f", "input": 5}),
        false => json!({"type": "hologram", "word": word}),
    };
    *blocks[chosen] = Kind::OtherJson(block.to_string());
    if has_mixed_tool_message(&said) {
        return;
    }
    let job = maker.job(&said, false);
    let messages = job.conversation.messages.clone();
    match render(models, job, &Limits::default()) {
        Err(Error::Invalid(invalid)) => leads(&said, &messages, &invalid.field.to_string(), &word),
        other => panic!("{messages:?} gives {other:?}"),
    }
}

/// Returns true if a message of the tool has results and other blocks, which is another error.
fn has_mixed_tool_message(said: &chat::Conversation) -> bool {
    said.messages.iter().filter(|message| message.role == "tool").any(|message| match &message.content {
        Some(chat_message::Content::Blocks(list)) => {
            let is_result = |block: &chat::Block| matches!(block.kind, Some(Kind::ToolResult(_)));
            list.blocks.iter().any(is_result) && !list.blocks.iter().all(is_result)
        }
        _ => false,
    })
}

/// Gives one call arguments of the wrong type, and checks the warning's path.
fn check_warning(models: &ModelTable, seed: u64) {
    let mut maker = Maker { has_images: false, ..Maker::new(seed) };
    let mut said = maker.conversation();
    let mut calls: Vec<_> = said.messages.iter_mut().flat_map(|message| &mut message.tool_calls).collect();
    if calls.is_empty() {
        return;
    }
    let chosen = maker.random.below(calls.len() as u64) as usize;
    calls[chosen].arguments_json = r#""{}""#.to_owned();
    let word = calls[chosen].name.clone();
    let job = maker.job(&said, false);
    let messages = job.conversation.messages.clone();
    let warnings = render(models, job, &Limits::default()).expect("renders").warnings;
    let found: Vec<_> = warnings.iter().filter(|warning| warning.code.name() == "TOOL_ARGUMENTS_TYPE").collect();
    assert_eq!(found.len(), 1, "{messages:?}");
    leads(&said, &messages, &found[0].path.to_string(), &word);
}

fn form(random: &mut Random) -> ContentForm {
    use ContentForm::{AsIs, List, OneBlock, Text};
    [AsIs, Text, List, OneBlock][random.below(4) as usize]
}

/// Rewrites with a random policy. The place of each block and call must have its first word.
fn check_policy(seed: u64) {
    let mut maker = Maker::new(seed);
    let said = maker.conversation();
    let messages = maker.job(&said, false).conversation.messages;
    let random = &mut maker.random;
    let policy = Policy {
        conversion: Some(Conversion {
            calls: random.below(2) == 0,
            results: random.below(2) == 0,
            arguments: ArgumentsShape::Either,
        }),
        forms: Forms {
            system: form(random),
            developer: form(random),
            assistant: form(random),
            tool: form(random),
            user: form(random),
        },
        turns: Some(Turns {
            system_to_user: random.below(2) == 0,
            later_system_to_user: random.below(2) == 0,
            merges_users: random.below(2) == 0,
            merges_later_users: random.below(2) == 0,
            merges_assistants: random.below(2) == 0,
        }),
        reasoning_key: None,
        null_content_fails: random.below(2) == 0,
    };
    let Rewritten { messages: rewritten, places, .. } = policy.rewrite(messages.clone()).expect("a valid conversation");
    assert_eq!(rewritten.len(), places.len());
    for (message, place) in rewritten.iter().zip(&places) {
        for list in ["content", "tool_calls"] {
            for (i, item) in message[list].as_array().into_iter().flatten().enumerate() {
                let Some(word) = first_word(item) else { continue };
                let path = place.path_of(&[Step::Key(list), Step::Index(i)]);
                leads(&said, &messages, &path.to_string(), &word);
            }
        }
    }
}

/// Returns the first word of a block or call. A text may begin with a mark, but not with a text that
/// has no word.
fn first_word(item: &Value) -> Option<String> {
    let text = match item["text"].as_str() {
        Some(text) => text.strip_prefix("[System]: ").unwrap_or(text).strip_prefix("word")?.to_owned(),
        None => item.to_string().split_once("word")?.1.to_owned(),
    };
    Some(format!("word{}.", text.split_once('.')?.0))
}

fn check(seeds: Range<u64>) {
    let models = ModelFolder::new("tiny").with_template(TEMPLATE).models();
    for seed in seeds {
        check_omitted(&models, seed);
        check_error(&models, seed);
        check_warning(&models, seed);
        check_policy(seed);
    }
}

#[test]
fn every_path_leads_to_the_part_of_the_request_with_its_word() {
    check(0..1_500);
}

#[test]
#[ignore = "100 times as many conversations"]
fn every_path_leads_to_its_part_in_many_conversations() {
    check(1_500..201_500);
}
