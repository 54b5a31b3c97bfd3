//! Declared tools, calls of tools, and their results.

use serde_json::{Value, json};

use super::conversation::{ARGUMENT, ASSISTANT, PARAMETER, RESULT, SECOND_RESULT, SYSTEM, TOOL, USER, tools};
use super::finding::Finding;
use super::renderer::{Outcome, Probe, Renderer};

/// The facts about tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolFacts {
    /// Tools, without a system message.
    pub declared: Finding,
    /// Tools, with a system message before the user's.
    pub declared_beside_system: Finding,
    /// The parameters of tools. A template may show a tool's name and description only.
    pub parameters: Finding,
    /// Calls of the assistant.
    pub calls: Finding,
    /// Results of calls.
    pub results: Finding,
    /// The JSON type of the arguments of calls.
    pub arguments: ArgumentsShape,
    /// True if the template fails for a call without content, and not for one with an empty text.
    pub null_content_fails: bool,
    /// The shape of a conversation with a call that the template shows.
    pub(super) shape: Option<CallShape>,
}

/// The JSON type that a template expects for the `arguments` of a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArgumentsShape {
    /// The template shows no arguments.
    #[default]
    Unread,
    /// An object. A text would be quoted a second time, left out, or fail.
    Object,
    /// The text of the JSON. An object would be printed as a Python dict, left out, or fail.
    Text,
    /// The template distinguishes both, or treats them alike.
    Either,
}

/// The shape of a conversation with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallShape {
    is_declared: bool,
    /// True if the arguments are the JSON text of an object.
    has_text_arguments: bool,
    content: CallContent,
    ids: [&'static str; 2],
}

/// The content of a message with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallContent {
    Empty,
    None,
    Words,
}

/// Identifiers of calls. Some templates require exactly nine letters or digits, others the name and
/// the number of the call.
const IDS: [[&str; 2]; 2] = [["qzcalla01", "qzcallb02"], ["functions.qztoolname:0", "functions.qztoolname:1"]];

impl ToolFacts {
    pub(super) fn of(renderer: &Renderer<'_>) -> Self {
        let user = || renderer.message("user", USER);
        let with_tools = |messages: Vec<Value>| Probe { messages, tools: Some(tools()), ..Probe::default() };
        let declared = |messages: &[Value]| {
            let without = Probe { messages: messages.to_vec(), ..Probe::default() };
            renderer.finding(&with_tools(messages.to_vec()), TOOL, &without)
        };
        let [alone, beside_system] = [vec![user()], vec![renderer.message("system", SYSTEM), user()]];
        let [declared, declared_beside_system] = [&alone, &beside_system].map(|messages| declared(messages));
        let shown = [(declared, alone), (declared_beside_system, beside_system)];
        let shown = shown.into_iter().find(|(declared, _)| *declared == Finding::Shown);
        let parameters = shown.map(|(_, messages)| renderer.found(&with_tools(messages), PARAMETER));
        let shape = CallShape::find(renderer);
        let results = shape.map_or(Finding::Unknown, |shape| shape.result(renderer));
        Self {
            declared,
            declared_beside_system,
            parameters: parameters.unwrap_or_default(),
            calls: if shape.is_some() { Finding::Shown } else { lost_call(renderer) },
            results: results.or(|| lost_result(renderer)),
            arguments: shape.map_or(ArgumentsShape::Unread, |shape| shape.arguments(renderer)),
            null_content_fails: shape.unwrap_or(CallShape::USUAL).null_content_fails(renderer),
            shape,
        }
    }

    /// Returns true if tools can be declared and called.
    #[must_use]
    pub fn are_supported(self) -> bool {
        [self.declared, self.declared_beside_system].contains(&Finding::Shown) && self.calls == Finding::Shown
    }

    /// Returns true if a probe says something about tools.
    #[must_use]
    pub fn is_known(self) -> bool {
        [self.declared, self.declared_beside_system, self.calls].iter().any(|found| *found != Finding::Unknown)
    }
}

impl CallShape {
    /// Returns the first shape whose call and arguments the template shows.
    fn find(renderer: &Renderer<'_>) -> Option<Self> {
        Self::all().find(|shape| shape.shown(renderer).is_some())
    }

    /// Returns a prompt with the call and its argument. None if the template shows none.
    fn shown(self, renderer: &Renderer<'_>) -> Option<String> {
        let probes = [self.answered(renderer, RESULT.into()), self.called(renderer)];
        let prompt = |probe| match renderer.render(probe) {
            Outcome::Text(prompt) if shows_call(&prompt) => Some(prompt),
            _ => None,
        };
        probes.iter().find_map(prompt)
    }

    /// Returns the JSON type of arguments that the template shows well.
    fn arguments(self, renderer: &Renderer<'_>) -> ArgumentsShape {
        let [object, text] =
            [false, true].map(|has_text_arguments| Self { has_text_arguments, ..self }.shown(renderer));
        match (object, text) {
            (Some(object), Some(text)) => better_arguments(&object, &text),
            (Some(_), None) => ArgumentsShape::Object,
            (None, Some(_)) => ArgumentsShape::Text,
            (None, None) => ArgumentsShape::Unread,
        }
    }

    /// Returns every shape, the usual ones first.
    fn all() -> impl Iterator<Item = Self> {
        let contents = [CallContent::Empty, CallContent::None, CallContent::Words];
        let with_ids = contents.into_iter().flat_map(|content| IDS.into_iter().map(move |ids| (content, ids)));
        with_ids.flat_map(|(content, ids)| {
            let forms = [(true, false), (true, true), (false, false), (false, true)];
            forms.map(|(is_declared, has_text_arguments)| Self { is_declared, has_text_arguments, content, ids })
        })
    }

