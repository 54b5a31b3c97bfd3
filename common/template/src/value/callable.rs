//! Values that can be called: macros, bound methods and global functions; and the objects that some
//! of them create.

use std::sync::Arc;

use minijinja::Value;
use parking_lot::{Mutex, MutexGuard};

use crate::program::{Function, MacroSpec};

/// A macro, a `caller` or a recursive loop.
#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) function: Arc<Function>,
    /// The shared variables of the surrounding function, in the order of [`Function::shared`].
    pub(crate) shared: Vec<Arc<ClosureCell>>,
}

impl Macro {
    pub(crate) fn spec(&self) -> &MacroSpec {
        &self.function.spec
    }
}

/// A variable that several functions share, as in Python's closures: each sees the assignments of
/// the others.
#[derive(Debug)]
pub(crate) struct ClosureCell(Mutex<Value>);

impl ClosureCell {
    pub(crate) fn new(value: Value) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn get(&self) -> Value {
        self.lock().clone()
    }

    /// Sets the value and returns the old one.
    pub(crate) fn replace(&self, value: Value) -> Value {
        std::mem::replace(&mut *self.lock(), value)
    }

    fn lock(&self) -> MutexGuard<'_, Value> {
        self.0.lock()
    }
}

/// A block of the template, as `self.name` returns it.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) name: Value,
    /// A macro without parameters.
    pub(crate) function: Value,
}

/// A method, bound to its receiver.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) receiver: Value,
    pub(crate) name: &'static str,
}

/// The global functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    Range,
    Dict,
    Namespace,
    RaiseException,
    StrftimeNow,
    Cycler,
    Joiner,
    Lipsum,
}

impl Builtin {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Dict => "TemplateDict",
            Self::Namespace | Self::Cycler | Self::Joiner => "type",
            Self::Range | Self::RaiseException | Self::StrftimeNow | Self::Lipsum => "function",
        }
    }
}

/// The object of `cycler(...)` or `joiner(...)`: values and a position.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) kind: CounterKind,
    pub(super) values: Vec<Value>,
    pub(super) nesting: u16,
    pub(super) at: Mutex<usize>,
}

/// The kind of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterKind {
    Cycler,
    Joiner,
}

impl Counter {
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            CounterKind::Cycler => "Cycler",
            CounterKind::Joiner => "Joiner",
        }
    }

    pub(super) fn nesting(&self) -> u16 {
        self.nesting
    }

    /// Returns the value at the position.
    pub(crate) fn current(&self) -> Value {
        self.values.get(*self.lock()).cloned().unwrap_or_default()
    }

    /// Returns the value at the position and advances, in a circle.
    pub(crate) fn advance(&self) -> Value {
        let mut at = self.lock();
        let value = self.values.get(*at).cloned().unwrap_or_default();
        *at = (*at + 1) % self.values.len().max(1);
        value
    }

    /// Returns an empty text the first time, then always the one value.
    pub(crate) fn join(&self) -> Value {
        let mut used = self.lock();
        if *used == 0 {
            *used = 1;
            return Value::from("");
        }
        self.values.first().cloned().unwrap_or_default()
    }

    pub(crate) fn reset(&self) {
        *self.lock() = 0;
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.at.lock()
    }
}
