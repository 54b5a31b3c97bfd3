//! Field paths of a task, for failures of the generation request that was made from it.

use tandem_common::field::{Path, Step};
use tandem_common::status::Failure;
use tonic::Status;

use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::prepare::origins::Origins;
use crate::render::{Output, Rendered};

/// The field of a task that a field of its generation request was made from, if no better one is known.
const CONVERSATION: &str = "conversation";
const HF_MESSAGES: &str = "hf_messages_json";
const MEDIA: &str = "media";
const GRAMMAR: &str = "grammar";

/// The paths of a task and of the rendering that is generated from.
#[derive(Debug, Clone)]
pub(super) struct TaskPaths {
    paths: RequestPaths,
    /// The origins of messages for a processor.
    origins: Origins,
    /// The paths of a prompt's media blocks on the wire, in order.
    media: Vec<Path>,
    /// The field of the request from which the grammar was made. None if it is the caller's, or there is none.
    grammar_field: Option<&'static str>,
}

impl TaskPaths {
    /// Returns the paths of a task with this rendering, whose attachments have the paths of the wire.
    #[must_use]
    pub(super) fn new(paths: RequestPaths, rendered: &Rendered, grammar_field: Option<&'static str>) -> Self {
        let (origins, media) = match &rendered.output {
            Output::HfMessages(messages) => (messages.origins.clone(), Vec::new()),
            Output::Prompt { attachments, .. } => {
                (Origins::default(), attachments.iter().map(|attachment| attachment.path.clone()).collect())
            }
        };
        Self { paths, origins, media, grammar_field }
    }

    /// Returns the status of an error in the task, whose field may be one of the generation request.
    #[must_use]
    pub(super) fn status(&self, error: Error) -> Status {
        error.into_status(|failure| {
            let (reason, message) = (failure.reason(), failure.message());
            match self.grammar_field.zip(message.strip_prefix("grammar.lark: ")) {
                Some((field, problem)) => Failure::new(reason, schema_problem(field, problem)).with_field(field),
                None => failure.locate(|path| (self.field(path), Path::default())),
            }
        })
    }

    fn field(&self, path: &Path) -> Path {
        match &path.steps()[..] {
            [Step::Key(HF_MESSAGES), message @ Step::Index(_), way @ ..] => {
                self.paths.wire(&self.origins.path(&Path::from("messages").join(&[*message]).join(way)))
            }
            [Step::Key(MEDIA), Step::Index(i), ..] if *i < self.media.len() => self.media[*i].clone(),
            [Step::Key(HF_MESSAGES | MEDIA), ..] => CONVERSATION.into(),
            [Step::Key(GRAMMAR), ..] => self.grammar_field.map_or_else(|| path.clone(), Path::from),
            _ => path.clone(),
        }
    }
}

/// Returns the message of a grammar that was made from tools, without the place in the grammar and its text.
fn schema_problem(field: &str, problem: &str) -> String {
    let is_line = |(at, _): &(usize, &str)| problem[..*at].ends_with(|c: char| c.is_ascii_digit());
    let line = problem.match_indices(" | ").find(is_line).map(|(at, _)| &problem[..at]);
    let problem = line.map_or(problem, |line| line.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end());
    let problem = problem.strip_prefix("is refused: ").unwrap_or(problem);
    let without_place = problem.strip_prefix("at ").and_then(|problem| problem.split_once(": "));
    let problem = without_place.map_or(problem, |(_, problem)| problem);
    if problem.starts_with("must have") || problem.starts_with("grammar size") {
        return format!("the tools make too large a grammar: {problem}; pass fewer tools, or leave {field} out");
    }
    format!("a tool has a schema that a grammar cannot keep: {problem}")
}
