//! Numbers of several kinds in one buffer, so that they reach the device in one copy.

use tch::{Device, Kind, Tensor};

use crate::error::Error;

/// Parts start at multiples of this number of bytes, so that each can be viewed as its kind.
const ALIGNMENT: usize = 16;

/// Creates a value from numbers that are on the device.
pub(crate) type Later<T> = Box<dyn FnOnce(&Sent) -> Result<T, Error>>;

/// Numbers that are collected on the host.
#[derive(Debug, Default)]
pub struct Upload {
    bytes: Vec<u8>,
}

/// The place of a part in the buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    start: usize,
    count: usize,
    kind: Kind,
}

/// A number that can be uploaded.
pub(crate) trait Number: Copy {
    const KIND: Kind;
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($type:ty: $kind:ident),+) => {
        $(impl Number for $type {
            const KIND: Kind = Kind::$kind;

            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_ne_bytes());
            }
        })+
    };
}

numbers!(i32: Int, i64: Int64, f32: Float, f64: Double);

impl Upload {
    /// Adds numbers of one kind.
    pub(crate) fn add<T: Number>(&mut self, numbers: impl IntoIterator<Item = T>) -> Part {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.bytes.len();
        let numbers = numbers.into_iter();
        self.bytes.reserve(numbers.size_hint().0 * T::KIND.elt_size_in_bytes());
        numbers.for_each(|number| number.append(&mut self.bytes));
        Part { start, count: (self.bytes.len() - start) / T::KIND.elt_size_in_bytes(), kind: T::KIND }
    }

    /// Copies all numbers to the device. From pinned memory, the host does not wait for the copy, and
    /// libtorch reuses that memory after the copy only.
    pub(crate) fn send(self, device: Device) -> Result<Sent, Error> {
        let bytes = Tensor::f_from_slice(&self.bytes)?;
        if !device.is_cuda() {
            return Ok(Sent(bytes));
        }
        Ok(Sent(bytes.f_pin_memory(device)?.f_to_device_(device, Kind::Uint8, true, false)?))
    }
}

/// The numbers on the device.
#[derive(Debug)]
pub struct Sent(Tensor);

impl Sent {
    /// Returns a part, `[count]`. It is no copy.
    pub(crate) fn get(&self, part: Part) -> Result<Tensor, Error> {
        let bytes = part.count * part.kind.elt_size_in_bytes();
        Ok(self.0.f_narrow(0, part.start as i64, bytes as i64)?.f_view_dtype(part.kind)?)
    }

    /// Returns a part as a column, `[count, 1]`.
    pub(crate) fn column(&self, part: Part) -> Result<Tensor, Error> {
        Ok(self.get(part)?.f_unsqueeze(1)?)
    }
}
