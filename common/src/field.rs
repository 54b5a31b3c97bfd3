//! Paths of the fields of a request, as the `.proto` or a request's JSON spells them.

use std::borrow::Cow;
use std::fmt;

/// A step from a value to one within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step<K> {
    /// To the value of a key.
    Key(K),
    /// To an item of a list.
    Index(usize),
}

/// The steps from a value to one within it, in order.
pub type Steps<'s> = [Step<&'s str>];

/// The path of a field, such as `messages[2].content[0].text`. An empty path is that of the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<Step<Cow<'static, str>>>);

impl Path {
    /// Returns the path of an item of a list.
    #[must_use]
    pub fn item(list: &'static str, index: usize) -> Self {
        Self::default().key(list).index(index)
    }

    /// Returns the path of the value of a key at this path.
    #[must_use]
    pub fn key(mut self, key: impl Into<Cow<'static, str>>) -> Self {
        self.0.push(Step::Key(key.into()));
        self
    }

    /// Returns the path of an item of the list at this path.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }

    /// Returns the path of a value at this path: these steps lead to it.
    #[must_use]
    pub fn join(&self, steps: &Steps<'_>) -> Self {
        let mut joined = Vec::with_capacity(self.0.len() + steps.len());
        joined.extend_from_slice(&self.0);
        joined.extend(steps.iter().map(|step| match step {
            Step::Key(key) => Step::Key((*key).to_owned().into()),
            Step::Index(index) => Step::Index(*index),
        }));
        Self(joined)
    }

    /// Returns this path at another one.
    #[must_use]
    pub fn within(self, outer: impl Into<Self>) -> Self {
        let Self(mut steps) = outer.into();
        steps.extend(self.0);
        Self(steps)
    }

    /// Returns the steps, to match them.
    #[must_use]
    pub fn steps(&self) -> Vec<Step<&str>> {
        let steps = self.0.iter().map(|step| match step {
            Step::Key(key) => Step::Key(&**key),
            Step::Index(index) => Step::Index(*index),
        });
        steps.collect()
    }

    /// Returns true if it is the path of a value at another path, or that path.
    #[must_use]
    pub fn starts_with(&self, outer: &Self) -> bool {
        self.0.starts_with(&outer.0)
    }
}

/// The path of a value to which steps lead.
impl From<&Steps<'_>> for Path {
    fn from(steps: &Steps<'_>) -> Self {
        Self::default().join(steps)
    }
}

/// Reads a path as [`Path`] prints it.
impl From<&str> for Path {
    fn from(text: &str) -> Self {
        let mut path = Self::default();
        for step in text.split('.').filter(|step| !step.is_empty()) {
            let (key, indices) = step.split_at(step.find('[').unwrap_or(step.len()));
            let indices: Option<Vec<_>> = indices
                .split_inclusive(']')
                .map(|index| index.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
                .collect();
            match indices {
                Some(indices) => {
                    path = if key.is_empty() { path } else { path.key(key.to_owned()) };
                    path.0.extend(indices.into_iter().map(Step::Index));
                }
                None => path = path.key(step.to_owned()),
            }
        }
        path
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if number == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, Step};

    #[test]
    fn a_printed_path_is_read_again() {
        for text in ["", "model", "messages[2].content[0].text", "a[1][2].b", "tools[0", "a[x].b"] {
            assert_eq!(Path::from(text).to_string(), text);
        }
        assert_eq!(Path::from("a[1].b").steps(), [Step::Key("a"), Step::Index(1), Step::Key("b")]);
    }

    #[test]
    fn a_key_with_dots_is_one_step() {
        let path = Path::from("template_args").key("a.b[0]".to_owned());
        assert_eq!(path.steps().len(), 2);
        assert!(path.starts_with(&"template_args".into()) && !path.starts_with(&"template_args.a".into()));
    }
}
