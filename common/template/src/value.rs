//! Python's values and data model: truth, length, iteration, equality and hashes.
//!
//! Scalars and texts are minijinja's own values; every other value is one [`PyObject`]. Values are
//! immutable, as in the sandbox of transformers; only namespaces, loops, generators and dicts under
//! `{% set d.key %}` have state. Every container records its nesting, which [`MAX_NESTING`] bounds.
//! That bounds the stack that printing, comparing and dropping a value need.
//!
//! The files from `bigint` to `undefined` hold data and do not import [`PyObject`]. `object` is
//! above them. `create`, `iterate`, `equal`, `keys` and `rounds` are above `object`.

mod bigint;
mod callable;
mod create;
mod dict;
mod equal;
mod generator;
mod items;
mod iterate;
mod keys;
mod looping;
mod namespace;
mod object;
mod range;
mod rounds;
mod sequence;
mod undefined;

pub(crate) use bigint::{BigInt, exact_int};
pub(crate) use callable::{Block, Builtin, ClosureCell, Counter, CounterKind, Macro, Method};
pub(crate) use create::{int_value, joined, list, none, safe_text, text, text_like, text_part, tuple};
pub(crate) use dict::{Dict, View, ViewKind};
pub(crate) use equal::{AS_DIGITS_STEPS, equal, hash, is_empty_tuple, is_same};
pub(crate) use generator::{Generator, GeneratorKind};
pub(crate) use items::Items;
pub(crate) use iterate::{iterate, to_vec};
pub(crate) use keys::KeySet;
pub(crate) use looping::Loop;
pub(crate) use namespace::{Namespace, Namespaces};
pub(crate) use object::{
    MAX_NESTING, PyObject, PyValue, as_digits, dict, is_iterable, is_undefined, length, object_name, py_object,
    py_value, seq, type_name,
};
pub(crate) use range::Range;
pub(crate) use sequence::{Seq, SeqKind};
pub(crate) use undefined::Undefined;
