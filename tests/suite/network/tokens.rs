//! Token files.

use std::fs;

use tandem_common::serve::{Security, SecurityArgs, ServeError};
use tandem_common::status::chain;
use tandem_tests::error_texts;
use tempfile::TempDir;

fn open(folder: &TempDir, content: &[u8]) -> Result<Security, ServeError> {
    let file = folder.path().join("tokens");
    fs::write(&file, content).expect("a file");
    Security::open(&SecurityArgs { token_file: Some(file), ..SecurityArgs::default() })
}

#[tokio::test]
async fn token_file_with_an_invalid_line_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let mut errors = Vec::new();
    let invalid = [
        " name=search",
        "first\n 2099-01-01T00:00:00Z",
        "# comment\n\n2099-01-01T00:00:00Z name=search",
        "\u{feff}name=search",
        "\u{feff}# comment\n",
        "first name=search max-priority=high",
        "first delegate delegate",
        "first 2099-01-01T00:00:00Z 2099-01-02T00:00:00Z",
        "first\nsecond\nfirst 2020-01-01T00:00:00Z",
        "first 2020-01-01T00:00:00Z\n\nfirst",
        "first name=a\nfirst name=b max-priority=1",
        "first 2099-13-01",
        "first name=a name=b",
        "first max-priority=1 max-priority=2",
        "first\nsec\0nd",
    ];
    for content in invalid {
        let error = open(&folder, content.as_bytes()).expect_err(content);
        errors.push(chain(&error).replace(&folder.path().display().to_string(), "FOLDER"));
    }
    error_texts::check_rows("network/tokens", errors);
}

#[tokio::test]
async fn token_file_may_have_words_and_begin_with_a_byte_order_mark() {
    let folder = TempDir::new().expect("a folder");
    for valid in [
        "\u{feff}# comment\nfirst\n",
        "\u{feff}first 2099-01-01T00:00:00Z name=search",
        "sname=first\n",
        "first name=a max-priority=-3 delegate",
        "first name=search 2099-01-01T00:00:00Z",
        "first name=search\nsecond\nfirst  name=search",
    ] {
        open(&folder, valid.as_bytes()).expect(valid);
    }
}
