//! A GGUF file whose metadata and tensors can be changed before it is written.

use std::collections::BTreeMap;

use crate::gguf_file::File;
use half::f16;

/// The type id of f16 tensors.
const HALF: u32 = 1;

/// A metadata value.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A string.
    Text(String),
    /// A whole number.
    U32(u32),
    /// A number.
    F32(f32),
    /// A flag.
    Bool(bool),
    /// Flags.
    Bools(Vec<bool>),
    /// Numbers.
    F32s(Vec<f32>),
    /// Whole numbers.
    I32s(Vec<i32>),
    /// Strings.
    Texts(Vec<String>),
}

/// A tensor: its dimensions, outermost first, and its values.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The values, row by row.
    pub values: Vec<f32>,
}

/// The contents of a GGUF file.
#[derive(Debug, Clone, Default)]
pub struct GgufModel {
    pub metadata: BTreeMap<String, Entry>,
    pub tensors: BTreeMap<String, Tensor>,
    /// True if tensors of several dimensions are written as f16.
    pub half: bool,
}

impl GgufModel {
    /// Returns a file of an architecture, without tensors.
    pub(super) fn of(architecture: &str) -> Self {
        let mut model = Self::default();
        model.set("general.architecture", Entry::Text(architecture.to_owned()));
        model
    }

    /// Sets a metadata value.
    pub fn set(&mut self, key: &str, entry: Entry) {
        self.metadata.insert(key.to_owned(), entry);
    }

    /// Returns the file's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let file = self.metadata.iter().fold(File::new(), |file, (key, entry)| entry.write(file, key));
        let add = |file, (name, tensor): (&String, &Tensor)| tensor.write(file, name, self.half);
        self.tensors.iter().fold(file, add).bytes()
    }
}

impl Entry {
    fn write(&self, file: File, key: &str) -> File {
        match self {
            Self::Text(text) => file.text(key, text),
            Self::U32(number) => file.u32(key, *number),
            Self::F32(number) => file.f32(key, *number),
            Self::Bool(flag) => file.bool(key, *flag),
            Self::Bools(flags) => file.bools(key, flags),
            Self::F32s(numbers) => file.f32s(key, numbers),
            Self::I32s(numbers) => file.i32s(key, numbers),
            Self::Texts(texts) => file.strings(key, &texts.iter().map(String::as_str).collect::<Vec<_>>()),
        }
    }
}

impl Tensor {
    /// Adds the tensor to a file, as f16 if it has several dimensions and `half` is set.
    fn write(&self, mut file: File, name: &str, half: bool) -> File {
        let dims: Vec<u64> = self.shape.iter().rev().map(|&dim| dim as u64).collect();
        if !half || self.shape.len() == 1 {
            return file.weights(name, &dims, |place| self.values[place as usize]);
        }
        let offset = file.data.len() as u64;
        file = file.tensor(name, &dims, HALF, offset);
        file.data.extend(self.values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()));
        file.data.resize(file.data.len().next_multiple_of(file.alignment), 0);
        file
    }

    /// Reorders rows so that row i + D/2 of each head of `head` = D rows follows row i.
    pub(super) fn interleaved(self, head: usize) -> Self {
        let columns = self.values.len() / self.shape[0];
        let source = |row: usize| row / head * head + row % head / 2 + row % 2 * (head / 2);
        let values = (0..self.shape[0]).flat_map(|row| &self.values[source(row) * columns..][..columns]).copied();
        Self { values: values.collect(), ..self }
    }

    /// Divides the tensor into `count` tensors along its first dimension.
    pub(super) fn rows(&self, count: usize) -> impl Iterator<Item = Self> {
        let shape = [&[self.shape[0] / count], &self.shape[1..]].concat();
        self.values
            .chunks(self.values.len() / count)
            .map(move |part| Self { shape: shape.clone(), values: part.to_vec() })
    }

    /// Divides the matrix of patches, `[C, 3, frames, side, side]`, into a matrix for each frame.
    pub(super) fn frames(&self) -> impl Iterator<Item = Self> {
        let [channels, colours, frames, side, _] = self.shape[..] else { panic!("a matrix of patches with frames") };
        let of_frame = move |frame: usize| {
            let values = self.values.chunks(side * side).skip(frame).step_by(frames).flatten().copied().collect();
            Self { shape: vec![channels, colours, side, side], values }
        };
        (0..frames).map(of_frame)
    }

    /// Rounds the values of a tensor of several dimensions to f16.
    pub fn round_to_half(&mut self) {
        if self.shape.len() > 1 {
            self.values.iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32());
        }
    }
}
