//! Models in several GGUF files, `NAME-00001-of-00002.gguf` and so on, as llama.cpp's `gguf-split`
//! writes them. The first file has the metadata. Each has a part of the tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::GgufError;
use super::limits::MAX_TENSORS;
use super::value::{Value, find};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The digits of a number in a file's name.
const DIGITS: usize = 5;

/// The name of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartName {
    /// The model's name.
    pub(crate) model: String,
    /// The number of the part, from 1.
    pub(crate) number: u32,
    /// The number of parts.
    pub(crate) count: u32,
}

/// The statement of a file about the parts of its model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared {
    /// From 0.
    number: u32,
    /// At least 2.
    pub(super) count: u32,
    /// The tensors of all parts.
    tensors: u32,
}

impl PartName {
    /// Reads the name of a file. Returns None if it is not that of a part.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let stem = path.file_stem()?.to_str()?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (model, number) = rest.rsplit_once('-')?;
        let name = Self { model: model.to_owned(), number: digits(number)?, count: digits(count)? };
        (1..=name.count).contains(&name.number).then_some(name)
    }

    /// Returns the path of another part of the model of which `path` is a part.
    pub(crate) fn part(&self, path: &Path, number: u32) -> PathBuf {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{}-{number:05}-of-{:05}.{extension}", self.model, self.count))
    }
}

fn digits(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Declared {
    /// Reads the keys of a file. Returns None if the file is the whole model.
    ///
    /// # Errors
    /// A key is missing or has another type, or there are too many tensors.
    pub(super) fn read(metadata: &HashMap<String, Value>) -> Result<Option<Self>, GgufError> {
        let Some(count @ 2..) = find::<u32>(metadata, COUNT)? else { return Ok(None) };
        let required = |key: &str| find(metadata, key)?.ok_or_else(|| GgufError::Missing { key: key.to_owned() });
        let declared = Self { number: required(NUMBER)?, count, tensors: required(TENSORS)? };
        if u64::from(declared.tensors) > MAX_TENSORS {
            let found = declared.tensors.into();
            return Err(GgufError::Limit { part: TENSORS.to_owned(), what: "tensors", found, limit: MAX_TENSORS });
        }
        Ok(Some(declared))
    }

    /// Returns the name of the file at `path`.
    ///
    /// # Errors
    /// It is not the name of the part that the file states to be.
    pub(super) fn name(&self, path: &Path) -> Result<PartName, GgufError> {
        let number = u64::from(self.number) + 1;
        let is_right = |name: &PartName| u64::from(name.number) == number && name.count == self.count;
        let wrong = || GgufError::PartName { file: path.to_owned(), number, count: self.count };
        PartName::of(path).filter(is_right).ok_or_else(wrong)
    }

    /// Fails if another file, with the keys `other`, is not part `number` of this model.
    ///
    /// # Errors
    /// The file states something else.
    pub(super) fn check(&self, file: &Path, other: Option<Self>, number: u32) -> Result<(), GgufError> {
        let wrong = |key, found: Option<u32>, expected| {
            let found = found.map_or_else(|| "absent".to_owned(), |found| found.to_string());
            Err(GgufError::OtherSplit { file: file.to_owned(), key, found, expected })
        };
        let of = |value: fn(Self) -> u32| other.map(value);
        match other {
            Some(other) if other.count == self.count && other.tensors == self.tensors && other.number == number - 1 => {
                Ok(())
            }
            Some(other) if other.count == self.count && other.tensors == self.tensors => {
                wrong(NUMBER, Some(other.number), number - 1)
            }
            Some(other) if other.count == self.count => wrong(TENSORS, Some(other.tensors), self.tensors),
            _ => wrong(COUNT, of(|other| other.count), self.count),
        }
    }

    /// Fails if the first parts of the model in `file` have more tensors than stated.
    ///
    /// # Errors
    /// They have.
    pub(super) fn check_most(&self, file: &Path, found: usize) -> Result<(), GgufError> {
        if found > self.tensors as usize { self.check_tensors(file, found) } else { Ok(()) }
    }

    /// Fails if the parts of the model in `file` have another number of tensors than stated.
    ///
    /// # Errors
    /// They have.
    pub(super) fn check_tensors(&self, file: &Path, found: usize) -> Result<(), GgufError> {
        if found == self.tensors as usize {
            return Ok(());
        }
        Err(GgufError::PartTensors { file: file.to_owned(), found, expected: self.tensors })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::PartName;

    #[test]
    fn a_part_has_its_number_and_the_count_in_five_digits_each() {
        let name = PartName::of(Path::new("/models/a-b-00002-of-00003.gguf")).expect("a part");
        assert_eq!(name, PartName { model: "a-b".to_owned(), number: 2, count: 3 });
        assert_eq!(
            name.part(Path::new("/models/a-b-00002-of-00003.GGUF"), 1),
            Path::new("/models/a-b-00001-of-00003.GGUF")
        );
        for name in
            ["a.gguf", "a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-1-of-2.gguf", "a-+0001-of-00002.gguf"]
        {
            assert_eq!(PartName::of(Path::new(name)), None, "{name}");
        }
    }
}
