//! The start of messages, by which tasks choose a replica.

use render_svc::task::prefix::{MAX_UNITS, of_messages};
use serde_json::{Value, json};

fn image(base64: &str) -> Value {
    json!({"type": "image", "base64": base64})
}

fn units(first: &Value, last: &str) -> Vec<u32> {
    let text = json!({"type": "text", "text": last});
    of_messages(&[json!({"role": "user", "content": [first, text]})])
}

#[test]
fn messages_share_the_units_before_their_first_difference() {
    let (one, other) = (units(&image("QQ=="), "one"), units(&image("QQ=="), "other"));
    let shared = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    assert!(shared > 0 && shared < one.len(), "{one:?} {other:?}");
    assert_ne!(units(&image("QQ=="), "one"), units(&image("Qg=="), "one"));
    assert_eq!(units(&image("QQ=="), "one"), one);
}

#[test]
fn units_are_bounded_and_an_image_of_any_size_has_as_many() {
    let short = units(&image("QQ=="), "one").len();
    assert_eq!(units(&image(&"QUJD".repeat(100_000)), "one").len(), short);
    assert!(units(&image("QQ=="), &"long ".repeat(10_000)).len() <= MAX_UNITS + 1);
}
