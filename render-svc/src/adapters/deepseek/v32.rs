//! `deepseek-v3.2`: DeepSeek-V3.2, whose tool results follow the call in the assistant's own turn.

use tandem_template::literal::KnownNames;

use super::blocks::{Item, Reading, lost_keys, read};
use super::calls::{Call, dsml_block};
use super::effort;
use super::identity::{self, Identity};
use super::images::{self, stops_at_images};
use super::markup::{ASSISTANT, EOS, FIELDS, MARKUP, THINK, THINK_END, USER};
use super::settings::{self, Settings};
use super::template;
use super::turns::{CONTINUED_FIELDS, REASONING, Turn, check_continued, messages, reasoning_not_shown, turns};
use crate::adapter::{Adapter, AdapterOutput, Input, Kind};
use crate::conversation::{self, Conversation, Invalid};
use crate::error::Error;
use crate::model::Model;
use crate::probes::ArgumentsShape;
use crate::warning::Warning;
use tandem_template::python;

const IDENTITY: Identity = Identity {
    architectures: &["deepseek_v32", "deepseek32"],
    repository: Some("deepseek-ai/DeepSeek-V3.2"),
    has_function_calls: true,
    is_newest: false,
};

pub(in crate::adapters) const DEEPSEEK_V32: Adapter = Adapter {
    kind: Kind::Family,
    stops_at_images,
    markup: MARKUP,
    turn_ends: &[EOS],
    reasoning: Some((THINK, THINK_END)),
    arguments: ArgumentsShape::Either,
    known_names: KNOWN_NAMES,
    continued_fields: Some(CONTINUED_FIELDS),
    drops_unknown_args: true,
    switches: &settings::SWITCHES,
    template_args: &settings::ARGUMENTS,
    differs: |model| template::difference(model, render),
    ..Adapter::new(
        "deepseek-v3.2",
        "DeepSeek-V3.2's own encoder: tools and calls in DSML, thinking kept or dropped as its makers do",
        |model| identity::matches(model, &IDENTITY),
        render,
    )
};

const KNOWN_NAMES: KnownNames = KnownNames::with(&[conversation::FIELDS, conversation::TOOL_FIELDS, FIELDS]);

fn render(_: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let conversation = input.conversation;
    let reading = if input.is_normalized { Reading::Joined } else { Reading::Verbatim };
    let said = read("messages", &conversation.messages, reading)?;
    let asked = said.last().is_some_and(|last| last.message["role"] == "user");
    let settings = Settings::read(&conversation.template_args, asked)?;
    let context = read("template_args.context", settings.context, reading)?;
    let encoder = Encoder::new(&settings, &context, &said, input)?;
    let mut prompt = settings.start();
    for i in context.len()..encoder.turns.len() {
        encoder.write(i, &mut prompt)?;
    }
    let mut warnings = warnings(conversation);
    warnings.extend(lost_keys("messages", &conversation.messages, reading));
    warnings.extend(lost_keys("template_args.context", settings.context, reading));
    Ok(AdapterOutput { prompt, attachments: Vec::new(), warnings })
}

fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let args = &conversation.template_args;
    let effort = args.get(effort::NAME).filter(|effort| !effort.is_null());
    let effort = effort.map(|_| settings::ignored(effort::NAME, "is an argument of DeepSeek-V4, not of V3.2: ignored"));
    images::warnings(conversation).into_iter().chain(settings::warnings(args)).chain(effort).collect()
}

struct Encoder<'a> {
    /// The context, then the conversation.
    turns: Vec<Turn<'a>>,
    /// For each message, the last one before it that is not a tool message.
    callers: Vec<Option<usize>>,
    /// The last message of the user or the developer.
    last_user: Option<usize>,
    thinking: bool,
    add_generation_prompt: bool,
    /// The field of the last message within which the prompt ends.
    continued: Option<&'a str>,
    /// Arguments of calls may be objects.
    takes_objects: bool,
}

