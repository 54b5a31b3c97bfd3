//! Lookup of an attribute by a path such as `user.name` or `items.0`.

use minijinja::Value;

use crate::error::Fallible;
use crate::interpreter::Interpreter;
use crate::python::attribute;
use crate::value::{PyValue, is_undefined, py_value};
use crate::{budget, taint};

/// Looks up an attribute by a path such as `user.name` or `items.0`.
pub(super) struct Path(Vec<Value>);

impl Path {
    /// Returns the path to the value itself.
    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    pub(super) fn parse(path: &Value) -> Fallible<Self> {
        Ok(Self(match py_value(path) {
            PyValue::None => Vec::new(),
            PyValue::Str(text) => taint::strip(text).split('.').map(part).collect::<Fallible<_>>()?,
            _ => vec![path.clone()],
        }))
    }

    pub(super) fn get(
        &self,
        interpreter: &mut dyn Interpreter,
        value: &Value,
        default: Option<&Value>,
    ) -> Fallible<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            budget::steps(1)?;
            value = attribute::item(interpreter, &value, part)?;
            if let Some(default) = default
                && is_undefined(&value)
            {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn part(part: &str) -> Fallible<Value> {
    budget::alloc(budget::VALUE_BYTES + part.len())?;
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    Ok(match part.parse::<i64>() {
        Ok(number) if is_number => Value::from(number),
        _ => Value::from(part),
    })
}
