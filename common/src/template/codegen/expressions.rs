//! Code for expressions: each leaves its value on the machine's stack.

use minijinja::Value;
use minijinja::machinery::Instruction;

use super::super::ast::{BinaryOp, CompareOp, Conditional, Const, Expr, ExprKind, UnaryOp};
use super::super::error::{CompileError, is_fatal};
use super::super::value::{Undefined, none};
use super::constants::{constant, constant_dict};
use super::{Codegen, Frame};

type Done = Result<(), CompileError>;

impl Codegen {
    pub(super) fn expr(&mut self, frame: Frame, expr: &Expr) -> Done {
        self.at_line(expr.line);
        if let Some(value) = constant(expr) {
            self.constant(value);
            return Ok(());
        }
        let around = self.folds;
        self.folds = around || !matches!(expr.kind, ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Dict(_));
        let done = self.computed(frame, expr);
        self.folds = around;
        done
    }

    fn computed(&mut self, frame: Frame, expr: &Expr) -> Done {
        match &expr.kind {
            // Constants without a value do not exist.
            ExprKind::Const(_) => Ok(()),
            ExprKind::Name(name) => self.load_name(frame, name),
            ExprKind::Tuple(items) => self.all(frame, items, "tuple", expr.line),
            ExprKind::List(items) => self.all(frame, items, "list", expr.line),
            ExprKind::Concat(items) => self.texts_and_others(frame, &items.iter().collect::<Vec<_>>(), "~", expr.line),
            ExprKind::Dict(entries) => self.dict(frame, entries, expr.line),
            ExprKind::Unary(op, operand) => self.unary(frame, *op, operand, expr.line),
            ExprKind::Binary(op, left, right) => self.binary(frame, *op, left, right, expr.line),
            ExprKind::And(left, right) => self.either(frame, left, right, Instruction::JumpIfFalseOrPop(!0)),
            ExprKind::Or(left, right) => self.either(frame, left, right, Instruction::JumpIfTrueOrPop(!0)),
            ExprKind::Compare(first, rest) => self.compare(frame, first, rest, expr.line),
            ExprKind::If(parts) => self.conditional(frame, parts, expr.line),
            ExprKind::Attribute(operand, name) => self.attribute(frame, operand, name, expr.line),
            ExprKind::Item(operand, index) => self.item(frame, operand, index, expr.line),
            ExprKind::Slice(operand, bounds) => self.slice(frame, operand, bounds, expr.line),
            ExprKind::Call(callee, args) => self.call(frame, callee, args, None, expr.line),
            ExprKind::Filter(operand, name, args) => self.filter(frame, operand.as_deref(), name, args, expr.line),
            ExprKind::Test(operand, name, args) => self.test(frame, operand, name, args, expr.line),
        }
    }

    /// An operation that belongs to this line, whatever lines its operands were on.
    pub(super) fn op_at(&mut self, name: &'static str, operands: usize, line: u32) -> Done {
        self.at_line(line);
        self.op(name, operands)
    }

    fn all(&mut self, frame: Frame, items: &[Expr], op: &'static str, line: u32) -> Done {
        items.iter().try_for_each(|item| self.expr(frame, item))?;
        self.op_at(op, items.len(), line)
    }

    fn dict(&mut self, frame: Frame, entries: &[(Expr, Expr)], line: u32) -> Done {
        // Jinja2 makes dicts of literals when it compiles, if something is computed from them.
        if self.folds
            && let Some(Err(error)) = constant_dict(entries)
            && !is_fatal(&error)
        {
            self.at_line(line);
            return self.fail(error.detail().unwrap_or_default().to_owned());
        }
        for (key, value) in entries {
            self.expr(frame, key)?;
            self.expr(frame, value)?;
        }
        self.op_at("dict", 2 * entries.len(), line)
    }

    fn unary(&mut self, frame: Frame, op: UnaryOp, operand: &Expr, line: u32) -> Done {
        self.expr(frame, operand)?;
        self.at_line(line);
        match op {
            UnaryOp::Not => {
                self.add(Instruction::Not);
                Ok(())
            }
            UnaryOp::Neg => self.op("neg", 1),
            UnaryOp::Pos => self.op("pos", 1),
        }
    }

    /// Long sums are one operation, so that the parts of a text are copied once; only where the order of evaluation
    /// cannot be told.
    fn binary(&mut self, frame: Frame, op: BinaryOp, left: &Expr, right: &Expr, line: u32) -> Done {
        if op == BinaryOp::Add && !left.has_call() && !right.has_call() {
            let mut summands = Vec::new();
            flatten_sum(left, &mut summands);
            summands.push(right);
            return self.texts_and_others(frame, &summands, "+", line);
        }
        self.expr(frame, left)?;
        self.expr(frame, right)?;
        self.op_at(binary_name(op), 2, line)
    }

