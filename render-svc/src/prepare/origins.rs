//! The places in the request of a rewritten conversation's parts, so that errors and warnings name
//! the request's fields.

use crate::adapter::Attachment;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::warning::Warning;

/// The places in the request of a rewritten conversation's parts. The default is a conversation
/// that was not rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// For each message, the messages of the request that it consists of, in order.
    pub messages: Vec<Vec<Source>>,
    /// For each tool, how its shape was changed.
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
    /// The name of its `parameters` in the request, if different.
    pub schema: Option<&'static str>,
    /// True if the request has them beside its `function` object.
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

    /// Returns the same error with the request's path.
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
            // The parts of a merged message are consecutive.
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
