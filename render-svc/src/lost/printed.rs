//! Values that a prompt shows as JSON, of which no part is lost.

use serde_json::Value;
use tandem_template::python;

/// The most values that are looked for and not found. Others are then taken as not shown as JSON.
const MAX_MISSES: usize = 4;

/// Returns for each tool whether a prompt shows it as JSON, or its function where the tool has nothing else.
pub(super) fn printed_tools(tools: Option<&Value>, prompt: &str) -> Vec<bool> {
    let has_more =
        |tool: &Value| tool.as_object().is_some_and(|tool| tool.keys().any(|key| key != "type" && key != "function"));
    let function = |tool| Value::get(tool, "function").filter(|_| !has_more(tool));
    let mut search = PrintedSearch::new(prompt);
    let tools = tools.and_then(Value::as_array).into_iter().flatten();
    tools.map(|tool| search.finds([Some(tool), function(tool)].into_iter().flatten())).collect()
}

/// The search of values in the order of a prompt.
pub(super) struct PrintedSearch<'p> {
    prompt: &'p str,
    misses: usize,
}

impl<'p> PrintedSearch<'p> {
    pub(super) fn new(prompt: &'p str) -> Self {
        Self { prompt, misses: 0 }
    }

    /// Returns true if the rest of the prompt shows one of these values as JSON.
    pub(super) fn finds<'v>(&mut self, values: impl IntoIterator<Item = &'v Value>) -> bool {
        if self.misses >= MAX_MISSES {
            return false;
        }
        let found = values.into_iter().find_map(|value| {
            let json = python::dumps(value);
            Some(self.prompt.find(&json)? + json.len())
        });
        self.misses += usize::from(found.is_none());
        self.prompt = &self.prompt[found.unwrap_or_default()..];
        found.is_some()
    }
}
