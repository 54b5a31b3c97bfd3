//! Expressions, loosest binding first.

use super::Parser;
use crate::ast::{Args, BinaryOp, CompareOp, Conditional, Const, Expr, ExprKind, UnaryOp};
use crate::error::CompileError;
use crate::lexer::TokenKind;

type Parsed = Result<Expr, CompileError>;

impl Parser {
    pub(super) fn expression(&mut self) -> Parsed {
        self.nested(Self::conditional)
    }

    /// Parses an expression, or a tuple without parentheses.
    pub(super) fn tuple(&mut self, with_conditional: bool) -> Parsed {
        self.tuple_of(false, |parser| if with_conditional { parser.expression() } else { parser.nested(Self::or) })
    }

    fn tuple_of(&mut self, in_parentheses: bool, mut item: impl FnMut(&mut Self) -> Parsed) -> Parsed {
        let mut line = self.line();
        let mut items = Vec::new();
        let mut is_tuple = false;
        loop {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.at_tuple_end() {
                break;
            }
            items.push(item(self)?);
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
            line = self.line();
        }
        if !is_tuple {
            if let Some(only) = items.pop() {
                return Ok(only);
            }
            if !in_parentheses {
                return self.expected("an expression");
            }
        }
        self.node(line, ExprKind::Tuple(items))
    }

    /// No word ends a tuple: after a comma, the `in` and `recursive` of a loop are names.
    pub(super) fn at_tuple_end(&self) -> bool {
        matches!(self.current.kind, TokenKind::VariableEnd | TokenKind::BlockEnd | TokenKind::Op(")"))
    }

    fn conditional(&mut self) -> Parsed {
        let mut line = self.line();
        let mut expr = self.or()?;
        while self.skip_name("if") {
            let test = self.or()?;
            let otherwise = if self.skip_name("else") { Some(self.nested(Self::conditional)?) } else { None };
            expr = self.node(line, ExprKind::If(Box::new(Conditional { test, then: expr, otherwise })))?;
            line = self.line();
        }
        Ok(expr)
    }

