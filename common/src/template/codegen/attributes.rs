//! Code for `value.name` and `value['name']`.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use minijinja::Value;
use minijinja::machinery::Instruction;

use super::super::ast::Expr;
use super::super::error::CompileError;
use super::super::python::attribute::is_special;
use super::{Codegen, Frame};

/// The machine's own instruction keeps the name for as long as the process runs, so only so many names, and only short ones,
/// are given to it.
const MAX_NAMES: usize = 4096;
const MAX_NAME: usize = 64;

static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

/// The name, kept for good; nothing if there are too many.
fn keep(name: &str) -> Option<&'static str> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = names.get(name) {
        return Some(kept);
    }
    if names.len() >= MAX_NAMES || name.len() > MAX_NAME {
        return None;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    Some(kept)
}

impl Codegen {
    /// A name that is no attribute in Python means the same as an attribute and as an item.
    pub(super) fn named_item(
        &mut self,
        frame: Frame,
        operand: &Expr,
        name: &str,
        line: u32,
    ) -> Result<(), CompileError> {
        self.expr(frame, operand)?;
        self.at_line(line);
        match keep(name).filter(|_| !self.explains && !is_loop_counter(name)) {
            Some(name) => {
                self.add(Instruction::GetAttr(name));
                Ok(())
            }
            None => {
                self.constant(Value::from(name));
                self.op(".key", 2)
            }
        }
    }

    pub(super) fn attribute(
        &mut self,
        frame: Frame,
        operand: &Expr,
        name: &str,
        line: u32,
    ) -> Result<(), CompileError> {
        if !is_special(name) {
            return self.named_item(frame, operand, name, line);
        }
        self.expr(frame, operand)?;
        self.constant(Value::from(name));
        self.op_at(".", 2, line)
    }

    pub(super) fn item(&mut self, frame: Frame, operand: &Expr, index: &Expr, line: u32) -> Result<(), CompileError> {
        if let Some(name) = super::expressions::text_literal(index).filter(|name| !is_special(name)) {
            return self.named_item(frame, operand, name, line);
        }
        self.expr(frame, operand)?;
        self.expr(frame, index)?;
        self.op_at("[]", 2, line)
    }
}

/// What `loop` can only tell by running the loop's `if`.
fn is_loop_counter(name: &str) -> bool {
    matches!(name, "last" | "length" | "revindex" | "revindex0" | "nextitem")
}
