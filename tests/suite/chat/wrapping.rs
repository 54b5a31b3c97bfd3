//! Answers on a terminal are wrapped between words.

use tandem_tests::Terminal;

use super::service::Fake;

/// Returns the rows of the answer to `print TEXT`.
fn rows(terminal: &mut Terminal, text: &str) -> Vec<String> {
    // The message is pasted, so that the editor's own rows are few.
    terminal.paste(&format!("print {}", text.replace('\n', "\\n")));
    terminal.send("\r");
    let output = terminal.wait_for("[2 prompt tokens");
    terminal.wait_for("> ");
    // The editor ends with the paste marks off, and the client turns them on again.
    let answer = output.rsplit("\x1b[?2004h").next().expect("an answer");
    let answer = answer.strip_suffix("\r\n[2 prompt tokens").expect("a last line");
    answer.split("\r\n").map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_wrapped_at_the_width_of_the_terminal() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 40);
    let text: String = (0..150).map(|number| format!("word{} ", "x".repeat(number % 9))).collect();
    let text = text.trim_end();
    for width in [40, 25] {
        terminal.resize(width);
        let rows = rows(&mut terminal, text);
        let next_words = rows.iter().skip(1).map(|row| row.split(' ').next().expect("a word"));
        for (row, next) in rows.iter().zip(next_words) {
            let columns = row.chars().count();
            assert!(columns <= usize::from(width) && columns + 1 + next.len() > usize::from(width), "{row:?}");
        }
        assert_eq!(rows.join(" "), text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_break_only_where_text_allows_it() {
    let fake = Fake::start().await;
    let mut terminal = fake.chat(&[], 40);
    let same = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
    let code = "```rust\nfn main() { println!(\"this line of code is longer than the terminal\"); }\n```";
    let indented = "Code:\n\n    let x = a_function(with, many, arguments, and, more);";
    let table = "| a column | another column | a third column | a fourth |\n|---|---|---|---|";
    let url = format!("https://example.org/{}", "path/".repeat(12));
    for text in [code, indented, table, url.as_str(), "a  b\n\n  c", "tab\tstop"] {
        assert_eq!(rows(&mut terminal, text), same(text), "{text}");
    }
    // After a code block text is wrapped again; a nested list is text.
    let after = format!("{code}\nThese are more words than one row of forty columns can hold.");
    assert_eq!(rows(&mut terminal, &after)[3..], ["These are more words than one row of", "forty columns can hold."]);
    let list = "- item\n    - These are more words than one row can hold.";
    assert_eq!(rows(&mut terminal, list), ["- item", "    - These are more words than one row", "can hold."]);
    // Double-width scripts have no spaces between words. Punctuation does not start a row.
    let wide = format!("{}。終", "漢字".repeat(10));
    let first = "漢字".repeat(9) + "漢";
    assert_eq!(rows(&mut terminal, &wide), [first.as_str(), "字。終"]);
    let family = "👩\u{200d}👩\u{200d}👧".repeat(2);
    assert_eq!(rows(&mut terminal, &family), [family]);
    // Text of a model must not command the terminal.
    assert_eq!(rows(&mut terminal, "a\\e[2Jb"), ["a\u{fffd}[2Jb"]);
}
