//! Messages with images that are refused, with the path of the field. The next request is answered.

use std::cell::Cell;

use gen_svc::load;
use serde_json::{Value, json};
use tandem_core::engine::{Config, Engine};
use tandem_core::error::RequestError;
use tandem_core::media::{Marked, MediaFile, MediaLimits, MediaSource, Room};
use tandem_core::request::{GenerateRequest, Input};
use tandem_tests::error_texts;
use tandem_tests::failure::{Failed, failed};
use tandem_tests_full::image_checkpoint::Goldens;
use tandem_tests_full::image_model::{ImageModel, bitmap, png_header};
use tandem_torch::Libtorch;
use tonic::{Code, Status};

use super::{ask, encoded, for_each, image, prepare, request, start, text, user, with_input};
use tandem_tests::generate_command::{answers, generate_with};

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
    let not_fetched = |name, messages, field| case(name, messages, "IMAGE_NOT_FETCHED", field);
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
        not_fetched("url", with(json!({"type": "image", "url": url})), "hf_messages_json[0].content[1].url"),
        not_fetched(
            "image-url",
            with(json!({"type": "image_url", "image_url": {"url": url}})),
            "hf_messages_json[0].content[1].url",
        ),
        not_fetched(
            "url-as-image",
            with(json!({"type": "image", "image": url})),
            "hf_messages_json[0].content[1].image",
        ),
        invalid("no-type", with(json!({"base64": "QQ=="})), "hf_messages_json[0].content[1].type"),
        large("side", &png_header(70_000, 1)),
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

#[track_caller]
fn is_refused(status: &Status, reason: &str, field: &str, what: &str) {
    let Failed { code, reason: found, field: path } = failed(status);
    assert_eq!((code, found.as_str(), path.as_deref()), (Code::InvalidArgument, reason, Some(field)), "{what}");
}

#[test]
fn messages_with_bad_images_are_refused_by_the_path_of_their_data() {
    for_each(|model, folder| {
        let engine = start(folder, |config| config.media = limits());
        let expected = ask(&engine, request(with(image(1))));
        for Case { name, messages, reason, field } in cases() {
            let status = Status::from(request(messages).prepare(engine.model()).expect_err(name));
            is_refused(&status, reason, field, &format!("{model}, {name}"));
            error_texts::check(&format!("generate-images/{name}"), status.message());
            ask(&engine, request(with(image(1)))).is_same(&expected, &format!("{model}, after {name}"));
        }
    });
}

/// The image is a header alone: its tiles are counted before it is decoded.
#[test]
fn image_with_more_tiles_than_the_limit_is_refused() {
    for_each(|model, folder| {
        if model != "smolvlm" {
            return;
        }
        let engine = start(folder, |config| config.media.image.max_tiles = 1);
        let messages = with(encoded(&png_header(90, 90)));
        let status = Status::from(request(messages).prepare(engine.model()).expect_err("too many tiles"));
        is_refused(&status, "IMAGE_OVER_LIMIT", DATA_PATH, model);
        error_texts::check("generate-images/tiles", status.message());
    });
}

/// Models, texts with a placeholder or a token of images, and the reasons.
const TOKENS: [(&str, &str, &str); 4] = [
    ("smolvlm", "<image>", "INVALID_IMAGE"),
    ("gemma3", "<start_of_image>", "INVALID_IMAGE"),
    ("gemma3", "<image_soft_token>", "INVALID_REQUEST"),
    ("qwen2_5_vl", "<|image_pad|>", "INVALID_IMAGE"),
];

/// The text has the token with and without an image beside it.
#[test]
fn texts_with_an_image_token_are_refused() {
    for_each(|model, folder| {
        let engine = start(folder, |config| config.media = limits());
        for (_, token, reason) in TOKENS.into_iter().filter(|(name, ..)| *name == model) {
            for messages in [user([text(token)]), user([image(1), text(token)]), user([text(token), image(1)])] {
                let status = Status::from(request(messages).prepare(engine.model()).expect_err(model));
                is_refused(&status, reason, TEXT_PATH, &format!("{model}, {token}"));
            }
            assert_eq!(
                ask(&engine, request(user([text("token"), image(1)]))).ids().len(),
                16,
                "{model}, after {token}"
            );
        }
    });
}

#[test]
fn prompts_that_cannot_fit_the_context_are_refused_before_they_are_tokenized() {
    let (large, checked) = ("a".repeat(1 << 20), Cell::new(0));
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        // Only tokenizers of bytes have a bound.
        if engine.model().tokenizer.min_tokens(&large) < engine.model().context_length {
            return;
        }
        checked.set(checked.get() + 1);
        let marker = engine.model().vision.as_ref().expect("a processor").placeholder();
        // The file would be refused after the text.
        let file = MediaFile { source: MediaSource::Bytes(Vec::new()), offset: 0 };
        let marked = Input::WithMedia(Marked::Text(format!("{marker}{large}")), vec![file]);
        for (request, field) in [(with_input(marked), "prompt"), (request(user([text(&large)])), TEXT_PATH)] {
            let error = request.prepare(engine.model()).expect_err("it cannot fit");
            assert!(
                matches!(&error, RequestError::PromptTooLarge { field: of, .. } if *of == field),
                "{name}: {error:?}"
            );
        }
    });
    assert!(checked.get() > 0, "no model has such a tokenizer");
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

