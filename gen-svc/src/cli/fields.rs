//! The typed values of a JSON object. Errors name the key, or the element of a list.

use serde_json::{Map, Value};
use tandem_common::field::Path;
use tandem_core::error::RequestError;

/// The longest string that an error message quotes.
const MAX_QUOTED_BYTES: usize = 40;

/// The values of an object that are not read yet.
#[derive(Debug)]
pub(super) struct Fields {
    /// The path of the object. Empty for a request.
    path: Path,
    values: Map<String, Value>,
}

impl Fields {
    /// Creates the values of a request.
    pub(super) fn new(values: Map<String, Value>) -> Self {
        Self { path: Path::default(), values }
    }

    /// Creates the values of an object below a key of the request.
    pub(super) fn below(path: impl Into<Path>, values: Map<String, Value>) -> Self {
        Self { path: path.into(), values }
    }

    /// Returns true if the object has a value of this key. Null is treated as absent.
    pub(super) fn has(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| !value.is_null())
    }

    /// Returns the first key that is not one of these.
    pub(super) fn other_than(&self, known: &[&str]) -> Option<&str> {
        self.values.keys().map(String::as_str).find(|key| !known.contains(key))
    }

    /// Returns the path of a key.
    pub(super) fn path(&self, key: &str) -> Path {
        self.path.clone().key(key.to_owned())
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key).filter(|value| !value.is_null())
    }

    /// Takes a value that `read` accepts.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        read(&value).ok_or_else(|| wrong(self.path(key), kind, &value)).map(Some)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, RequestError> {
        self.read(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn float(&mut self, key: &str) -> Result<Option<f32>, RequestError> {
        self.read(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    pub(super) fn integer<T: TryFrom<u64>>(&mut self, key: &str) -> Result<Option<T>, RequestError> {
        let largest = if size_of::<T>() == 4 { u64::from(u32::MAX) } else { u64::MAX };
        self.read(key, &format!("an integer from 0 to {largest}"), |value| T::try_from(value.as_u64()?).ok())
    }

    pub(super) fn boolean(&mut self, key: &str) -> Result<Option<bool>, RequestError> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// Takes a list of token ids.
    pub(super) fn ids(&mut self, key: &str) -> Result<Option<Vec<u32>>, RequestError> {
        self.list(key, "a list of token ids", TOKEN_ID, |value| u32::try_from(value.as_u64()?).ok())
    }

    /// Takes a list of strings.
    pub(super) fn strings(&mut self, key: &str) -> Result<Vec<String>, RequestError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(self.list(key, "a list of strings", "a string", text)?.unwrap_or_default())
    }

    /// Takes a list of strings, or an object with the list as `values`, which is its form in the contract.
    pub(super) fn choice(&mut self, key: &str) -> Result<Vec<String>, RequestError> {
        if let Some(Value::Object(object)) = self.values.get_mut(key)
            && object.len() == 1
            && let Some(list) = object.remove("values")
        {
            self.values.insert(key.to_owned(), list);
        }
        self.strings(key)
    }

    /// Takes a string, or a list of strings.
    pub(super) fn string_or_strings(&mut self, key: &str) -> Result<Vec<String>, RequestError> {
        if let Some(Value::String(one)) = self.values.get(key) {
            let one = vec![one.clone()];
            self.values.remove(key);
            return Ok(one);
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(self.list(key, "a string or a list of strings", "a string", text)?.unwrap_or_default())
    }

    /// Takes a list of which `read` accepts every element.
    fn list<T>(
        &mut self,
        key: &str,
        kind: &str,
        element: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, RequestError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let path = self.path(key);
        let Value::Array(items) = &value else { return Err(wrong(path, kind, &value)) };
        let items = items.iter().enumerate();
        items
            .map(|(i, item)| read(item).ok_or_else(|| wrong(path.clone().index(i), element, item)))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// Takes an object of token ids and numbers.
    pub(super) fn bias(&mut self, key: &str) -> Result<Vec<(u32, f32)>, RequestError> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let path = self.path(key);
        let Value::Object(entries) = &value else {
            return Err(wrong(path, "an object of token ids and numbers", &value));
        };
        let entry = |(id, bias): (&String, &Value)| {
            let number = id.parse().ok().filter(|number: &u32| number.to_string() == *id);
            let number = number.ok_or_else(|| {
                RequestError::invalid(path.clone(), format!("must have token ids as keys, has {id:?}"))
            })?;
            let bias_of = bias.as_f64().ok_or_else(|| wrong(path.clone().index(number as usize), "a number", bias))?;
            Ok((number, bias_of as f32))
        };
        entries.iter().map(entry).collect()
    }

    /// Takes an object with these keys. An absent object has no values.
    pub(super) fn object(&mut self, key: &str, known: &[&str]) -> Result<Self, RequestError> {
        let value = self.take(key);
        nested(self.path(key), value.unwrap_or_else(|| Map::new().into()), known)
    }

    /// Takes a list of objects with these keys.
    pub(super) fn objects(&mut self, key: &str, known: &[&str]) -> Result<Vec<Self>, RequestError> {
        let items = self.list(key, "a list of objects", "an object", |value| Some(value.clone()))?.unwrap_or_default();
        let path = self.path(key);
        items.into_iter().enumerate().map(|(i, item)| nested(path.clone().index(i), item, known)).collect()
    }
}

/// Returns the values of an object with these keys.
fn nested(path: Path, value: Value, known: &[&str]) -> Result<Fields, RequestError> {
    let Value::Object(values) = value else { return Err(wrong(path, "an object", &value)) };
    let fields = Fields { path, values };
    match fields.other_than(known) {
        None => Ok(fields),
        Some(key) => {
            let problem = format!("is not a key of {} (keys: {})", fields.path, known.join(", "));
            Err(RequestError::invalid(fields.path(key), problem))
        }
    }
}

const TOKEN_ID: &str = "an integer from 0 to 4294967295";

fn wrong(path: Path, kind: &str, value: &Value) -> RequestError {
    RequestError::invalid(path, format!("must be {kind}, is {}", described(value)))
}

/// Returns a value for an error message: itself, or its type if it may be long.
fn described(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.len() > MAX_QUOTED_BYTES => "a string".into(),
        short => short.to_string(),
    }
}
