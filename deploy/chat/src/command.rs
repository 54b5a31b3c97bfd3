//! The commands of a conversation.

use std::path::PathBuf;

use crate::image;

/// The page of `/help`.
pub(crate) const HELP: &str = "\
Commands:
  /new           start a new conversation; the system message and attached images stay
  /system TEXT   set the system message from the next answer on; \"\" removes it
  /system        show the system message
  /image FILE    attach an image to the next message: JPEG, PNG, WebP, GIF or BMP, up to 32 MiB
  /image         show the attached images
  /image clear   detach them
  /regen         answer the last message again, with another seed
  /help          show this page
  /exit          end; so does Ctrl-D on an empty line
A message that begins with a slash: type the slash twice, as in //etc/hosts.

Keys:
  Enter sends. Alt-Enter, or a backslash before Enter, starts another line of the message.
  Arrow keys edit and recall earlier messages; Ctrl-R searches them.
  Ctrl-C clears the line, cancels an answer, and ends the chat on an empty line.
A paste is one message, however long. A long one is shown as [paste 1: …] and sent as a whole.
";

/// A line of the user. `/exit` is not here: it also ends a chat without a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Message(String),
    New,
    /// The new system message; none shows the current one.
    System(Option<String>),
    Image(ImageCommand),
    Regenerate,
    Help,
    Unknown(String),
}

/// What `/image` does with the images of the next message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageCommand {
    Attach(PathBuf),
    Show,
    Clear,
}

impl Command {
    /// Parses a line. Only a single line that begins with a slash is a command.
    pub(crate) fn parse(line: String) -> Self {
        let Some(rest) = line.strip_prefix('/').filter(|_| !line.trim_end().contains('\n')) else {
            return Self::Message(line);
        };
        if rest.starts_with('/') {
            return Self::Message(rest.to_owned());
        }
        let (name, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match (name, text.trim()) {
            ("new", "") => Self::New,
            ("system", "") => Self::System(None),
            ("system", text) => Self::System(Some(if text == "\"\"" { String::new() } else { text.to_owned() })),
            ("image", "") => Self::Image(ImageCommand::Show),
            ("image", "clear") => Self::Image(ImageCommand::Clear),
            ("image", path) => Self::Image(ImageCommand::Attach(image::typed_path(path))),
            ("regen", "") => Self::Regenerate,
            ("help", _) => Self::Help,
            _ => Self::Unknown(format!("/{name}")),
        }
    }
}
