//! `namespace()`: the one value that every template may change.
//!
//! Namespaces can contain each other in a circle, so the render keeps a list of all and empties
//! them at its end. So a chain of them is never dropped recursively.

use std::cell::RefCell;
use std::sync::Arc;

use minijinja::Value;
use parking_lot::{Mutex, MutexGuard};

use crate::budget;
use crate::error::{Fallible, fail};
use crate::taint;

// A value is created without access to the render, so the list is a thread-local.
thread_local! {
    static ALIVE: RefCell<Vec<Arc<Namespace>>> = const { RefCell::new(Vec::new()) };
}

/// A namespace's attributes, in insertion order.
#[derive(Debug)]
pub(crate) struct Namespace {
    attributes: Mutex<Vec<(Value, Value)>>,
}

impl Namespace {
    /// Creates a namespace that lives until [`Namespaces`] is dropped.
    pub(super) fn new(attributes: Vec<(Value, Value)>) -> Fallible<Arc<Self>> {
        budget::alloc_values(2 * attributes.len() + 4)?;
        budget::steps(CREATION_STEPS)?;
        for (name, _) in &attributes {
            check_name(name)?;
        }
        let namespace = Arc::new(Self { attributes: Mutex::new(attributes) });
        ALIVE.with_borrow_mut(|alive| alive.push(namespace.clone()));
        Ok(namespace)
    }

    pub(crate) fn get(&self, name: &str) -> Fallible<Option<Value>> {
        let attributes = self.lock();
        budget::steps(attributes.len() / 4)?;
        Ok(attributes
            .iter()
            .find(|(found, _)| found.as_str().is_some_and(|found| taint::same(found, name)))
            .map(|(_, value)| value.clone()))
    }

    pub(crate) fn set(&self, name: &Value, value: Value) -> Fallible<()> {
        check_name(name)?;
        let mut attributes = self.lock();
        budget::steps(attributes.len() / 4)?;
        let found = attributes
            .iter_mut()
            .find(|(found, _)| found.as_str().zip(name.as_str()).is_some_and(|(found, name)| taint::same(found, name)));
        let old = match found {
            Some((_, slot)) => Some(std::mem::replace(slot, value)),
            None => {
                budget::alloc_values(2)?;
                attributes.push((name.clone(), value));
                None
            }
        };
        drop(attributes);
        drop(old);
        Ok(())
    }

    /// Returns a copy of the attributes.
    pub(crate) fn attributes(&self) -> Vec<(Value, Value)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Value, Value)>> {
        self.attributes.lock()
    }
}

/// transformers refuses names that could give access to Python itself.
fn check_name(name: &Value) -> Fallible<()> {
    match name.as_str() {
        Some(text) if text.starts_with('_') => {
            Err(fail(format!("a namespace attribute may not start with an underscore, but '{text}' does")))
        }
        _ => Ok(()),
    }
}

/// Empties every namespace of a render when it ends.
#[derive(Debug)]
pub(crate) struct Namespaces(());

impl Namespaces {
    pub(crate) fn start() -> Self {
        Self(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let alive = ALIVE.take();
        for namespace in &alive {
            let attributes = std::mem::take(&mut *namespace.lock());
            drop(attributes);
        }
    }
}

/// The steps to create a namespace.
const CREATION_STEPS: usize = 20;
