//! Images of messages: `--image` and `/image`.

use std::fs::{self, File};

use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::media_block::Source;
use tandem_common::pb::chat::v1::{Block, MediaBlock, TextBlock};
use tandem_tests::Terminal;
use tempfile::TempDir;

use super::service::{Fake, run};

/// The header of a PNG file of 640 × 480 pixels.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0";
/// The header of a GIF file of 3 × 2 pixels.
const GIF: &[u8] = b"GIF89a\x03\0\x02\0\0\0\0";
/// The start of a JPEG file, without pixels.
const JPEG: &[u8] = b"\xff\xd8\xff\xe0";
/// The start of a BMP file, without pixels.
const BMP: &[u8] = b"BM\0\0";
/// The start of a WebP file, without pixels.
const WEBP: &[u8] = b"RIFF\0\0\0\0WEBP";

/// A folder with image files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let this = Self(TempDir::new().expect("a folder"));
        for (name, content) in
            [("a.png", PNG), ("two words.gif", GIF), ("c.txt", JPEG), ("d.bmp", BMP), ("e.webp", WEBP)]
        {
            fs::write(this.0.path().join(name), content).expect("a file");
        }
        this
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Returns the files that cannot be sent, and the words of the error for each.
    fn wrong(&self) -> [(String, &'static str); 6] {
        let path = |name| self.path(name);
        fs::write(path("text.png"), "no image").expect("a file");
        fs::write(path("empty.png"), "").expect("a file");
        let large = File::create(path("large.png")).expect("a file");
        large.set_len((32 << 20) + 1).expect("a size");
        let pipe = std::process::Command::new("mkfifo").arg(path("pipe")).status();
        assert!(pipe.expect("mkfifo runs").success());
        [
            (path("missing.png"), "No such file"),
            (path(""), "is a directory"),
            (path("pipe"), "not a regular file"),
            (path("large.png"), "image is larger than 32 MiB"),
            (path("text.png"), "convert the file to one of JPEG, PNG, WebP, GIF, BMP"),
            (path("empty.png"), "image format is not supported"),
        ]
    }
}

fn image(content: &[u8], mime_type: &str) -> Block {
    let (source, mime_type) = (Some(Source::Data(content.to_vec())), mime_type.to_owned());
    Block { kind: Some(Kind::Image(MediaBlock { source, mime_type })) }
}

fn text(text: &str) -> Block {
    Block { kind: Some(Kind::Text(TextBlock { text: text.to_owned() })) }
}

