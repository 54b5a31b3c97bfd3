//! Keys, pastes, the history and the commands of a conversation.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Pid, Signal, kill_process};
use tandem_tests::Terminal;
use tempfile::TempDir;

use super::service::{Fake, run};

const UP: &str = "\x1b[A";
const LEFT: &str = "\x1b[D";
const HOME: &str = "\x1b[H";
const CTRL_C: &str = "\x03";
const ALT_ENTER: &str = "\x1b\r";

/// Sends keys and Enter, and waits for `expected` and the next prompt.
#[track_caller]
fn say(terminal: &mut Terminal, keys: &str, expected: &str) -> String {
    terminal.send(keys);
    terminal.send("\r");
    let output = terminal.wait_for(expected);
    terminal.wait_for("> ");
    output
}

fn pair(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paste_of_any_length_is_one_message() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 80);
    let line = "\tLänge, 長さ, 👩‍👩‍👧 and \\n of this line; and more words: ";
    let long: String = (0..3000).map(|number| format!("{line}{number}\n")).collect();
    assert!(long.len() > 200_000);
    for (number, text) in
        ["one\ntwo", "one \\\ntwo", long.as_str(), &"x".repeat(70_000), &"\n".repeat(70_000)].iter().enumerate()
    {
        terminal.paste(&format!("{text}."));
        say(&mut terminal, "", &format!("answer {}", number + 1));
        assert_eq!(fake.requests().len(), number + 1);
        assert!(fake.last_text() == format!("{text}."), "paste {number} arrived changed");
    }
    // A long paste may be part of a message.
    terminal.send("before ");
    terminal.paste(&long);
    say(&mut terminal, " after", "answer 6");
    assert!(fake.last_text() == format!("before {long} after"), "it arrived changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_edit_the_message() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 80);
    let cases = [
        (format!("helo{LEFT}l"), "hello"),
        (format!("ello{HOME}h"), "hello"),
        ("hellooo\x7f\x7f".to_owned(), "hello"),
        ("one two\x17three".to_owned(), "one three"),
        (format!("one{ALT_ENTER}two"), "one\ntwo"),
        ("one\\\rtwo".to_owned(), "one\ntwo"),
        (format!("dropped{CTRL_C}kept"), "kept"),
    ];
    for (number, (keys, expected)) in cases.into_iter().enumerate() {
        say(&mut terminal, &keys, &format!("answer {}", number + 1));
        assert_eq!(fake.last_text(), expected, "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_messages_are_recalled_also_by_the_next_chat() {
    let (fake, state) = (Fake::start().await, TempDir::new().expect("a folder"));
    let folder = state.path().to_str().expect("UTF-8");
    let file = state.path().join("chat-history");
    let mut terminal = fake.chat(&["--state", folder], 80);
    say(&mut terminal, &format!("first{ALT_ENTER}\\line"), "answer 1");
    say(&mut terminal, "second", "answer 2");
    say(&mut terminal, &format!("{UP}{UP}"), "answer 3");
    assert_eq!(fake.last_text(), "first\n\\line");
    terminal.paste(&"long ".repeat(1000));
    say(&mut terminal, "", "answer 4");
    terminal.send("\x04");
    assert!(terminal.wait().success());
    assert_eq!(fs::read_to_string(&file).expect("a history"), "first\\n\\\\line\nsecond\nfirst\\n\\\\line\n");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);

    let mut terminal = fake.chat(&["--state", folder], 80);
    // The second key moves to the first line of the recalled message.
    say(&mut terminal, &format!("{UP}{UP}{UP}"), "answer 5");
    assert_eq!(fake.last_text(), "second");
    let before = fs::read_to_string(&file).expect("a history");
    let mut terminal = fake.chat(&["--state", folder, "--no-history"], 80);
    say(&mut terminal, &format!("{UP}private"), "answer 6");
    assert_eq!(fake.last_text(), "private");
    assert_eq!(fs::read_to_string(&file).expect("a history"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_change_the_conversation() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&["--seed", "5"], 80);
    say(&mut terminal, "one", "1 answer token ");
    say(&mut terminal, "/system Be brief.", "[system message set]");
    say(&mut terminal, "/system", "[system message: Be brief.]");
    say(&mut terminal, "two", "answer 2");
    let system = pair("system", "Be brief.");
    let first = [pair("user", "one"), pair("assistant", "answer 1"), pair("user", "two")];
    let expected = [std::slice::from_ref(&system), first.as_slice()].concat();
    assert_eq!(fake.last(), expected);

    say(&mut terminal, "/regen", "answer 3");
    assert_eq!(fake.last(), expected);
    say(&mut terminal, "/regen", "answer 4");
    let seeds: Vec<_> =
        fake.requests().iter().map(|request| request.sampling.as_ref().expect("sampling").seed).collect();
    assert_eq!(seeds, [Some(5), Some(5), Some(6), Some(7)]);
    say(&mut terminal, "three", "answer 5");
    assert_eq!(fake.last()[4..], [pair("assistant", "answer 4"), pair("user", "three")]);

    say(&mut terminal, "/new", "[new conversation]");
    say(&mut terminal, "four", "answer 6");
    assert_eq!(fake.last(), [system, pair("user", "four")]);
    say(&mut terminal, "/system \"\"", "[system message removed]");
    say(&mut terminal, "/new", "[new conversation]");
    say(&mut terminal, "/regen", "[there is no message to answer again]");
    say(&mut terminal, "/etc/hosts", "there are /new, /system, /image, /regen, /help and /exit");
    say(&mut terminal, "//etc/hosts", "answer 7");
    assert_eq!(fake.last(), [pair("user", "/etc/hosts")]);
    say(&mut terminal, "/help", "Alt-Enter");
    terminal.send("/exit\r");
    assert!(terminal.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_too_long_can_be_left() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 80);
    say(&mut terminal, "too long", "send a shorter one");
    say(&mut terminal, "one", "answer 2");
    say(&mut terminal, "too long", "/new starts a new one");
    assert_eq!(fake.last().len(), 3);
    // The refused message can be sent again.
    say(&mut terminal, "/regen", "/new starts a new one");
    assert_eq!(fake.last()[2], pair("user", "too long"));
    say(&mut terminal, "/new", "[new conversation]");
    say(&mut terminal, "two", "answer 5");
    assert_eq!(fake.last(), [pair("user", "two")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_cancelled_and_the_terminal_is_restored() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 80);
    terminal.send("slow\r");
    terminal.wait_for("word");
    assert!(!terminal.echoes(), "the answer is not mixed with typed text");
    say_after_cancel(&mut terminal);
    assert_eq!(fake.last()[..2], [pair("user", "slow"), pair("assistant", "word ")]);
    terminal.send(CTRL_C);
    assert_eq!(terminal.wait().code(), Some(130));
    assert!(terminal.echoes());

    let mut terminal = fake.chat(&[], 80);
    let id = i32::try_from(terminal.id()).ok().and_then(Pid::from_raw).expect("an id");
    kill_process(id, Signal::TERM).expect("it runs");
    let status = terminal.wait();
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    assert!(terminal.echoes(), "also after SIGTERM at the prompt");
}

#[track_caller]
fn say_after_cancel(terminal: &mut Terminal) {
    terminal.send(CTRL_C);
    terminal.wait_for("[cancelled]");
    terminal.wait_for("> ");
    say(terminal, "next", "answer 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_typed_during_an_answer_is_the_next_message() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 80);
    terminal.send(&format!("print {}\r", "long ".repeat(400)));
    terminal.wait_for("long long");
    terminal.wait_for("\nlong");
    terminal.send("typed ahead\rand more");
    terminal.wait_for("answer 2");
    assert_eq!(fake.last_text(), "typed ahead");
    terminal.wait_for("and more");
    say(&mut terminal, "", "answer 3");
    assert_eq!(fake.last_text(), "and more");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_each_line_is_a_turn_and_nothing_is_added() {
    let fake = Fake::start().await;
    let output = run(&["--connect", &fake.address()], "one\n\n /new \nprint a  b\\nc\n/exit\nnever\n");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(stdout, "answer 1\nanswer 2\na  b\nc\n", "{stderr}");
    assert!(output.status.success() && !stderr.contains(['\x1b', '>']), "{stderr}");
    assert!(stderr.starts_with("[2 prompt tokens, 1 answer token · first text after "), "{stderr}");
    let sampling = fake.requests()[0].sampling.clone().expect("sampling");
    assert_eq!((sampling.temperature, sampling.top_p), (None, None), "the model's own defaults apply");
    let output = run(&["--connect", &fake.address(), "--temperature", "0", "Hello", "you"], "");
    assert_eq!(output.stdout, b"answer 4\n");
    assert_eq!(
        (fake.last_text().as_str(), fake.requests()[3].sampling.clone().expect("it").temperature),
        ("Hello you", Some(0.0))
    );
}