/// The tower would have other numbers, or other numbers of rows, than the image tokens.
#[test]
fn processors_that_do_not_fit_the_tower_are_refused_at_load() {
    let settings = [
        ("qwen2_5_vl", "preprocessor_config.json", "/merge_size", json!(1)),
        ("qwen2_5_vl", "preprocessor_config.json", "/patch_size", json!(8)),
        ("gemma3", "processor_config.json", "/image_seq_length", json!(9)),
        ("gemma3", "preprocessor_config.json", "/size", json!({"height": 126, "width": 126})),
        ("smolvlm", "processor_config.json", "/image_seq_len", json!(5)),
        ("smolvlm", "preprocessor_config.json", "/max_image_size/longest_edge", json!(96)),
    ];
    let texts = settings.map(|(name, file, pointer, value)| {
        let mut model = ImageModel::all().remove(name).expect("a model");
        model.set(file, pointer, value);
        let folder = model.folder();
        let Err(error) = load::start(Config::new(folder.path().to_owned()), &Libtorch) else {
            panic!("{pointer} is accepted")
        };
        format!("{}: {}", error.reason().name(), error.chain())
    });
    error_texts::check_rows("images/processor", texts);
}

#[test]
fn processor_settings_that_are_no_regular_file_are_refused_at_load() {
    let folder = ImageModel::all()["gemma3"].folder();
    let file = folder.path().join("preprocessor_config.json");
    std::fs::remove_file(&file).expect("the model has the file");
    std::os::unix::fs::symlink("/dev/zero", &file).expect("a link");
    let Err(error) = load::start(Config::new(folder.path().to_owned()), &Libtorch) else { panic!("it is accepted") };
    let text = error.chain().to_string().replace(&folder.path().display().to_string(), "FOLDER");
    error_texts::check("images/irregular-file", format!("{}: {text}", error.reason().name()));
}

/// They are refused before the engine gets the request.
#[test]
fn images_that_the_tower_cannot_take_are_refused() {
    let goldens = Goldens::read();
    let cases = [
        // More patches in a row than the tower has positions.
        ("gemma4", bitmap(1500, 10, 1)),
        ("gemma3_not_resized", bitmap(40, 28, 1)),
        ("qwen2_5_vl_not_resized", bitmap(50, 41, 1)),
        ("mistral3_not_resized", bitmap(40, 5, 1)),
    ];
    let texts = cases.map(|(name, bytes)| {
        let case = goldens.cases.iter().find(|case| case.name == name).expect("a model");
        let folder = goldens.folder(case);
        let engine = start(folder.path(), |_| {});
        let status = Status::from(request(with(encoded(&bytes))).prepare(engine.model()).expect_err(name));
        is_refused(&status, "INVALID_IMAGE", DATA_PATH, name);
        assert_eq!(ask(&engine, request(user([text("Hello")]))).ids().len(), 16, "{name}");
        status.message().to_owned()
    });
    error_texts::check_rows("images/unfit", texts);
}

#[test]
fn base64_may_have_several_lines() {
    let lines =
        |text: &str| text.as_bytes().chunks(76).map(|line| [line, b"\r\n"].concat()).collect::<Vec<_>>().concat();
    for_each(|model, folder| {
        let engine = start(folder, |_| {});
        let plain = image(1);
        let wrapped = String::from_utf8(lines(plain["base64"].as_str().expect("data"))).expect("ASCII");
        let [plain, wrapped] = [plain, json!({"type": "image", "base64": wrapped})]
            .map(|block| ask(&engine, request(user([block, text("What?")]))));
        assert_eq!(plain.ids(), wrapped.ids(), "{model}");
    });
}

/// Returns the bytes of the prepared image of these messages.
fn prepared_bytes(engine: &Engine, messages: Vec<Value>) -> usize {
    let prepared = prepare(engine, request(messages));
    prepared.media.expect("images").images.iter().map(|image| image.plan.shape.iter().product::<usize>()).sum()
}

#[test]
fn prepared_images_have_a_limit_of_memory_that_no_caller_takes_alone() {
    for_each(|name, folder| {
        let bytes = prepared_bytes(&start(folder, |_| {}), with(image(1)));
        // One caller may have three quarters: three images, and all callers together four.
        let engine = start(folder, |config| config.media.memory_bytes = 4 * bytes);
        let ask_as = |caller: &str| GenerateRequest { caller: caller.into(), ..request(with(image(1))) };
        let prepare = |caller| ask_as(caller).prepare(engine.model());
        let mut held: Vec<_> = (0..3).map(|_| prepare("greedy").expect(name)).collect();
        let refused = prepare("greedy").expect_err(name);
        assert_eq!((refused.reason().name(), refused.failure().code()), ("QUEUE_FULL", Code::ResourceExhausted));
        error_texts::check("images/memory", refused);
        held.push(prepare("polite").expect(name));
        assert!(prepare("other").is_err(), "{name}: all of it is held");
        held.remove(0);
        prepare("other").expect(name);
    });
}

/// The later images are not prepared.
#[test]
fn images_with_more_tokens_than_the_context_are_refused_one_by_one() {
    for_each(|name, folder| {
        let engine = start(folder, |_| {});
        let model = engine.model();
        let vision = model.vision.as_ref().expect(name);
        let room = |context| Room { tokenizer: &model.tokenizer, context };
        let messages = || match request(user([image(1), image(2), image(3), text("Compare.")])).input {
            Input::HfMessages(messages) => *messages,
            other => panic!("{other:?}"),
        };
        let prompt = vision.prompt(messages(), room(usize::MAX)).expect(name);
        let context = 2 * prompt.media.tokens() / 3;
        let error = vision.prompt(messages(), room(context)).expect_err(name);
        assert_eq!(error.reason().name(), "PROMPT_TOO_LONG", "{name}");
        assert!(matches!(error, RequestError::ImagesTooLong { tokens, .. } if tokens >= context), "{name}: {error}");
        vision.prompt(messages(), room(prompt.ids.len() + 1)).expect(name);
    });
}
