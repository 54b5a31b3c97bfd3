//! A conversation with render-svc: its history, its turns and its commands.

use std::io;
use std::mem;
use std::path::Path;

use anyhow::{Context, Result};
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::chat_message::Content;
use tandem_common::pb::chat::v1::{Block, BlockList, ChatMessage, Conversation, TextBlock};
use tandem_common::pb::generate::v1::{Sampling, Stop};
use tandem_common::pb::task::v1::RunTaskRequest;
use tokio::signal::unix::Signal;

use crate::answer::{self, Answer};
use crate::args::Generation;
use crate::command::{Command, HELP, ImageCommand};
use crate::connect::RenderService;
use crate::editor::Entry;
use crate::end::End;
use crate::image::Image;
use crate::input::Input;
use crate::refusal::Refusal;

/// A conversation.
#[derive(Debug)]
pub(crate) struct Session {
    service: RenderService,
    /// The system message. Empty means none.
    system: String,
    /// The messages of the user and the assistant.
    messages: Vec<ChatMessage>,
    /// The last message of the user, if it has no answer.
    unanswered: Option<ChatMessage>,
    /// The images of the user's next message.
    images: Vec<Image>,
    /// The seed of each first answer.
    seed: Option<u64>,
    sampling: Sampling,
    stop: Stop,
}

impl Session {
    pub(crate) fn new(service: RenderService, generation: Generation) -> Self {
        let Generation { max_new_tokens, temperature, top_p, seed, system } = generation;
        Self {
            service,
            system: system.unwrap_or_default(),
            messages: Vec::new(),
            unanswered: None,
            images: Vec::new(),
            seed,
            sampling: Sampling { temperature, top_p, seed, ..Sampling::default() },
            stop: Stop { max_new_tokens: Some(max_new_tokens), ..Stop::default() },
        }
    }

    /// Adds images to the user's next message.
    pub(crate) fn attach(&mut self, images: Vec<Image>) {
        self.images.extend(images);
    }