    fn call(self, id: &str) -> Value {
        let arguments = json!({PARAMETER: ARGUMENT});
        let arguments = if self.has_text_arguments { arguments.to_string().into() } else { arguments };
        json!({"id": id, "type": "function", "function": {"name": TOOL, "arguments": arguments}})
    }

    /// Returns the assistant's message with this number of calls, at most two.
    fn calls(self, count: usize) -> Value {
        let calls: Vec<_> = self.ids.iter().take(count).map(|id| self.call(id)).collect();
        let mut message = json!({"role": "assistant"});
        match self.content {
            CallContent::Empty => message["content"] = "".into(),
            CallContent::Words => message["content"] = ASSISTANT.into(),
            CallContent::None => {}
        }
        message["tool_calls"] = calls.into();
        message
    }

    fn probe(self, messages: Vec<Value>) -> Probe {
        Probe { messages, tools: self.is_declared.then(tools), ..Probe::default() }
    }

    /// Returns a conversation that ends with a call.
    fn called(self, renderer: &Renderer<'_>) -> Probe {
        self.probe(vec![renderer.message("user", USER), self.calls(1)]).ended()
    }

    /// Returns a conversation that ends with the result of a call.
    pub(super) fn answered(self, renderer: &Renderer<'_>, content: Value) -> Probe {
        self.probe(vec![renderer.message("user", USER), self.calls(1), result(self.ids[0], content)])
    }

    /// Returns a conversation that ends with the results of two calls.
    pub(super) fn answered_twice(self, renderer: &Renderer<'_>) -> Probe {
        let results = [(self.ids[0], RESULT), (self.ids[1], SECOND_RESULT)].map(|(id, text)| result(id, text.into()));
        let mut messages = vec![renderer.message("user", USER), self.calls(2)];
        messages.extend(results);
        self.probe(messages)
    }

    fn result(self, renderer: &Renderer<'_>) -> Finding {
        self.result_in(renderer, RESULT.into()).or(|| {
            let list = self.result_in(renderer, json!([{"type": "text", "text": RESULT}]));
            if list == Finding::Shown { list } else { Finding::Unknown }
        })
    }

    fn result_in(self, renderer: &Renderer<'_>, content: Value) -> Finding {
        renderer.finding(&self.answered(renderer, content), RESULT, &self.called(renderer))
    }

    /// Also of a template that shows no calls.
    fn null_content_fails(self, renderer: &Renderer<'_>) -> bool {
        let [none, empty] = [CallContent::None, CallContent::Empty].map(|content| Self { content, ..self });
        let fails = |none: &Probe, empty: &Probe| {
            renderer.render(none) == Outcome::Failed && renderer.render(empty).text().is_some()
        };
        fails(&none.answered(renderer, RESULT.into()), &empty.answered(renderer, RESULT.into()))
            || fails(&none.called(renderer), &empty.called(renderer))
    }

    /// The shape of calls in most conversations.
    const USUAL: Self =
        Self { is_declared: false, has_text_arguments: false, content: CallContent::Empty, ids: IDS[0] };
}

fn result(id: &str, content: Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "name": TOOL, "content": content})
}

/// Returns true if the prompt shows the call's argument, which no declaration contains.
fn shows_call(prompt: &str) -> bool {
    prompt.to_lowercase().contains(ARGUMENT)
}

/// Returns the better type of arguments, given the prompts with both.
fn better_arguments(object: &str, text: &str) -> ArgumentsShape {
    let is_python_dict = |prompt: &str| prompt.contains(&format!("{{'{PARAMETER}': '{ARGUMENT}'}}"));
    // Each quoting of a JSON text adds backslashes before its quotes.
    let backslashes = |prompt: &str| {
        let before = prompt.find(&format!("\"{ARGUMENT}")).map_or("", |at| &prompt[..at]);
        before.len() - before.trim_end_matches('\\').len()
    };
    if is_python_dict(object) && !is_python_dict(text) {
        ArgumentsShape::Text
    } else if backslashes(text) > backslashes(object) {
        ArgumentsShape::Object
    } else {
        ArgumentsShape::Either
    }
}

/// Returns the finding about a call that no shape shows.
fn lost_call(renderer: &Renderer<'_>) -> Finding {
    let shape = CallShape { is_declared: false, has_text_arguments: false, content: CallContent::Words, ids: IDS[0] };
    let without = Probe::of([renderer.message("user", USER), renderer.message("assistant", ASSISTANT)]).ended();
    renderer.finding(&shape.called(renderer), ARGUMENT, &without)
}

/// Returns a conversation with a result after a message without calls.
pub(super) fn lone_result(renderer: &Renderer<'_>, content: Value) -> Probe {
    Probe::of([renderer.message("user", USER), renderer.message("assistant", ASSISTANT), result(IDS[0][0], content)])
}

/// Returns the finding about a result after a message without calls.
fn lost_result(renderer: &Renderer<'_>) -> Finding {
    let without = Probe::of([renderer.message("user", USER), renderer.message("assistant", ASSISTANT)]);
    let result = |content| renderer.finding(&lone_result(renderer, content), RESULT, &without);
    result(RESULT.into()).or(|| match result(json!([{"type": "text", "text": RESULT}])) {
        Finding::Shown => Finding::Shown,
        _ => Finding::Unknown,
    })
}
