//! The JSON form of requests and failures, with flat keys.

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::grammar::Grammar;
use crate::request::{GenerateRequest, Input, StopOptions};
use crate::sampling::SamplingOptions;
use crate::sampling::parameters::with_sampling_parameters;

/// Field paths of the protocol, and the flat keys that replace them. The first match is used.
const KEYS: &[(&str, &str)] =
    &[("sampling.", ""), ("stop.stop_strings", "stop"), ("stop.", ""), ("token_ids.ids", "token_ids")];

/// The longest string that an error message quotes.
const MAX_QUOTED_BYTES: usize = 40;

/// Reads a request.
///
/// # Errors
/// The text is not a JSON object, or it has an unknown key or a value of the wrong type.
pub(super) fn request(text: &[u8]) -> Result<GenerateRequest, Error> {
    let value: Value = serde_json::from_slice(text).map_err(|error| Error::Malformed { problem: error.to_string() })?;
    let Value::Object(object) = value else {
        return Err(Error::Malformed { problem: "must be a JSON object".into() });
    };
    let mut fields = Fields(object);
    let request = GenerateRequest {
        sampling: fields.sampling()?,
        stop: StopOptions {
            max_new_tokens: fields.integer("max_new_tokens")?,
            min_new_tokens: fields.integer("min_new_tokens")?.unwrap_or_default(),
            stop_strings: fields.strings("stop")?,
            stop_token_ids: fields.integers("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or_default(),
            include_stop: fields.boolean("include_stop")?.unwrap_or_default(),
        },
        grammar: fields.grammar()?,
        ..GenerateRequest::new(fields.input()?)
    };
    fields.end()?;
    Ok(request)
}

/// Returns the failure as `{"error": {code, reason, message, field?}}`.
pub(super) fn failure(error: &Error) -> Value {
    let mut failure = error.failure().to_json();
    if let Some(Value::String(field)) = failure.get_mut("field") {
        *field = flat(field);
    }
    json!({ "error": failure })
}

/// Returns the flat key of a field path.
fn flat(path: &str) -> String {
    let flat = KEYS.iter().find_map(|(nested, flat)| Some(format!("{flat}{}", path.strip_prefix(nested)?)));
    flat.unwrap_or_else(|| path.to_owned())
}

macro_rules! read_sampling {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $neutral:expr, $range:expr, $default:expr;)+) => {
        impl Fields {
            fn sampling(&mut self) -> Result<SamplingOptions, Error> {
                Ok(SamplingOptions {
                    $($name: <$type>::take(self, stringify!($name))?,)+
                    logit_bias: self.bias("logit_bias")?,
                    n: None,
                    seed: self.integer("seed")?,
                })
            }
        }
    };
}

with_sampling_parameters!(read_sampling);

/// The type of a sampling parameter.
trait Parameter: Sized {
    /// Reads the value of a key.
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, Error>;
}

impl Parameter for f32 {
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, Error> {
        fields.float(key)
    }
}

impl Parameter for u32 {
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, Error> {
        fields.integer(key)
    }
}

/// The fields that are not read yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// Takes the value of a key. Null is treated as absent.
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key).filter(|value| !value.is_null())
    }

    fn read<T>(&mut self, key: &str, kind: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let wrong = || Error::invalid(key, format!("must be {kind}, is {}", described(&value)));
        read(&value).ok_or_else(wrong).map(Some)
    }

    fn float(&mut self, key: &str) -> Result<Option<f32>, Error> {
        self.read(key, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    fn integer<T: TryFrom<u64>>(&mut self, key: &str) -> Result<Option<T>, Error> {
        let largest = if size_of::<T>() == 4 { u64::from(u32::MAX) } else { u64::MAX };
        self.read(key, &format!("an integer from 0 to {largest}"), |value| T::try_from(value.as_u64()?).ok())
    }

    fn boolean(&mut self, key: &str) -> Result<Option<bool>, Error> {
        self.read(key, "true or false", Value::as_bool)
    }

    fn integers(&mut self, key: &str) -> Result<Option<Vec<u32>>, Error> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        self.read(key, "a list of token ids", |value| value.as_array()?.iter().map(id).collect())
    }

    /// Reads an object of token ids and numbers.
    fn bias(&mut self, key: &str) -> Result<Vec<(u32, f32)>, Error> {
        let id = |text: &String| text.parse().ok().filter(|id: &u32| id.to_string() == *text);
        let entry = |(text, bias): (&String, &Value)| Some((id(text)?, bias.as_f64()? as f32));
        let read = |value: &Value| value.as_object()?.iter().map(entry).collect();
        Ok(self.read(key, "an object of token ids and numbers", read)?.unwrap_or_default())
    }

    /// Reads an object with one of `json_schema`, `regex`, `lark` and `choice`.
    fn grammar(&mut self) -> Result<Option<Grammar>, Error> {
        const KINDS: &str = "an object with json_schema, regex, lark or choice";
        self.read("grammar", KINDS, |value| {
            let (kind, value) = value.as_object().filter(|object| object.len() == 1)?.iter().next()?;
            let text = || value.as_str().map(str::to_owned);
            let list = || -> Option<Vec<String>> {
                value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            };
            match kind.as_str() {
                "json_schema" => Some(Grammar::JsonSchema(text().unwrap_or_else(|| value.to_string()))),
                "regex" => text().map(Grammar::Regex),
                "lark" => text().map(Grammar::Lark),
                "choice" => list().map(Grammar::Choice),
                _ => None,
            }
        })
    }

    fn strings(&mut self, key: &str) -> Result<Vec<String>, Error> {
        let strings = self.read(key, "a string or a list of strings", |value| match value {
            Value::String(one) => Some(vec![one.clone()]),
            Value::Array(list) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            _ => None,
        })?;
        Ok(strings.unwrap_or_default())
    }

    fn input(&mut self) -> Result<Input, Error> {
        let text = self.read("prompt", "a string", |value| value.as_str().map(str::to_owned))?;
        match (text, self.integers("token_ids")?) {
            (Some(text), None) => Ok(Input::Text(text)),
            (None, Some(ids)) => Ok(Input::TokenIds(ids)),
            (None, None) => Err(Error::invalid("prompt", "must be set, or token_ids")),
            (Some(_), Some(_)) => Err(Error::invalid("token_ids", "must not be set together with prompt")),
        }
    }

    /// Fails if a key is left, which is unknown then.
    fn end(self) -> Result<(), Error> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(Error::invalid(key, "is not a key of a request")),
        }
    }
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