/// Pastes a line, so that the editor's rows do not break it, and waits for `expected` and the next
/// prompt.
#[track_caller]
fn say(terminal: &mut Terminal, line: &str, expected: &str) -> String {
    terminal.paste(line);
    terminal.send("\r");
    let output = terminal.wait_for(expected);
    terminal.wait_for("> ");
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_arguments_precede_the_first_text() {
    let (fake, files) = (Fake::start().await, Files::new());
    let address = fake.address();
    let names = ["a.png", "two words.gif", "c.txt", "d.bmp", "e.webp"].map(|name| files.path(name));
    let images = names.iter().flat_map(|name| ["--image", name]);
    let arguments: Vec<&str> = ["--connect", &address].into_iter().chain(images).collect();
    let blocks = |question: &str| {
        [
            image(PNG, "image/png"),
            image(GIF, "image/gif"),
            image(JPEG, "image/jpeg"),
            image(BMP, "image/bmp"),
            image(WEBP, "image/webp"),
            text(question),
        ]
    };
    let output = run(&[&arguments, &["What", "is this?"][..]].concat(), "");
    assert_eq!(output.stdout, b"answer 1\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fake.last_blocks(), blocks("What is this?"));

    // Without a question they belong to the first line.
    let output = run(&arguments, "one\ntwo\n");
    assert_eq!(output.stdout, b"answer 2\nanswer 3\n", "{}", String::from_utf8_lossy(&output.stderr));
    let requests = fake.requests();
    let messages = &requests[2].conversation.as_ref().expect("a conversation").messages;
    assert_eq!(messages[0], requests[1].conversation.as_ref().expect("a conversation").messages[0]);
    assert_eq!(fake.last()[0].1, "one");
    assert_eq!(fake.last_text(), "two");

    let mut terminal = Terminal::start(&super::service::client(), &arguments, 80);
    let output = terminal.wait_for("> ");
    assert!(output.contains("[attached: a.png, PNG, 640 × 480, 1 KiB]\r\n"), "{output}");
    assert!(output.contains("[attached: c.txt, JPEG, 1 KiB]\r\n"), "{output}");
    say(&mut terminal, "three", "answer 4");
    assert_eq!(fake.last_blocks(), blocks("three"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_command_changes_the_next_message_only() {
    let (fake, files) = (Fake::start().await, Files::new());
    let mut terminal = fake.chat(&[], 200);
    say(&mut terminal, "/image", "[no attached images; /image FILE");
    say(
        &mut terminal,
        &format!("/image {}", files.path("two words.gif")),
        "[attached: two words.gif, GIF, 3 × 2, 1 KiB]",
    );
    say(&mut terminal, &format!("/image {}", files.path("a.png")), "[attached: a.png, PNG, 640 × 480, 1 KiB]");
    let listed = say(&mut terminal, "/image", "a.png, PNG");
    assert!(listed.contains("[attached: two words.gif, GIF"), "{listed}");
    say(&mut terminal, "/new", "[new conversation]");
    say(&mut terminal, "one", "answer 1");
    let first = [image(GIF, "image/gif"), image(PNG, "image/png"), text("one")];
    assert_eq!(fake.last_blocks(), first);
    say(&mut terminal, "/regen", "answer 2");
    assert_eq!(fake.last_blocks(), first);

    say(&mut terminal, "/image", "[no attached images;");
    say(&mut terminal, "two", "answer 3");
    let request = fake.requests().pop().expect("a request");
    let messages = request.conversation.expect("a conversation").messages;
    assert_eq!(messages[0], fake.requests()[0].conversation.as_ref().expect("a conversation").messages[0]);
    assert_eq!(fake.last_text(), "two");

    say(&mut terminal, &format!("/image '{}'", files.path("two words.gif")), "[attached: two words.gif");
    say(&mut terminal, "/image clear", "[no attached images]");
    say(&mut terminal, &format!("/image {}", files.path("two\\ words.gif")), "[attached: two words.gif");
    say(&mut terminal, "three", "answer 4");
    assert_eq!(fake.last_blocks(), [image(GIF, "image/gif"), text("three")]);
    say(&mut terminal, "/help", "/image clear");
    // The home folder, where this file is not.
    let home = std::env::home_dir().expect("a home folder");
    say(&mut terminal, "/image ~/no such image.png", &format!("{}/no such image.png: No such file", home.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_sent_is_reported_before_sending() {
    let (fake, files) = (Fake::start().await, Files::new());
    let mut terminal = fake.chat(&[], 200);
    for (path, expected) in files.wrong() {
        let output = run(&["--connect", &fake.address(), "--image", &path, "Hello"], "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{path}");
        assert!(error.starts_with("error: image ") && error.contains(&path) && error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        say(&mut terminal, &format!("/image {path}"), expected);
    }
    assert!(fake.requests().is_empty());
    say(&mut terminal, "Hello", "answer 1");
    assert_eq!(fake.last_text(), "Hello");
    // No service is needed to find it.
    let missing = &files.path("missing.png");
    let output = run(&["--connect", "127.0.0.1:1", "--image", missing, "Hello"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"));
    for command in ["--stop", "--status"] {
        let output = run(&[command, "--image", missing], "");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used with"), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_images_leaves_the_chat_usable() {
    let (fake, files) = (Fake::start().await, Files::new());
    let mut terminal = fake.chat(&[], 200);
    say(&mut terminal, &format!("/image {}", files.path("a.png")), "[attached: a.png");
    say(&mut terminal, "no images", "error: images are not supported (FailedPrecondition)");
    say(&mut terminal, "text", "answer 2");
    assert_eq!(fake.last(), [("user".to_owned(), "text".to_owned())]);
    say(&mut terminal, "/image", "[no attached images;");
    let output = run(&["--connect", &fake.address(), "--image", &files.path("a.png"), "no images"], "");
    assert!(!output.status.success() && output.stdout.is_empty());

    // A refused message can be sent again, with its images.
    say(&mut terminal, &format!("/image {}", files.path("a.png")), "[attached: a.png");
    say(&mut terminal, "too long", "Fewer or smaller images");
    say(&mut terminal, "/regen", "Fewer or smaller images");
    assert_eq!(fake.last_blocks(), [image(PNG, "image/png"), text("too long")]);
}
