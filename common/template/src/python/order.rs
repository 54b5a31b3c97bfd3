//! `<`, `<=`, `>`, `>=` and sorting.

use std::cmp::Ordering;

use minijinja::Value;

use crate::error::{Fallible, fail};
use crate::python::contains::view_contains;
use crate::value::{
    AS_DIGITS_STEPS, PyObject, PyValue, View, ViewKind, as_digits, equal, exact_int, py_object, py_value, type_name,
};
use crate::{budget, taint};

/// Returns the result of Python's `left op right`. `op` is one of the four comparison operators.
pub(crate) fn compare(left: &Value, right: &Value, op: &str) -> Fallible<bool> {
    if let (Some(PyObject::View(left)), Some(PyObject::View(right))) = (py_object(left), py_object(right))
        && left.kind() != ViewKind::Values
        && right.kind() != ViewKind::Values
    {
        return compare_sets(left, right, op);
    }
    let Some(ordering) = ordering(left, right, op)? else {
        return Ok(false);
    };
    Ok(match op {
        "<" => ordering.is_lt(),
        "<=" => ordering.is_le(),
        ">" => ordering.is_gt(),
        _ => ordering.is_ge(),
    })
}

/// Compares views of keys or items as sets: a subset is less.
fn compare_sets(left: &View, right: &View, op: &str) -> Fallible<bool> {
    let (inner, outer) = if op.starts_with('<') { (left, right) } else { (right, left) };
    let (fewer, as_many) = (inner.dict().len() < outer.dict().len(), inner.dict().len() == outer.dict().len());
    if !fewer && (op.len() == 1 || !as_many) {
        return Ok(false);
    }
    for at in 0..inner.dict().len() {
        budget::steps(1)?;
        if let Some(item) = inner.item(at)
            && !view_contains(outer, &item?)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares two values. Returns None for NaN. Fails if the types cannot be compared.
fn ordering(left: &Value, right: &Value, op: &str) -> Fallible<Option<Ordering>> {
    match (py_value(left), py_value(right)) {
        (PyValue::Int(left), PyValue::Int(right)) => Ok(Some(left.cmp(&right))),
        (PyValue::Str(left), PyValue::Str(right)) => {
            budget::scan(left.len().min(right.len()))?;
            Ok(Some(taint::order(left, right)))
        }
        (PyValue::Undefined(undefined), _) | (_, PyValue::Undefined(undefined)) => Err(undefined.error()),
        (PyValue::Object(PyObject::Seq(left_seq)), PyValue::Object(PyObject::Seq(right_seq)))
            if left_seq.is_list() == right_seq.is_list() =>
        {
            compare_items(left_seq.items(), right_seq.items(), op)
        }
        _ => {
            budget::steps(AS_DIGITS_STEPS)?;
            compare_numbers(left, right).unwrap_or_else(|| {
                let (left, right) = (type_name(left), type_name(right));
                Err(fail(format!("'{op}' not supported between instances of '{left}' and '{right}'")))
            })
        }
    }
}

fn compare_items(left: &[Value], right: &[Value], op: &str) -> Fallible<Option<Ordering>> {
    for (left, right) in left.iter().zip(right) {
        budget::steps(2)?;
        if !equal(left, right)? {
            return ordering(left, right, op);
        }
    }
    Ok(Some(left.len().cmp(&right.len())))
}

fn compare_numbers(left: &Value, right: &Value) -> Option<Fallible<Option<Ordering>>> {
    let ordering = match (as_digits(left), as_digits(right), py_value(left), py_value(right)) {
        (Some(left), Some(right), ..) => Some(left.cmp(&right)),
        (None, None, PyValue::Float(left), PyValue::Float(right)) => left.partial_cmp(&right),
        (Some(left), None, _, PyValue::Float(right)) => compare_int_to_float(&left, right),
        (None, Some(right), PyValue::Float(left), _) => compare_int_to_float(&right, left).map(Ordering::reverse),
        _ => return None,
    };
    Some(Ok(ordering))
}

fn compare_int_to_float(int: &num_bigint::BigInt, float: f64) -> Option<Ordering> {
    if float.is_infinite() {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = exact_int(float.floor())?;
    let ordering = int.cmp(&whole);
    // If the integer equals the float's whole part, a float with a fraction is greater.
    Some(if ordering == Ordering::Equal && float.fract() != 0.0 { Ordering::Less } else { ordering })
}

/// Sorts pairs of key and item, as Python's stable `sorted(items, key=..., reverse=...)`. Returns
/// the items.
pub(crate) fn sort(mut items: Vec<(Value, Value)>, reverse: bool) -> Fallible<Vec<Value>> {
    // Like Python, sorts the reversed list and reverses the result, so that equal items keep their
    // order.
    if reverse {
        items.reverse();
    }
    // The items exist twice while they are merged.
    let held = 4 * items.len();
    budget::alloc_values(held)?;
    let mut width = 1;
    while width < items.len() {
        items = merge_runs(&items, width)?;
        width *= 2;
    }
    if reverse {
        items.reverse();
    }
    budget::free_values(held);
    Ok(items.into_iter().map(|(_, item)| item).collect())
}

/// Merges adjacent sorted runs of `width` items. The standard sort cannot be used: a comparison may
/// fail, and NaN has no order.
fn merge_runs(items: &[(Value, Value)], width: usize) -> Fallible<Vec<(Value, Value)>> {
    let mut merged = Vec::with_capacity(items.len());
    for pair in items.chunks(2 * width) {
        let (left, right) = pair.split_at(width.min(pair.len()));
        merge(left, right, &mut merged)?;
    }
    Ok(merged)
}

fn merge(mut left: &[(Value, Value)], mut right: &[(Value, Value)], out: &mut Vec<(Value, Value)>) -> Fallible<()> {
    while let (Some((first_left, rest_left)), Some((first_right, rest_right))) =
        (left.split_first(), right.split_first())
    {
        budget::steps(3)?;
        if compare(&first_right.0, &first_left.0, "<")? {
            out.push(first_right.clone());
            right = rest_right;
        } else {
            out.push(first_left.clone());
            left = rest_left;
        }
    }
    out.extend_from_slice(left);
    out.extend_from_slice(right);
    Ok(())
}