    /// Runs one turn per message until the input ends. Earlier messages are kept in the folder
    /// `history`, if given. `is_owner` says that the services end with this chat: then it ends with
    /// them.
    pub(crate) async fn converse(
        &mut self,
        history: Option<&Path>,
        is_owner: bool,
        interrupts: &mut Signal,
    ) -> Result<End> {
        let mut input = Input::open(history).context("cannot use the terminal")?;
        if input.is_terminal() {
            eprintln!(
                "{}\nType a message. Ctrl-C cancels an answer; /help lists the commands.",
                self.service.describe()
            );
            self.images.iter().for_each(report_attached);
        }
        loop {
            let entry = tokio::select! {
                entry = input.next() => entry.context("cannot read stdin")?,
                _ = interrupts.recv() => return Ok(End::INTERRUPTED),
            };
            let command = match entry {
                Entry::End => return Ok(End::Done),
                Entry::Interrupt => return Ok(End::INTERRUPTED),
                Entry::Message(line) if line.trim() == "/exit" => return Ok(End::Done),
                Entry::Message(line) if input.is_terminal() => Command::parse(line),
                Entry::Message(line) => Command::Message(line),
            };
            match self.run(command, interrupts).await {
                // The user at the terminal can try another message.
                Err(error) if input.is_terminal() && answer::can_retry(&error, is_owner) => self.report(&error),
                Ok(Some(end)) if !input.is_terminal() && end != End::Done => return Ok(end),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Runs a command. Returns the end of the turn, if it was one.
    async fn run(&mut self, command: Command, interrupts: &mut Signal) -> Result<Option<End>> {
        match command {
            Command::Message(text) => return self.ask(text, interrupts).await.map(Some),
            Command::Regenerate => return self.regenerate(interrupts).await,
            Command::New => {
                self.messages.clear();
                self.unanswered = None;
                eprintln!("[new conversation]");
            }
            Command::System(None) if self.system.is_empty() => eprintln!("[no system message; /system TEXT sets one]"),
            Command::System(None) => eprintln!("[system message: {}]", self.system),
            Command::System(Some(text)) => {
                self.system = text;
                let change = if self.system.is_empty() { "removed" } else { "set" };
                eprintln!("[system message {change}]");
            }
            Command::Image(command) => self.run_image(command),
            Command::Help => eprint!("{HELP}"),
            Command::Unknown(name) => eprintln!(
                "there is no command {name}; there are /new, /system, /image, /regen, /help and /exit. To send the \
                 message, type the slash twice: /{name}"
            ),
        }
        Ok(None)
    }

    /// Runs a command about the images of the next message.
    fn run_image(&mut self, command: ImageCommand) {
        match command {
            ImageCommand::Attach(path) => match Image::read(&path) {
                Ok(image) => {
                    report_attached(&image);
                    self.images.push(image);
                }
                Err(error) => eprintln!("error: {error:#}"),
            },
            ImageCommand::Show if self.images.is_empty() => {
                eprintln!("[no attached images; /image FILE attaches one to the next message]");
            }
            ImageCommand::Show => self.images.iter().for_each(report_attached),
            ImageCommand::Clear => {
                self.images.clear();
                eprintln!("[no attached images]");
            }
        }
    }

    /// Runs one turn with this text and the attached images.
    pub(crate) async fn ask(&mut self, text: String, interrupts: &mut Signal) -> Result<End> {
        let images = mem::take(&mut self.images);
        self.turn(user_message(images, text), interrupts).await
    }

    /// Runs one turn. The history then has the question and the answer, or neither if the answer is
    /// empty.
    async fn turn(&mut self, question: ChatMessage, interrupts: &mut Signal) -> Result<End> {
        self.sampling.seed = self.seed;
        self.messages.push(question);
        let (answer, outcome) = self.answer(interrupts).await?;
        self.unanswered = None;
        match answer {
            Some(message) => self.messages.push(message),
            None => self.unanswered = self.messages.pop(),
        }
        outcome
    }

    /// Answers the user's last message again, with another seed. An empty answer changes nothing.
    async fn regenerate(&mut self, interrupts: &mut Signal) -> Result<Option<End>> {
        if let Some(question) = self.unanswered.take() {
            return self.turn(question, interrupts).await.map(Some);
        }
        let Some(replaced) = self.messages.pop() else {
            eprintln!("[there is no message to answer again]");
            return Ok(None);
        };
        if self.sampling.temperature == Some(0.0) {
            eprintln!("[--temperature is 0: the answer stays the same]");
        }
        self.sampling.seed = self.sampling.seed.map(|seed| seed.wrapping_add(1));
        let (answer, outcome) = self.answer(interrupts).await?;
        self.messages.push(answer.unwrap_or(replaced));
        outcome.map(Some)
    }

    /// Prints one answer to the messages. Returns the answer, if it has text.
    async fn answer(&mut self, interrupts: &mut Signal) -> io::Result<(Option<ChatMessage>, Result<End>)> {
        let mut answer = Answer::new();
        let outcome = tokio::select! {
            outcome = stream(&self.service, self.request(), &mut answer) => outcome.map(|()| End::Done),
            _ = interrupts.recv() => Ok(End::INTERRUPTED),
        };
        answer.close()?;
        if outcome.is_ok() {
            eprintln!("[{}]", answer.summary(self.stop.max_new_tokens()));
        }
        Ok((answer.into_message(), outcome))
    }

    fn request(&self) -> RunTaskRequest {
        let system = (!self.system.is_empty()).then(|| message("system", self.system.clone()));
        let messages = system.into_iter().chain(self.messages.iter().cloned()).collect();
        RunTaskRequest {
            model: self.service.requested_model().to_owned(),
            conversation: Some(Conversation { messages, ..Conversation::default() }),
            sampling: Some(self.sampling.clone()),
            stop: Some(self.stop.clone()),
            ..RunTaskRequest::default()
        }
    }

    /// Returns the sampling values of the options as a member of a JSON object, with a comma at its
    /// end. Empty without such options.
    pub(crate) fn sampling_json(&self) -> String {
        let value = |name: &str, value: Option<f32>| value.map(|value| format!("\"{name}\": {value}"));
        let values = [value("temperature", self.sampling.temperature), value("top_p", self.sampling.top_p)];
        let values: Vec<_> = values.into_iter().flatten().collect();
        if values.is_empty() { String::new() } else { format!("\"sampling\": {{{}}}, ", values.join(", ")) }
    }

    fn report(&self, error: &anyhow::Error) {
        let is_full = error.downcast_ref::<Refusal>().is_some_and(Refusal::is_too_long);
        let remedy = match self.messages.is_empty() {
            _ if !is_full => "",
            true => "\nThe message is too long for the model: send a shorter one.",
            false => "\nThe conversation is too long for the model: /new starts a new one, or send a shorter message.",
        };
        let has_images = self.unanswered.iter().chain(&self.messages).any(has_blocks);
        let images = if is_full && has_images { " Fewer or smaller images make it shorter, too." } else { "" };
        eprintln!("error: {error:#}{remedy}{images}");
    }
}

/// Prints one answer. Dropping this future cancels the request in both services.
async fn stream(service: &RenderService, request: RunTaskRequest, answer: &mut Answer) -> Result<()> {
    let response = service.tasks().run_task(service.call(request)).await.map_err(Refusal)?;
    answer.print(&mut response.into_inner()).await
}

fn message(role: &str, text: String) -> ChatMessage {
    ChatMessage { role: role.to_owned(), content: Some(Content::Text(text)), ..ChatMessage::default() }
}

/// Returns a message of the user: plain text, or blocks with the images before the text.
fn user_message(images: Vec<Image>, text: String) -> ChatMessage {
    if images.is_empty() {
        return message("user", text);
    }
    let text = Block { kind: Some(Kind::Text(TextBlock { text })) };
    let blocks = images.into_iter().map(Image::into_block).chain([text]).collect();
    ChatMessage {
        role: "user".to_owned(),
        content: Some(Content::Blocks(BlockList { blocks })),
        ..ChatMessage::default()
    }
}

/// Returns true for a message with images.
fn has_blocks(message: &ChatMessage) -> bool {
    matches!(message.content, Some(Content::Blocks(_)))
}

fn report_attached(image: &Image) {
    eprintln!("[attached: {image}]");
}
