//! The line editor, in a separate thread because it blocks.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers,
    Movement, RepeatCount,
};
use tokio::sync::mpsc;

use crate::history::{self, History};
use crate::paste::{CONTINUATION, Pastes};
use crate::terminal::{self, QuietMode};

const PROMPT: &str = "> ";

/// One entry at the prompt.
#[derive(Debug)]
pub(crate) enum Entry {
    Message(String),
    /// Ctrl-C on an empty line.
    Interrupt,
    End,
}

/// A line editor on the terminal. It reads only when it is asked, and is quiet in between.
#[derive(Debug)]
pub(crate) struct LineEditor {
    ask: blocking::Sender<()>,
    entries: mpsc::Receiver<io::Result<Entry>>,
    /// Empty as soon as the terminal is restored. Only this editor may empty it: if the thread held the
    /// last reference, the process could exit before the terminal is restored.
    quiet: Arc<Mutex<Option<QuietMode>>>,
}

impl LineEditor {
    /// Starts the editor. With a folder, earlier messages are read from it, and new ones added.
    pub(crate) fn start(history: Option<&Path>) -> io::Result<Self> {
        let quiet = Arc::new(Mutex::new(Some(QuietMode::enter()?)));
        let mut reader = Reader::new(history.map(History::new)).map_err(into_io)?;
        let (ask, asked) = blocking::channel();
        let (send, entries) = mpsc::channel(1);
        let mode = Arc::clone(&quiet);
        thread::spawn(move || {
            while asked.recv().is_ok() {
                let entry = reader.read();
                // The editor ends marked pastes; the next one may come during the answer.
                lock(&mode).as_ref().map(QuietMode::mark_pastes);
                if send.blocking_send(entry).is_err() {
                    return;
                }
            }
        });
        Ok(Self { ask, entries, quiet })
    }

    /// Returns the next entry that is not blank.
    pub(crate) async fn next(&mut self) -> io::Result<Entry> {
        if self.ask.send(()).is_err() {
            return Ok(Entry::End);
        }
        self.entries.recv().await.unwrap_or(Ok(Entry::End))
    }
}

impl Drop for LineEditor {
    fn drop(&mut self) {
        lock(&self.quiet).take();
    }
}

/// The part of the editor that its thread owns.
#[derive(Debug)]
struct Reader {
    editor: rustyline::Editor<(), MemHistory>,
    pastes: Arc<Mutex<Pastes>>,
    history: Option<History>,
}

impl Reader {
    fn new(history: Option<History>) -> rustyline::Result<Self> {
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().behavior(behavior).max_history_size(history::MAX_ENTRIES)?.build();
        let history_kept = MemHistory::with_config(&config);
        let mut editor = rustyline::Editor::with_history(config, history_kept)?;
        editor.set_bell_style(rustyline::config::BellStyle::None);
        let pastes = Arc::new(Mutex::new(Pastes::default()));
        editor.bind_sequence(Event::Any, EventHandler::Conditional(Box::new(Keys(Arc::clone(&pastes)))));
        let mut this = Self { editor, pastes, history };
        this.load_history()?;
        Ok(this)
    }

    fn load_history(&mut self) -> rustyline::Result<()> {
        let messages = self.with_history(History::load).unwrap_or_default();
        messages.into_iter().try_for_each(|message| self.editor.add_history_entry(message).map(drop))
    }

    fn read(&mut self) -> io::Result<Entry> {
        loop {
            let line = match self.editor.readline(PROMPT) {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => line,
                Err(ReadlineError::Eof) => return Ok(Entry::End),
                Err(ReadlineError::Interrupted) => return Ok(Entry::Interrupt),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    terminal::discard_input();
                    lock(&self.pastes).abandon();
                    eprintln!("error: the input is not UTF-8 and was not sent");
                    continue;
                }
                Err(error) => return Err(into_io(error)),
            };
            return Ok(Entry::Message(self.accept(line)));
        }
    }

    /// Remembers a line, and returns it with its long pastes.
    fn accept(&mut self, line: String) -> String {
        let line = line.replace(CONTINUATION, "\n");
        let (message, has_label) = {
            let pastes = lock(&self.pastes);
            (pastes.expand(&line), pastes.has_label(&line))
        };
        if !has_label {
            self.with_history(|history| history.append(&line));
        }
        // In memory the labels remain: this process can expand them.
        let _ = self.editor.add_history_entry(line);
        message
    }

    /// Uses the file of earlier messages. A file that cannot be used is reported, and not used again.
    fn with_history<T>(&mut self, work: impl FnOnce(&History) -> io::Result<T>) -> Option<T> {
        let history = self.history.as_ref()?;
        match work(history) {
            Ok(value) => Some(value),
            Err(error) => {
                eprintln!("warning: messages are not kept in {}: {error}", history.path().display());
                self.history = None;
                None
            }
        }
    }
}

/// The keys that do other than the editor's defaults.
struct Keys(Arc<Mutex<Pastes>>);

impl ConditionalEventHandler for Keys {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let Event::KeySeq(keys) = event else { return None };
        let [key] = keys.as_slice() else { return None };
        let mut pastes = lock(&self.0);
        if *key == KeyEvent(KeyCode::BracketedPasteStart, Modifiers::NONE) {
            pastes.start();
            return Some(Cmd::Noop);
        }
        if let Some(paste) = pastes.open() {
            if *key == KeyEvent(KeyCode::BracketedPasteEnd, Modifiers::NONE) {
                return Some(Cmd::Insert(1, pastes.end()));
            }
            paste.extend(text_of(*key));
            return Some(Cmd::Noop);
        }
        bound(*key, context)
    }
}

/// Returns the character that a key of a paste means.
fn text_of(key: KeyEvent) -> Option<char> {
    match key {
        KeyEvent(KeyCode::Char(c), Modifiers::NONE) => Some(c),
        KeyEvent(KeyCode::Tab, _) => Some('\t'),
        KeyEvent(KeyCode::Enter, _) => Some('\r'),
        KeyEvent(KeyCode::Char('J'), Modifiers::CTRL) => Some('\n'),
        _ => None,
    }
}

fn bound(key: KeyEvent, context: &EventContext<'_>) -> Option<Cmd> {
    match key {
        KeyEvent(KeyCode::Enter, Modifiers::ALT) => Some(Cmd::Newline),
        KeyEvent(KeyCode::Enter, _) if is_continued(context) => Some(Cmd::Newline),
        KeyEvent(KeyCode::Char('C'), Modifiers::CTRL) if context.line().is_empty() => Some(Cmd::Interrupt),
        KeyEvent(KeyCode::Char('C'), Modifiers::CTRL) => Some(Cmd::Kill(Movement::WholeBuffer)),
        _ => None,
    }
}

/// Returns true at the end of a line that ends with a backslash.
fn is_continued(context: &EventContext<'_>) -> bool {
    context.line().ends_with('\\') && context.pos() == context.line().len()
}

/// A panic of another thread leaves the value as it is.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_io(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        error => io::Error::other(error),
    }
}