    fn or(&mut self) -> Parsed {
        let mut line = self.line();
        let mut left = self.and()?;
        while self.skip_name("or") {
            let right = self.and()?;
            left = self.node(line, ExprKind::Or(Box::new(left), Box::new(right)))?;
            line = self.line();
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed {
        let mut line = self.line();
        let mut left = self.not()?;
        while self.skip_name("and") {
            let right = self.not()?;
            left = self.node(line, ExprKind::And(Box::new(left), Box::new(right)))?;
            line = self.line();
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed {
        let line = self.line();
        if !self.skip_name("not") {
            return self.compare();
        }
        let operand = self.nested(Self::not)?;
        self.node(line, ExprKind::Unary(UnaryOp::Not, Box::new(operand)))
    }

    fn compare(&mut self) -> Parsed {
        let mut line = self.line();
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(op) = self.compare_op() {
            rest.push((op, self.sum()?));
            line = self.line();
        }
        if rest.is_empty() {
            return Ok(first);
        }
        self.node(line, ExprKind::Compare(Box::new(first), rest))
    }

    fn compare_op(&mut self) -> Option<CompareOp> {
        let op = match &self.current.kind {
            TokenKind::Op("==") => CompareOp::Eq,
            TokenKind::Op("!=") => CompareOp::Ne,
            TokenKind::Op("<") => CompareOp::Lt,
            TokenKind::Op("<=") => CompareOp::Le,
            TokenKind::Op(">") => CompareOp::Gt,
            TokenKind::Op(">=") => CompareOp::Ge,
            TokenKind::Name(name) if name == "in" => CompareOp::In,
            TokenKind::Name(name) if name == "not" && self.next_is_name("in") => {
                self.take();
                CompareOp::NotIn
            }
            _ => return None,
        };
        self.take();
        Some(op)
    }

    fn sum(&mut self) -> Parsed {
        self.left_associative(Self::concat, |op| match op {
            "+" => Some(BinaryOp::Add),
            "-" => Some(BinaryOp::Sub),
            _ => None,
        })
    }

    fn concat(&mut self) -> Parsed {
        let line = self.line();
        let mut items = vec![self.product()?];
        while self.skip_op("~") {
            items.push(self.product()?);
        }
        match items.pop() {
            Some(only) if items.is_empty() => Ok(only),
            last => {
                items.extend(last);
                self.node(line, ExprKind::Concat(items))
            }
        }
    }

    fn product(&mut self) -> Parsed {
        self.left_associative(Self::power, |op| match op {
            "*" => Some(BinaryOp::Mul),
            "/" => Some(BinaryOp::Div),
            "//" => Some(BinaryOp::FloorDiv),
            "%" => Some(BinaryOp::Mod),
            _ => None,
        })
    }

    /// Unlike in Python, this operator groups from the left in Jinja2.
    fn power(&mut self) -> Parsed {
        self.left_associative(|parser| parser.unary(true), |op| (op == "**").then_some(BinaryOp::Pow))
    }

    fn left_associative(
        &mut self,
        operand: impl Fn(&mut Self) -> Parsed,
        operator: impl Fn(&str) -> Option<BinaryOp>,
    ) -> Parsed {
        let mut line = self.line();
        let mut left = operand(self)?;
        while let TokenKind::Op(op) = self.current.kind
            && let Some(op) = operator(op)
        {
            self.take();
            let right = operand(self)?;
            left = self.node(line, ExprKind::Binary(op, Box::new(left), Box::new(right)))?;
            line = self.line();
        }
        Ok(left)
    }

    fn unary(&mut self, with_filter: bool) -> Parsed {
        let line = self.line();
        let op = match self.current.kind {
            TokenKind::Op("-") => Some(UnaryOp::Neg),
            TokenKind::Op("+") => Some(UnaryOp::Pos),
            _ => None,
        };
        let operand = match op {
            Some(op) => {
                self.take();
                let operand = self.nested(|parser| parser.unary(false))?;
                self.node(line, ExprKind::Unary(op, Box::new(operand)))?
            }
            None => self.primary()?,
        };
        let operand = self.postfix(operand)?;
        if with_filter { self.filters_and_tests(operand) } else { Ok(operand) }
    }

    pub(super) fn primary(&mut self) -> Parsed {
        let line = self.line();
        let kind = match &mut self.current.kind {
            TokenKind::Op("(") => return self.parenthesized(),
            TokenKind::Op("[") => ExprKind::List(self.list()?),
            TokenKind::Op("{") => ExprKind::Dict(self.dict()?),
            TokenKind::Name(name) => {
                let name = std::mem::take(name);
                self.take();
                constant(&name).map_or_else(|| ExprKind::Name(name.into()), ExprKind::Const)
            }
            TokenKind::Number(number) => {
                let number = std::mem::replace(number, Const::None);
                self.take();
                ExprKind::Const(number)
            }
            TokenKind::Str(_) => ExprKind::Const(Const::Str(self.strings())),
            other => {
                let found = other.describe();
                return self.fail(format!("unexpected '{found}'"));
            }
        };
        self.node(line, kind)
    }

    /// Parses adjacent strings, which are joined.
    fn strings(&mut self) -> String {
        let mut all = String::new();
        while let TokenKind::Str(text) = &self.current.kind {
            all.push_str(text);
            self.take();
        }
        all
    }

    fn parenthesized(&mut self) -> Parsed {
        self.take();
        let expr = self.tuple_of(true, Self::expression)?;
        self.expect_op(")")?;
        Ok(expr)
    }

    fn list(&mut self) -> Result<Vec<Expr>, CompileError> {
        self.take();
        let mut items = Vec::new();
        while !self.is_op("]") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("]") {
                break;
            }
            items.push(self.expression()?);
        }
        self.take();
        Ok(items)
    }

    fn dict(&mut self) -> Result<Vec<(Expr, Expr)>, CompileError> {
        self.take();
        let mut items = Vec::new();
        while !self.is_op("}") {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op("}") {
                break;
            }
            let key = self.expression()?;
            self.expect_op(":")?;
            items.push((key, self.expression()?));
        }
        self.take();
        Ok(items)
    }

    pub(super) fn postfix(&mut self, mut expr: Expr) -> Parsed {
        loop {
            expr = match self.current.kind {
                TokenKind::Op(".") => self.attribute(expr)?,
                TokenKind::Op("[") => self.subscript(expr)?,
                TokenKind::Op("(") => self.call(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn filters_and_tests(&mut self, mut expr: Expr) -> Parsed {
        loop {
            expr = match &self.current.kind {
                TokenKind::Op("|") => self.filter(Some(expr))?,
                TokenKind::Op("(") => self.call(expr)?,
                TokenKind::Name(name) if name == "is" => self.test(expr)?,
                _ => return Ok(expr),
            };
        }
    }

    fn call(&mut self, callee: Expr) -> Parsed {
        let line = self.line();
        let args = self.args()?;
        self.node(line, ExprKind::Call(Box::new(callee), args))
    }

    fn attribute(&mut self, expr: Expr) -> Parsed {
        let line = self.line();
        self.take();
        match &mut self.current.kind {
            TokenKind::Name(name) => {
                let name = std::mem::take(name).into();
                self.take();
                self.node(line, ExprKind::Attribute(Box::new(expr), name))
            }
            TokenKind::Number(Const::Int(_) | Const::BigInt(_)) => {
                let index = self.primary()?;
                self.node(line, ExprKind::Item(Box::new(expr), Box::new(index)))
            }
            _ => self.fail("expected name or number"),
        }
    }

    fn subscript(&mut self, expr: Expr) -> Parsed {
        let line = self.line();
        self.take();
        let mut indexes = Vec::new();
        let mut slice = None;
        while !self.is_op("]") {
            if !indexes.is_empty() || slice.is_some() {
                self.expect_op(",")?;
            }
            match self.slice()? {
                Slice::Index(index) if slice.is_none() => indexes.push(index),
                Slice::Bounds(bounds) if slice.is_none() && indexes.is_empty() => slice = Some(bounds),
                _ => return self.fail("a slice cannot be part of a tuple"),
            }
        }
        self.take();
        if let Some(bounds) = slice {
            return self.node(line, ExprKind::Slice(Box::new(expr), bounds));
        }
        let index = match indexes.pop() {
            Some(only) if indexes.is_empty() => only,
            last => {
                indexes.extend(last);
                self.node(line, ExprKind::Tuple(indexes))?
            }
        };
        self.node(line, ExprKind::Item(Box::new(expr), Box::new(index)))
    }

    fn slice(&mut self) -> Result<Slice, CompileError> {
        let start = if self.is_op(":") { None } else { Some(self.expression()?) };
        if !self.skip_op(":") {
            return match start {
                Some(index) => Ok(Slice::Index(index)),
                None => self.expected("':'"),
            };
        }
        let stop = self.slice_bound(&[":", "]", ","])?;
        let step = if self.skip_op(":") { self.slice_bound(&["]", ","])? } else { None };
        Ok(Slice::Bounds(Box::new([start, stop, step])))
    }

    fn slice_bound(&mut self, ends: &[&str]) -> Result<Option<Expr>, CompileError> {
        if ends.iter().any(|end| self.is_op(end)) { Ok(None) } else { self.expression().map(Some) }
    }

    fn args(&mut self) -> Result<Args, CompileError> {
        self.take();
        let mut args = Args::default();
        let mut first = true;
        while !self.is_op(")") {
            if !first {
                self.expect_op(",")?;
                if self.is_op(")") {
                    break;
                }
            }
            first = false;
            self.arg(&mut args)?;
        }
        self.take();
        Ok(args)
    }

    fn arg(&mut self, args: &mut Args) -> Result<(), CompileError> {
        let allowed = if self.skip_op("*") {
            let allowed = args.splat.is_none() && args.keyword_splat.is_none();
            args.splat = Some(Box::new(self.expression()?));
            allowed
        } else if self.skip_op("**") {
            let allowed = args.keyword_splat.is_none();
            args.keyword_splat = Some(Box::new(self.expression()?));
            allowed
        } else if matches!(self.current.kind, TokenKind::Name(_)) && self.next_is_op("=") {
            self.keyword(args)?
        } else {
            let allowed = args.splat.is_none() && args.keyword_splat.is_none() && args.keywords.is_empty();
            args.positional.push(self.expression()?);
            allowed
        };
        if allowed { Ok(()) } else { self.fail("invalid syntax for function call expression") }
    }

    fn keyword(&mut self, args: &mut Args) -> Result<bool, CompileError> {
        let name = self.expect_name()?;
        self.take();
        if args.keywords.iter().any(|(other, _)| **other == *name) {
            return self.fail(format!("keyword argument repeated: {name}"));
        }
        let value = self.expression()?;
        args.keywords.push((name.into(), value));
        Ok(args.keyword_splat.is_none())
    }

    /// Parses a chain of filters.
    pub(super) fn filter(&mut self, operand: Option<Expr>) -> Parsed {
        self.take();
        self.filter_name(operand)
    }

    /// Parses a filter behind its `|`, or one that has none.
    pub(super) fn filter_name(&mut self, operand: Option<Expr>) -> Parsed {
        let line = self.line();
        let name = self.dotted_name()?;
        let args = if self.is_op("(") { self.args()? } else { Args::default() };
        self.node(line, ExprKind::Filter(operand.map(Box::new), name.into(), args))
    }

    fn dotted_name(&mut self) -> Result<String, CompileError> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name)
    }

    fn test(&mut self, operand: Expr) -> Parsed {
        let line = self.line();
        self.take();
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let args = self.test_args()?;
        let test = self.node(line, ExprKind::Test(Box::new(operand), name.into(), args))?;
        if negated { self.node(line, ExprKind::Unary(UnaryOp::Not, Box::new(test))) } else { Ok(test) }
    }

    /// Parses the arguments of a test: in parentheses, or one without.
    fn test_args(&mut self) -> Result<Args, CompileError> {
        let bare = match &self.current.kind {
            TokenKind::Op("(") => return self.args(),
            TokenKind::Name(name) if name == "is" => return self.fail("You cannot chain multiple tests with is"),
            TokenKind::Name(name) => !matches!(name.as_str(), "else" | "or" | "and"),
            TokenKind::Str(_) | TokenKind::Number(_) | TokenKind::Op("[" | "{") => true,
            _ => false,
        };
        let mut args = Args::default();
        if bare {
            let arg = self.nested(|parser| {
                let arg = parser.primary()?;
                parser.postfix(arg)
            })?;
            args.positional.push(arg);
        }
        Ok(args)
    }
}

/// The content of brackets.
enum Slice {
    Index(Expr),
    Bounds(Box<[Option<Expr>; 3]>),
}

fn constant(name: &str) -> Option<Const> {
    match name {
        "true" | "True" => Some(Const::Bool(true)),
        "false" | "False" => Some(Const::Bool(false)),
        "none" | "None" => Some(Const::None),
        _ => None,
    }
}
