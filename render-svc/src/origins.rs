//! Where the parts of a rewritten conversation stand in the request, so that errors and warnings name the caller's own fields.

use crate::adapters::{Attachment, Warning};
use crate::chat::Invalid;
use crate::error::Error;

/// Where the parts of a rewritten conversation stand in the request. The default is a conversation that was not rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// For each message the messages of the request that it was made from, in order.
    pub messages: Vec<Vec<Source>>,
    /// For each tool how its shape was changed.
    pub tools: Vec<ToolOrigin>,
}

/// A message of the request that became part of a merged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its index in the request.
    pub message: usize,
    /// The index of its first block in the merged message.
    pub blocks_at: usize,
    /// The index of its first tool call in the merged message.
    pub calls_at: usize,
}

/// How a tool's shape was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolOrigin {
    /// It had no `function` object around its name.
    pub is_flat: bool,
    /// What its `parameters` were called, if anything else.
    pub schema: Option<&'static str>,
    /// Whether they stood beside its `function` object.
    pub is_schema_outside: bool,
}

impl Origins {
    /// Returns the request's path for a path in the rewritten conversation.
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        if let Some((i, rest)) = item(path, "messages") {
            return self.messages.get(i).map_or_else(|| path.to_owned(), |sources| message_path(sources, rest));
        }
        match item(path, "tools") {
            Some((i, rest)) => self.tools.get(i).map_or_else(|| path.to_owned(), |origin| tool_path(*origin, i, rest)),
            None => path.to_owned(),
        }
    }

    /// Returns the error with the request's paths.
    #[must_use]
    pub fn error(&self, error: Error) -> Error {
        match error {
            Error::Invalid(invalid) => Error::Invalid(self.invalid(invalid)),
            Error::DanglingAttachment { field, id } => Error::DanglingAttachment { field: self.path(&field), id },
            other => other,
        }
    }

    /// Returns the same problem with the request's path.
    #[must_use]
    pub fn invalid(&self, invalid: Invalid) -> Invalid {
        Invalid { field: self.path(&invalid.field), ..invalid }
    }

    /// Returns the attachment with the request's path.
    #[must_use]
    pub fn attachment(&self, attachment: Attachment) -> Attachment {
        Attachment { path: self.path(&attachment.path), ..attachment }
    }

    /// Returns the warning with the request's path.
    #[must_use]
    pub fn warning(&self, warning: Warning) -> Warning {
        Warning { path: self.path(&warning.path), ..warning }
    }
}

/// Splits `list[i].rest` into `i` and `.rest`.
fn item<'a>(path: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = path.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

fn message_path(sources: &[Source], rest: &str) -> String {
    type Start = fn(&Source) -> usize;
    let lists: [(&str, Start); 2] =
        [(".content", |source| source.blocks_at), (".tool_calls", |source| source.calls_at)];
    for (list, start) in lists {
        if let Some((index, rest)) = item(rest, list) {
            // Parts of a merged message follow each other.
            let after = sources.partition_point(|source| start(source) <= index);
            let source = sources.get(after.saturating_sub(1));
            let (message, index) = source.map_or((0, index), |s| (s.message, index.saturating_sub(start(s))));
            return format!("messages[{message}]{list}[{index}]{rest}");
        }
    }
    format!("messages[{}]{rest}", sources.first().map_or(0, |source| source.message))
}

fn tool_path(origin: ToolOrigin, i: usize, rest: &str) -> String {
    let within = rest.strip_prefix(".function").unwrap_or(rest);
    let function = if origin.is_flat || within == rest { "" } else { ".function" };
    match within.strip_prefix(".parameters").zip(origin.schema) {
        Some((rest, schema)) if origin.is_schema_outside => format!("tools[{i}].{schema}{rest}"),
        Some((rest, schema)) => format!("tools[{i}]{function}.{schema}{rest}"),
        None => format!("tools[{i}]{function}{within}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(origins: &Origins, path: &str, expected: &str) {
        assert_eq!(origins.path(path), expected, "{path}");
    }

    #[test]
    fn paths_of_a_conversation_that_was_not_rewritten_stay() {
        for path in ["messages[3].content[1].text", "tools[0].function.name", "template_args.x", "messages", "tools[0"]
        {
            check(&Origins::default(), path, path);
        }
    }

    #[test]
    fn paths_in_merged_messages_are_those_of_their_parts() {
        let source = |message, blocks_at, calls_at| Source { message, blocks_at, calls_at };
        let origins = Origins {
            messages: vec![vec![source(0, 1, 0), source(1, 3, 0)], vec![source(2, 0, 0), source(4, 1, 2)]],
            tools: Vec::new(),
        };
        check(&origins, "messages[0].role", "messages[0].role");
        check(&origins, "messages[0].content[0]", "messages[0].content[0]");
        check(&origins, "messages[0].content[2].text", "messages[0].content[1].text");
        check(&origins, "messages[0].content[3].text", "messages[1].content[0].text");
        check(&origins, "messages[1].tool_calls[1].function", "messages[2].tool_calls[1].function");
        check(&origins, "messages[1].tool_calls[2].function.name", "messages[4].tool_calls[0].function.name");
        check(&origins, "messages[9].role", "messages[9].role");
    }

    #[test]
    fn paths_of_tools_are_those_of_the_callers_shape() {
        let flat = ToolOrigin { is_flat: true, schema: Some("input_schema"), is_schema_outside: false };
        let renamed = ToolOrigin { is_flat: false, ..flat };
        let outside = ToolOrigin { is_schema_outside: true, schema: Some("inputSchema"), ..renamed };
        let origins = Origins { messages: Vec::new(), tools: vec![flat, renamed, ToolOrigin::default(), outside] };
        check(&origins, "tools[3].function.parameters.x", "tools[3].inputSchema.x");
        check(&origins, "tools[0].function.name", "tools[0].name");
        check(&origins, "tools[0].function.parameters.properties", "tools[0].input_schema.properties");
        check(&origins, "tools[1].function.parameters", "tools[1].function.input_schema");
        check(&origins, "tools[2].function.parameters", "tools[2].function.parameters");
        check(&origins, "tools[0]", "tools[0]");
    }
}
