//! Messages with images that are refused, with the path of the field. The next request is answered.

use gen_svc::media::MediaLimits;
use serde_json::{Value, json};
use tandem_tests::error_texts;
use tandem_tests::failure::{Failed, failed};
use tandem_tests_full::image_model::{bitmap, png_header};
use tonic::{Code, Status};

use super::super::cli::{answers, generate_with};
use super::{ask, encoded, for_each, image, request, start, text, user};

/// The most images of a request.
const IMAGES: usize = 2;

const TEXT_PATH: &str = "hf_messages_json";
const BLOCK_PATH: &str = "hf_messages_json[0].content[1]";
const DATA_PATH: &str = "hf_messages_json[0].content[1].base64";

/// Messages, and their error.
struct Case {
    name: &'static str,
    messages: Vec<Value>,
    reason: &'static str,
    field: &'static str,
}

/// Returns messages with a text and then this block.
fn with(block: Value) -> Vec<Value> {
    user([text("Look: "), block])
}

fn base64(data: &str) -> Vec<Value> {
    with(json!({"type": "image", "base64": data}))
}

fn cases() -> Vec<Case> {
    let case = |name, messages, reason, field| Case { name, messages, reason, field };
    let invalid = |name, messages, field| case(name, messages, "INVALID_REQUEST", field);
    let damaged = |name, bytes: &[u8]| case(name, with(encoded(bytes)), "INVALID_IMAGE", DATA_PATH);
    let large = |name, bytes: &[u8]| case(name, with(encoded(bytes)), "IMAGE_OVER_LIMIT", DATA_PATH);
    let bitmap = bitmap(8, 8, 1);
    let url = "http://127.0.0.1:1/image.png";
    let audio = json!({"type": "audio", "audio": "QQ=="});
    let many = user([image(1), image(2), image(1)]);
    vec![
        invalid("base64", base64("QQ=*"), DATA_PATH),
        invalid("no-string", with(json!({"type": "image", "base64": 7})), DATA_PATH),
        invalid("no-data", with(json!({"type": "image"})), DATA_PATH),
        invalid("url", with(json!({"type": "image", "url": url})), "hf_messages_json[0].content[1].url"),
        invalid(
            "image-url",
            with(json!({"type": "image_url", "image_url": {"url": url}})),
            "hf_messages_json[0].content[1].url",
        ),
        invalid("path", with(json!({"type": "image", "path": "/etc/hostname"})), "hf_messages_json[0].content[1].path"),
        invalid("audio", with(audio), BLOCK_PATH),
        invalid("video", with(json!({"type": "video", "base64": "QQ=="})), BLOCK_PATH),
        invalid("message", vec![json!("Hello")], "hf_messages_json[0]"),
        invalid("later-message", [with(image(1)), vec![json!(7)]].concat(), "hf_messages_json[1]"),
        damaged("empty", b""),
        damaged("format", b"no image at all"),
        damaged("truncated", &bitmap[..60]),
        damaged("header-alone", &png_header(8, 8)),
        damaged("no-pixels", &png_header(0, 8)),
        large("pixels", &png_header(65_535, 65_535)),
        large("bytes", &[&bitmap[..], &[0; 4096]].concat()),
        case("count", many, "IMAGE_OVER_LIMIT", "hf_messages_json[0].content[2]"),
    ]
}

/// Returns the limits of the tests: few images of few bytes.
fn limits() -> MediaLimits {
    let mut limits = MediaLimits { images: IMAGES, ..MediaLimits::default() };
    limits.image.max_bytes = 4096;
    limits
}

#[test]
fn messages_with_bad_images_are_refused_by_the_path_of_their_data() {
    for_each(|model, folder| {
        let engine = start(folder, |config| config.media = limits());
        let expected = ask(&engine, request(with(image(1))));
        for Case { name, messages, reason, field } in cases() {
            let status = Status::from(request(messages).prepare(engine.model()).expect_err(name));
            let found = failed(&status);
            let Failed { code, reason: found_reason, field: found_field } = &found;
            assert_eq!((found_reason.as_str(), found_field.as_deref()), (reason, Some(field)), "{model}, {name}");
            assert!(matches!(code, Code::InvalidArgument), "{model}, {name}: {code:?}");
            error_texts::check(&format!("generate/images/{name}"), status.message());
            ask(&engine, request(with(image(1)))).is_same(&expected, &format!("{model}, after {name}"));
        }
    });
}

/// The text has the image token, with and without an image beside it.
#[test]
fn texts_with_the_image_token_are_refused() {
    let tokens = [("smolvlm", "<image>"), ("gemma3", "<image_soft_token>"), ("qwen2_5_vl", "<|image_pad|>")];
    for_each(|model, folder| {
        let token = tokens.iter().find(|(name, _)| *name == model).expect("a token").1;
        let engine = start(folder, |config| config.media = limits());
        for messages in [user([text(token)]), user([image(1), text(token)]), user([text(token), image(1)])] {
            let status = Status::from(request(messages).prepare(engine.model()).expect_err(model));
            let Failed { reason, field, .. } = failed(&status);
            assert!(["INVALID_REQUEST", "INVALID_IMAGE"].contains(&reason.as_str()), "{model}: {reason}");
            assert_eq!(field.as_deref(), Some(TEXT_PATH), "{model}");
        }
        ask(&engine, request(user([text("token"), image(1)])));
    });
}

/// The program names fields by the keys of a line.
#[test]
fn lines_with_messages_are_answered_or_refused_by_the_key_of_their_data() {
    let lines = [user([image(1), text("What?")]), base64("QQ=*"), vec![json!(7)], user([image(1), text("What?")])];
    let line = |messages: &Vec<Value>| {
        let options = json!({"hf_messages": messages, "max_new_tokens": 16, "ignore_eos": true});
        format!("{options}\n")
    };
    let lines: String = lines.iter().map(line).collect();
    for_each(|model, folder| {
        let arguments = ["--jsonl", "--threads", "1", "--set", "temperature=1", "--set", "seed=11"];
        let answers = answers(&generate_with(folder, &arguments, lines.as_bytes()));
        let expected = ask(&start(folder, |_| {}), request(user([image(1), text("What?")])));
        for at in [0, 3] {
            assert_eq!(answers[at]["token_ids"], json!(expected.ids()), "{model}");
            assert_eq!(answers[at]["usage"]["prompt_tokens"], expected.summary.prompt_tokens, "{model}");
        }
        let field = |at: usize| answers[at]["error"]["field"].as_str();
        assert_eq!(field(1), Some("hf_messages[0].content[1].base64"), "{model}");
        assert_eq!(field(2), Some("hf_messages[0]"), "{model}");
    });
}