impl<'a> Encoder<'a> {
    fn new(
        settings: &Settings<'a>,
        context: &'a [Item<'a>],
        said: &'a [Item<'a>],
        input: &Input<'a>,
    ) -> Result<Self, Invalid> {
        let mut all = messages(context)?;
        all.extend(turns(said, input.conversation)?);
        check_continued(input, all.last())?;
        let last_user = all.iter().rposition(|turn| matches!(turn.role, "user" | "developer"));
        if settings.thinking && settings.drop_thinking {
            check_droppable(&all[..last_user.unwrap_or(0)])?;
        }
        Ok(Self {
            callers: callers(&all),
            turns: all,
            last_user,
            thinking: settings.thinking,
            add_generation_prompt: input.add_generation_prompt,
            continued: input.continue_final_message,
            takes_objects: input.is_normalized,
        })
    }

    fn write(&self, i: usize, out: &mut String) -> Result<(), Invalid> {
        let turn = &self.turns[i];
        let calls = turn.calls()?;
        let tools = turn.schemas()?.map(|schemas| tools_section(&schemas)).unwrap_or_default();
        match turn.role {
            "system" => {
                let format = turn.response_format().unwrap_or_default();
                out.extend([turn.printed_or_empty("content"), tools, format]);
            }
            "developer" => self.user(i, developer(turn, tools)?, out),
            "user" => self.user(i, turn.printed("content"), out),
            "tool" => self.result(i, out)?,
            "assistant" => self.assistant(i, &calls, out)?,
            _ => return Err(turn.unknown_role()),
        }
        Ok(())
    }

    fn user(&self, i: usize, content: String, out: &mut String) {
        out.extend([USER, &content]);
        if self.opens(i) {
            out.extend([ASSISTANT, self.mark(Some(i) == self.last_user)]);
        }
    }

    /// Returns true if the assistant's turn begins after message `i`. Only after the last message
    /// this is optional.
    fn opens(&self, i: usize) -> bool {
        self.add_generation_prompt || i + 1 < self.turns.len()
    }

    /// Returns the start of the assistant's turn.
    fn mark(&self, is_current: bool) -> &'static str {
        if self.thinking && is_current { THINK } else { THINK_END }
    }

    /// Writes a tool result. The first result opens the block of results, and the result of the
    /// last call closes it.
    fn result(&self, i: usize, out: &mut String) -> Result<(), Invalid> {
        let turn = &self.turns[i];
        let (order, calls) = self.calls_before(i)?;
        if order > calls {
            return Err(turn.misplaced(format!("is the tool result number {order} after {calls} tool calls")));
        }
        if order == 1 {
            out.push_str("\n\n<function_results>");
        }
        out.extend(["\n<result>", &turn.printed("content"), "</result>"]);
        if order == calls {
            out.push_str("\n</function_results>");
        }
        if order == calls && self.opens(i) {
            out.extend(["\n\n", self.mark(self.last_user.is_none_or(|last| i >= last))]);
        }
        Ok(())
    }

    /// Returns the position of result `i` after its assistant message, from 1, and the number of
    /// that message's calls.
    fn calls_before(&self, i: usize) -> Result<(usize, usize), Invalid> {
        match self.callers[i] {
            Some(caller) if self.turns[caller].role == "assistant" => Ok((i - caller, self.turns[caller].call_count())),
            // The official encoder reads index -1 here, which is the last message in Python.
            None if i == 0 => Ok((1, self.turns.last().map_or(0, Turn::call_count))),
            _ => Err(self.turns[i].misplaced("a tool result must follow a message of the assistant")),
        }
    }

    fn assistant(&self, i: usize, calls: &[Call<'_>], out: &mut String) -> Result<(), Invalid> {
        let turn = &self.turns[i];
        let continued = self.continued.filter(|_| i + 1 == self.turns.len());
        if self.thinking && self.last_user.is_none_or(|last| i > last) {
            if turn.given("reasoning_content").is_none() && calls.is_empty() {
                let problem =
                    "an answer after the last user message must hold reasoning_content or tool_calls in thinking mode";
                return Err(turn.invalid("reasoning_content", problem));
            }
            out.push_str(&turn.printed_or_empty("reasoning_content"));
            if continued == Some(REASONING) {
                return Ok(());
            }
            out.push_str(THINK_END);
        }
        if continued == Some(REASONING) {
            return Err(reasoning_not_shown());
        }
        let end = if continued.is_some() { "" } else { EOS };
        out.extend([&turn.printed_or_empty("content"), &self.dsml(calls)?, end]);
        Ok(())
    }

    fn dsml(&self, calls: &[Call<'_>]) -> Result<String, Invalid> {
        let dsml =
            |call: &Call<'_>| Ok(call.dsml(&call.parse(self.takes_objects).map_err(|why| call.unreadable(why))?));
        Ok(dsml_block("function_calls", &calls.iter().map(dsml).collect::<Result<Vec<_>, Invalid>>()?))
    }
}

fn callers(turns: &[Turn<'_>]) -> Vec<Option<usize>> {
    let mut last = None;
    let before = |(i, turn): (usize, &Turn<'_>)| if turn.role == "tool" { last } else { last.replace(i) };
    turns.iter().enumerate().map(before).collect()
}

/// Fails for a role that the official encoder drops before the last question, since it then fails
/// on the number of messages.
fn check_droppable(turns: &[Turn<'_>]) -> Result<(), Invalid> {
    let is_kept = |turn: &Turn<'_>| matches!(turn.role, "user" | "system" | "tool" | "assistant");
    match turns.iter().find(|turn| !is_kept(turn)) {
        Some(turn) => {
            let problem = "before the last user message only user, system, tool and assistant can be rendered in thinking mode; \
                           set template_args.drop_thinking to false for others";
            Err(turn.invalid("role", problem))
        }
        None => Ok(()),
    }
}

fn developer(turn: &Turn<'_>, tools: String) -> Result<String, Invalid> {
    let Some(content) = turn.given("content") else {
        return Err(turn.invalid("content", "must not be empty"));
    };
    let format = turn.response_format().unwrap_or_default();
    Ok(format!("{tools}{format}\n\n# The user's message is: {}", python::to_str(content)))
}

fn tools_section(schemas: &str) -> String {
    format!(
        r#"

## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

{THINK}...thinking about results{THINK_END}

Here are the functions available in JSONSchema format:
<functions>
{schemas}
</functions>
"#
    )
}
