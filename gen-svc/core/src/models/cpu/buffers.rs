//! Memory of intermediate results. Later layers and steps use it again: zeroed memory for each result would take
//! several percent of the time of a prompt.

use std::ops::{Deref, DerefMut};

/// Memory that no result uses.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Vec<Vec<f32>>,
}

/// Numbers of an intermediate result. Their content is unspecified until they are written.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<f32>,
    length: usize,
}

impl Buffers {
    /// Returns a buffer of this length, in the smallest memory that has room for it.
    pub(super) fn take(&mut self, length: usize) -> Buffer {
        let fitting = self.free.iter().enumerate().filter(|(_, memory)| memory.len() >= length);
        let smallest = fitting.min_by_key(|(_, memory)| memory.len()).map(|(index, _)| index);
        let memory = match smallest {
            Some(index) => self.free.swap_remove(index),
            None => {
                // Smaller memory is freed, so that a longer step does not keep both.
                self.free.pop();
                vec![0.0; length]
            }
        };
        Buffer { memory, length }
    }

    /// Takes back the memory of a result.
    pub(super) fn give(&mut self, buffer: Buffer) {
        self.free.push(buffer.memory);
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[..self.length]
    }
}
