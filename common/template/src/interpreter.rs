//! The interface of the running template to filters, tests, operators and methods, and the types of
//! these functions.
//!
//! The machine runs templates and calls these functions; some of them call template code again, as
//! `map` and a loop's `if` do. The trait is the way back up, so that nothing below imports the
//! machine.

use minijinja::Value;

use crate::arguments::Args;
use crate::error::Fallible;

/// The running template.
pub(crate) trait Interpreter {
    /// Calls a macro, given as its value, with a value for each of its parameters.
    fn call(&mut self, callee: &Value, args: Vec<Value>) -> Fallible<Value>;

    /// Returns true if constants are computed at compile time. Jinja2 then yields undefined for a
    /// slice of a value that cannot be sliced.
    fn computes_constants(&self) -> bool;

    /// Returns true inside an `{% autoescape %}` block that is on.
    fn autoescapes(&self) -> bool;

    /// Returns the filter of this name.
    fn find_filter(&self, name: &str) -> Option<&'static FilterRow>;

    /// Returns the test of this name.
    fn find_test(&self, name: &str) -> Option<Predicate>;
}

/// A filter of Jinja2.
pub(crate) struct FilterRow {
    pub(crate) name: &'static str,
    pub(crate) run: Filter,
    /// Jinja2 passes the filter the template's context, so it is never computed at compile time.
    pub(crate) needs_context: bool,
}

/// A filter function: takes its operand and its arguments.
pub(crate) type Filter = fn(&mut dyn Interpreter, &Value, &Args<'_>) -> Fallible<Value>;
/// A test: takes its operand and its arguments.
pub(crate) type Test = fn(&mut dyn Interpreter, &Value, &Args<'_>) -> Fallible<bool>;
/// A test without arguments that depends on the value alone.
pub(crate) type Check = fn(&Value) -> bool;
/// An operator with one operand.
pub(crate) type Unary = fn(&Value) -> Fallible<Value>;
/// An operator with two operands.
pub(crate) type Binary = fn(&mut dyn Interpreter, &Value, &Value) -> Fallible<Value>;
/// A comparison.
pub(crate) type Comparison = fn(&Value, &Value) -> Fallible<bool>;

/// A test of a template, by its arguments.
#[derive(Clone, Copy)]
pub(crate) enum Predicate {
    /// Depends on the value alone.
    Check(Check),
    /// Takes arguments or the interpreter.
    Test(Test),
}

impl Predicate {
    /// Returns true if the value passes the test.
    pub(crate) fn holds(self, interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<bool> {
        match self {
            Self::Check(holds) => {
                args.check_none(value)?;
                Ok(holds(value))
            }
            Self::Test(test) => test(interpreter, value, args),
        }
    }
}
