//! The arguments of a family's encoder: the values that change a prompt, and the defaults.

use std::slice;

use serde_json::{Value, json};

use crate::adapter::{Adapter, EncoderArgument, Input};
use crate::conversation::{Conversation, Object};
use crate::model::Model;
use crate::probes::ArgumentFact;

/// Returns every argument that the adapter's encoder reads, by name. An argument that is no boolean and
/// no word, such as a list of messages, has no values.
pub(super) fn encoder_arguments(adapter: &Adapter, model: &Model) -> Vec<ArgumentFact> {
    let conversations = conversations();
    let mut facts: Vec<_> =
        adapter.template_args.iter().map(|argument| fact(argument, adapter, model, &conversations)).collect();
    facts.sort_by(|a, b| a.name.cmp(&b.name));
    facts
}

/// The prompts of all conversations with one value of an argument. None for a refused conversation.
type Prompts = Vec<Option<String>>;

fn fact(argument: &EncoderArgument, adapter: &Adapter, model: &Model, conversations: &[Conversation]) -> ArgumentFact {
    let render = |value: Option<&Value>| {
        let needed = argument.needs.map(|name| (name.to_owned(), true.into()));
        let given = value.map(|value| (argument.name.to_owned(), value.clone()));
        let args: Object = needed.into_iter().chain(given).collect();
        let prompt = |conversation: &Conversation| {
            let conversation = Conversation { template_args: args.clone(), ..conversation.clone() };
            (adapter.render)(model, &Input::of(&conversation)).ok().map(|output| output.prompt)
        };
        conversations.iter().map(prompt).collect::<Prompts>()
    };
    let unset = render(None);
    let values: Vec<Value> = match argument.words {
        [] => vec![false.into(), true.into()],
        words => words.iter().map(|word| Value::from(*word)).collect(),
    };
    let mut found: Vec<(Value, Prompts)> = Vec::new();
    for value in values {
        let prompts = render(Some(&value));
        if prompts.iter().any(Option::is_some) && found.iter().all(|(_, known)| *known != prompts) {
            found.push((value, prompts));
        }
    }
    let default = found.iter().find(|(_, prompts)| *prompts == unset).map(|(value, _)| value.clone());
    let is_changing = found.iter().any(|(_, prompts)| *prompts != unset);
    let (values, default) =
        if is_changing { (found.into_iter().map(|(value, _)| value).collect(), default) } else { (Vec::new(), None) };
    ArgumentFact { name: argument.name.to_owned(), values, default, is_any_text: false }
}

/// Returns conversations in which known arguments have an effect: a question; reasoning of an earlier
/// turn; a developer's message before the last question; calls before and after it.
fn conversations() -> Vec<Conversation> {
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let thought = |mut message: Value| {
        message["reasoning_content"] = "thought".into();
        message
    };
    let function = json!({"name": "find", "arguments": {"city": "Bonn"}});
    let calls = json!([{"id": "call_1", "type": "function", "function": function}]);
    let call = [
        thought(json!({"role": "assistant", "content": "", "tool_calls": calls})),
        json!({"role": "tool", "tool_call_id": "call_1", "name": "find", "content": "found"}),
    ];
    let (system, developer) = (said("system", "rule"), said("developer", "advice"));
    let (user, again) = (said("user", "first"), said("user", "second"));
    let answer = thought(said("assistant", "answer"));
    let of = |parts: &[&[Value]]| Conversation { messages: parts.concat(), ..Conversation::default() };
    let question = slice::from_ref(&user);
    let advised = [developer, answer.clone(), again.clone()];
    let later_call: &[&[Value]] = &[question, &call, &[answer.clone(), again.clone()]];
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = json!([{"type": "function", "function": {"name": "find", "parameters": parameters}}]);
    vec![
        of(&[question]),
        of(&[&[system, user.clone(), answer.clone(), again.clone()]]),
        of(&[&advised]),
        of(&[&advised, &call]),
        of(later_call),
        Conversation { tools: Some(tools), ..of(later_call) },
    ]
}