    /// `+` or `~` over many values: texts of the template that follow each other become one.
    fn texts_and_others(&mut self, frame: Frame, items: &[&Expr], op: &'static str, line: u32) -> Done {
        let mut count = 0;
        let mut rest = items;
        while let Some((first, after)) = rest.split_first() {
            let texts: Vec<&str> = rest.iter().map_while(|item| text_literal(item)).collect();
            if texts.len() > 1 {
                self.constant(Value::from(texts.concat()));
                rest = &rest[texts.len()..];
            } else {
                self.expr(frame, first)?;
                rest = after;
            }
            count += 1;
        }
        if count == 1 && items.len() > 1 { Ok(()) } else { self.op_at(op, count, line) }
    }

    /// `and` and `or`: the right side is evaluated only if the left does not decide.
    fn either(&mut self, frame: Frame, left: &Expr, right: &Expr, decide: Instruction<'static>) -> Done {
        self.expr(frame, left)?;
        let decided = self.add(decide);
        self.expr(frame, right)?;
        self.land(decided);
        Ok(())
    }

    fn compare(&mut self, frame: Frame, first: &Expr, rest: &[(CompareOp, Expr)], line: u32) -> Done {
        self.expr(frame, first)?;
        let mut decided = Vec::new();
        for (at, (op, operand)) in rest.iter().enumerate() {
            self.expr(frame, operand)?;
            if at + 1 == rest.len() {
                let left = if at == 0 { first } else { &rest[at - 1].1 };
                self.last_comparison(*op, [left, operand], line)?;
                break;
            }
            // The operand is needed again as the left side of the next comparison.
            let again = self.scopes.hidden(self.function_id());
            self.add(Instruction::DupTop);
            self.store(again);
            self.op_at(compare_name(*op), 2, line)?;
            decided.push(self.add(Instruction::JumpIfFalseOrPop(!0)));
            let place = self.scopes.variable(again);
            self.load(place)?;
        }
        decided.into_iter().for_each(|jump| self.land(jump));
        Ok(())
    }

    /// A text is equal to no other type, so the machine's own comparison will do where one side is a text for certain.
    fn last_comparison(&mut self, op: CompareOp, sides: [&Expr; 2], line: u32) -> Done {
        let has_text = sides.iter().any(|side| matches!(side.kind, ExprKind::Const(Const::Str(_))));
        match op {
            CompareOp::Eq if has_text => self.add(Instruction::Eq),
            CompareOp::Ne if has_text => self.add(Instruction::Ne),
            _ => return self.op_at(compare_name(op), 2, line),
        };
        Ok(())
    }

    fn conditional(&mut self, frame: Frame, parts: &Conditional, line: u32) -> Done {
        let frame = frame.soft();
        self.expr(frame, &parts.test)?;
        let to_otherwise = self.add(Instruction::JumpIfFalse(!0));
        self.expr(frame, &parts.then)?;
        let to_end = self.add(Instruction::Jump(!0));
        self.land(to_otherwise);
        match &parts.otherwise {
            Some(otherwise) => self.expr(frame, otherwise)?,
            None => {
                let reason = format!("the inline if-expression on line {line} evaluated to false and has no else");
                self.constant(Undefined::because(reason));
            }
        }
        self.land(to_end);
        Ok(())
    }

    fn slice(&mut self, frame: Frame, operand: &Expr, bounds: &[Option<Expr>; 3], line: u32) -> Done {
        self.expr(frame, operand)?;
        for bound in bounds {
            match bound {
                Some(bound) => self.expr(frame, bound)?,
                None => {
                    self.constant(none());
                }
            }
        }
        self.op_at("[:]", 4, line)
    }
}

/// The operands of `a + b + c`, in order.
fn flatten_sum<'a>(expr: &'a Expr, summands: &mut Vec<&'a Expr>) {
    match &expr.kind {
        ExprKind::Binary(BinaryOp::Add, left, right) => {
            flatten_sum(left, summands);
            summands.push(right);
        }
        _ => summands.push(expr),
    }
}

pub(super) fn text_literal(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Const(Const::Str(text)) => Some(text),
        _ => None,
    }
}

fn binary_name(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::FloorDiv => "//",
        BinaryOp::Mod => "%",
        BinaryOp::Pow => "**",
    }
}

fn compare_name(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
        CompareOp::In => "in",
        CompareOp::NotIn => "not_in",
    }
}
