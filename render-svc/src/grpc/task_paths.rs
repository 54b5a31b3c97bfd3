//! Field paths of a task, for failures of the generation request that was made from it.

use tonic::Status;

use crate::error::Error;
use crate::field_paths::RequestPaths;
use crate::prepare::origins::Origins;
use crate::render::{Output, Rendered};

/// The field of a task that a field of its generation request was made from, if no better one is known.
const CONVERSATION: &str = "conversation";
const HF_MESSAGES: &str = "hf_messages_json";
const MEDIA: &str = "media";

/// The paths of a task and of the rendering that is generated from.
#[derive(Debug, Clone)]
pub(super) struct TaskPaths {
    paths: RequestPaths,
    /// The origins of messages for a processor.
    origins: Origins,
    /// The paths of a prompt's media blocks on the wire, in order.
    media: Vec<String>,
}

impl TaskPaths {
    /// Returns the paths of a task with this rendering, whose attachments have the paths of the wire.
    #[must_use]
    pub(super) fn new(paths: RequestPaths, rendered: &Rendered) -> Self {
        let (origins, media) = match &rendered.output {
            Output::HfMessages(messages) => (messages.origins.clone(), Vec::new()),
            Output::Prompt { attachments, .. } => {
                (Origins::default(), attachments.iter().map(|attachment| attachment.path.clone()).collect())
            }
        };
        Self { paths, origins, media }
    }

    /// Returns the status of an error in the task, whose field may be one of the generation request.
    #[must_use]
    pub(super) fn status(&self, error: Error) -> Status {
        error.into_status(|failure| failure.locate(|path| (self.field(path), String::new())))
    }

    fn field(&self, path: &str) -> String {
        let (root, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        match root {
            HF_MESSAGES if rest.starts_with('[') => self.paths.wire(&self.origins.path(&format!("messages{rest}"))),
            MEDIA => self.media_block(rest).unwrap_or(CONVERSATION).to_owned(),
            HF_MESSAGES => CONVERSATION.to_owned(),
            _ => path.to_owned(),
        }
    }

    /// Returns the path of the block for `[i].rest` of the media.
    fn media_block(&self, rest: &str) -> Option<&str> {
        let (index, _) = rest.strip_prefix('[')?.split_once(']')?;
        self.media.get(index.parse::<usize>().ok()?).map(String::as_str)
    }
}
