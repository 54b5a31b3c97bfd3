//! The way from a value to one within it.

use serde_json::Value;
use tandem_common::field::{Step, Steps};

use crate::conversation::find;

/// Takes out the value to which steps lead. An item of a list becomes an empty text.
pub(super) fn remove(value: &mut Value, steps: &Steps<'_>) {
    let Some((last, way)) = steps.split_last() else { return };
    let holder = find(value, way);
    match (holder, last) {
        (Some(Value::Object(fields)), Step::Key(key)) => _ = fields.shift_remove(*key),
        (Some(Value::Array(items)), Step::Index(index)) => {
            items.get_mut(*index).into_iter().for_each(|item| *item = "".into());
        }
        _ => {}
    }
}

/// Adds the values in a value that are neither objects nor lists, each with the way to it.
pub(super) fn values<'c>(
    value: &'c Value,
    way: &mut Vec<Step<&'c str>>,
    found: &mut Vec<(Vec<Step<&'c str>>, &'c Value)>,
) {
    match value {
        Value::Object(_) | Value::Array(_) => each(value, way, |value, way| values(value, way, found)),
        value => found.push((way.clone(), value)),
    }
}

/// Adds the texts in a value, each with the way to it. The texts of a list are together.
pub(super) fn texts<'c>(
    value: &'c Value,
    way: &mut Vec<Step<&'c str>>,
    found: &mut Vec<(Vec<Step<&'c str>>, Vec<&'c str>)>,
) {
    match value {
        Value::String(text) => found.push((way.clone(), vec![text])),
        Value::Array(items) => {
            let of_list: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            found.extend(Some(of_list).filter(|texts| !texts.is_empty()).map(|texts| (way.clone(), texts)));
            each(value, way, |item, way| {
                if !item.is_string() {
                    texts(item, way, found);
                }
            });
        }
        value => each(value, way, |field, way| texts(field, way, found)),
    }
}

/// Visits each field or item of a value with the way to it.
fn each<'c>(value: &'c Value, way: &mut Vec<Step<&'c str>>, mut visit: impl FnMut(&'c Value, &mut Vec<Step<&'c str>>)) {
    let mut at = |step, value| {
        way.push(step);
        visit(value, way);
        way.pop();
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| at(Step::Key(key), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| at(Step::Index(index), item)),
        _ => {}
    }
}
