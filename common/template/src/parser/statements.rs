//! Statements: what follows `{%`.

use super::{MAX_BLOCK_DEPTH, Parser};
use crate::ast::{Expr, ExprKind, For, Function, Name, Stmt, StmtKind, Target};
use crate::error::CompileError;
use crate::lexer::TokenKind;

type Parsed<T> = Result<T, CompileError>;

impl Parser {
    /// Parses statements up to one of the end tags, which is taken and returned, or to the end of
    /// the template.
    pub(super) fn body(&mut self, ends: &[&str]) -> Parsed<(Vec<Stmt>, String)> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            match &mut self.current.kind {
                TokenKind::Data(text) => {
                    let text = std::mem::take(text);
                    self.take();
                    body.push(Stmt { kind: StmtKind::Data(text), line });
                }
                TokenKind::VariableBegin => {
                    self.take();
                    body.push(self.print(line)?);
                }
                TokenKind::BlockBegin => {
                    self.take();
                    if let Some(end) = ends.iter().find(|end| self.is_name(end)) {
                        self.take();
                        return Ok((body, (*end).to_owned()));
                    }
                    self.statement(&mut body)?;
                }
                _ if ends.is_empty() => return Ok((body, String::new())),
                _ => return self.unclosed(),
            }
        }
    }

    fn print(&mut self, line: u32) -> Parsed<Stmt> {
        let expr = self.tuple(true)?;
        match self.current.kind {
            TokenKind::VariableEnd => {
                self.take();
                Ok(Stmt { kind: StmtKind::Print(expr), line })
            }
            _ => self.expected("end of print statement"),
        }
    }

    fn unclosed<T>(&self) -> Parsed<T> {
        match self.open_tags.last() {
            Some((tag, line)) => self.fail(format!("unexpected end of template: '{tag}' of line {line} is not closed")),
            None => self.fail("unexpected end of template"),
        }
    }

    /// Parses the rest of the opening tag and the statements up to an end tag.
    fn block(&mut self, ends: &[&str]) -> Parsed<(Vec<Stmt>, String)> {
        self.skip_op(":");
        self.expect_block_end()?;
        if self.block_depth >= MAX_BLOCK_DEPTH {
            let (line, max) = (self.line(), MAX_BLOCK_DEPTH.into());
            return Err(CompileError::TooComplex { line, what: "the nesting of blocks", max });
        }
        self.block_depth += 1;
        let result = self.body(ends);
        self.block_depth -= 1;
        result
    }

    fn block_until(&mut self, end: &str) -> Parsed<Vec<Stmt>> {
        self.block(&[end]).map(|(body, _)| body)
    }

    fn statement(&mut self, body: &mut Vec<Stmt>) -> Parsed<()> {
        let line = self.line();
        let TokenKind::Name(tag) = &self.current.kind else {
            return self.fail("tag name expected");
        };
        let tag = tag.clone();
        self.open_tags.push((tag.clone(), line));
        self.take();
        match tag.as_str() {
            "print" => self.print_list(body)?,
            _ => {
                let kind = self.tag(&tag, line)?;
                body.push(Stmt { kind, line });
            }
        }
        self.open_tags.pop();
        self.expect_block_end()
    }

    fn tag(&mut self, tag: &str, line: u32) -> Parsed<StmtKind> {
        match tag {
            "for" => self.for_loop(),
            "if" => self.condition(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => self.macro_definition(),
            "call" => self.call_block(),
            "filter" => self.filter_block(),
            "generation" => self.outside_loop(|parser| parser.block_until("endgeneration")).map(StmtKind::Generation),
            "block" => self.named_block(),
            "autoescape" => self.autoescape(),
            "include" | "extends" => self.include(),
            "import" => self.import(),
            "from" => self.import_names(),
            "break" if self.loop_depth > 0 => Ok(StmtKind::Break),
            "continue" if self.loop_depth > 0 => Ok(StmtKind::Continue),
            "break" | "continue" => self.fail(format!("'{tag}' outside loop")),
            _ => self.unknown_tag(tag, line),
        }
    }

    fn unknown_tag<T>(&self, tag: &str, line: u32) -> Parsed<T> {
        let message = match self.open_tags.iter().rev().nth(1) {
            Some((open, opened)) => format!("unknown tag '{tag}' inside '{open}' of line {opened}"),
            None => format!("unknown tag '{tag}'"),
        };
        Err(CompileError::Syntax { line, message })
    }

    /// Parses a body that becomes a separate function, outside all loops.
    fn outside_loop<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let loop_depth = std::mem::take(&mut self.loop_depth);
        let result = rule(self);
        self.loop_depth = loop_depth;
        result
    }

    fn for_loop(&mut self) -> Parsed<StmtKind> {
        let target = self.target(false)?;
        self.expect_word("in")?;
        let iter = self.tuple(false)?;
        let filter = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        self.loop_depth += 1;
        let body = self.block(&["endfor", "else"]);
        self.loop_depth -= 1;
        let (body, end) = body?;
        let otherwise = match (end == "else", recursive) {
            (false, _) => Vec::new(),
            (true, false) => self.block_until("endfor")?,
            (true, true) => self.outside_loop(|parser| parser.block_until("endfor"))?,
        };
        let node = For { target, iter, filter, recursive, body, otherwise };
        if node.assigns_loop() {
            return self.fail("Can't assign to special loop variable in for-loop target");
        }
        Ok(StmtKind::For(Box::new(node)))
    }

    fn condition(&mut self) -> Parsed<StmtKind> {
        let mut branches = Vec::new();
        loop {
            let test = self.tuple(false)?;
            let (body, end) = self.block(&["elif", "else", "endif"])?;
            branches.push((test, body));
            match end.as_str() {
                "elif" => {}
                "else" => return Ok(StmtKind::If(branches, self.block_until("endif")?)),
                _ => return Ok(StmtKind::If(branches, Vec::new())),
            }
        }
    }

    fn set(&mut self) -> Parsed<StmtKind> {
        let target = self.target(true)?;
        if self.skip_op("=") {
            return Ok(StmtKind::Set(target, self.tuple(true)?));
        }
        let mut filter = None;
        while self.is_op("|") {
            filter = Some(self.filter(filter)?);
        }
        Ok(StmtKind::SetBlock(target, filter, self.block_until("endset")?))
    }

    fn with(&mut self) -> Parsed<StmtKind> {
        let mut assignments = Vec::new();
        while !matches!(self.current.kind, TokenKind::BlockEnd) {
            if !assignments.is_empty() {
                self.expect_op(",")?;
            }
            let target = self.target(false)?;
            self.expect_op("=")?;
            assignments.push((target, self.expression()?));
        }
        Ok(StmtKind::With(assignments, self.block_until("endwith")?))
    }

    fn macro_definition(&mut self) -> Parsed<StmtKind> {
        let name = self.assignable_name()?;
        let (params, defaults) = self.signature()?;
        let body = self.outside_loop(|parser| parser.block_until("endmacro"))?;
        Ok(StmtKind::Macro(name, Function { params, defaults, body }))
    }

    fn call_block(&mut self) -> Parsed<StmtKind> {
        let line = self.line();
        let (params, defaults) = if self.is_op("(") { self.signature()? } else { Default::default() };
        let call = self.expression()?;
        if !matches!(call.kind, ExprKind::Call(..)) {
            return Err(CompileError::Syntax { line, message: "expected call".to_owned() });
        }
        let body = self.outside_loop(|parser| parser.block_until("endcall"))?;
        Ok(StmtKind::Call(call, Function { params, defaults, body }))
    }

    fn signature(&mut self) -> Parsed<(Vec<Name>, Vec<Expr>)> {
        let (mut params, mut defaults): (Vec<Name>, _) = (Vec::new(), Vec::new());
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
            }
            let param = self.assignable_name()?;
            if params.contains(&param) {
                return self.fail(format!("duplicate argument '{param}' in function definition"));
            }
            params.push(param);
            if self.skip_op("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return self.fail("non-default argument follows default argument");
            }
        }
        self.take();
        Ok((params, defaults))
    }

    fn filter_block(&mut self) -> Parsed<StmtKind> {
        let mut filter = self.filter_name(None)?;
        while self.is_op("|") {
            filter = self.filter(Some(filter))?;
        }
        Ok(StmtKind::Filter(filter, self.block_until("endfilter")?))
    }

    fn named_block(&mut self) -> Parsed<StmtKind> {
        let name = self.expect_name()?;
        let scoped = self.skip_name("scoped");
        let required = self.skip_name("required");
        if self.block_names.contains(&name) {
            return self.fail(format!("block '{name}' defined twice"));
        }
        self.block_names.push(name.clone());
        let body = self.outside_loop(|parser| parser.block_until("endblock"))?;
        self.skip_name(&name);
        if !required {
            return Ok(StmtKind::Block(name.into(), body, scoped));
        }
        let is_blank = |stmt: &Stmt| matches!(&stmt.kind, StmtKind::Data(text) if text.trim().is_empty());
        if body.iter().all(is_blank) {
            return Ok(StmtKind::RequiredBlock(name.into()));
        }
        self.fail("Required blocks can only contain comments or whitespace")
    }

    fn autoescape(&mut self) -> Parsed<StmtKind> {
        let enabled = self.expression()?;
        Ok(StmtKind::Autoescape(enabled, self.block_until("endautoescape")?))
    }

    /// Parses `include` and `extends`; only the source is kept.
    fn include(&mut self) -> Parsed<StmtKind> {
        let source = self.expression()?;
        if self.is_name("ignore") && self.next_is_name("missing") {
            self.take();
            self.take();
        }
        self.import_context();
        Ok(StmtKind::Load(source, Vec::new()))
    }

    fn import(&mut self) -> Parsed<StmtKind> {
        let source = self.expression()?;
        self.expect_word("as")?;
        let name = self.assignable_name()?;
        self.import_context();
        Ok(StmtKind::Load(source, vec![name]))
    }

    fn import_names(&mut self) -> Parsed<StmtKind> {
        let source = self.expression()?;
        self.expect_word("import")?;
        let mut names = Vec::new();
        loop {
            if !names.is_empty() {
                self.expect_op(",")?;
            }
            if self.import_context() {
                break;
            }
            let name = self.assignable_name()?;
            names.push(if self.skip_name("as") { self.assignable_name()? } else { name });
            if self.import_context() || !self.is_op(",") {
                break;
            }
        }
        Ok(StmtKind::Load(source, names))
    }

    fn import_context(&mut self) -> bool {
        let found = (self.is_name("with") || self.is_name("without")) && self.next_is_name("context");
        if found {
            self.take();
            self.take();
        }
        found
    }

    /// Parses `{% print a, b %}`.
    fn print_list(&mut self, body: &mut Vec<Stmt>) -> Parsed<()> {
        let mut first = true;
        while !matches!(self.current.kind, TokenKind::BlockEnd) {
            if !first {
                self.expect_op(",")?;
            }
            first = false;
            let line = self.line();
            let expr = self.expression()?;
            body.push(Stmt { kind: StmtKind::Print(expr), line });
        }
        Ok(())
    }

    fn assignable_name(&mut self) -> Parsed<Name> {
        let name = self.expect_name()?;
        if matches!(name.as_str(), "true" | "false" | "none" | "True" | "False" | "None") {
            return self.fail(format!("can't assign to '{name}'"));
        }
        Ok(name.into())
    }

    /// Parses the target of `=` or `in`: names and tuples of them, and attributes of namespaces
    /// where allowed.
    ///
    /// A comma before `in` or `=` does not end a tuple: Jinja2 reads `in` as one more name, and
    /// refuses `=`.
    fn target(&mut self, with_attributes: bool) -> Parsed<Target> {
        let mut targets = Vec::new();
        let mut is_tuple = false;
        loop {
            if !targets.is_empty() {
                self.expect_op(",")?;
            }
            if self.at_tuple_end() {
                break;
            }
            targets.push(self.single_target(with_attributes)?);
            if !self.is_op(",") {
                break;
            }
            is_tuple = true;
        }
        match targets.pop() {
            Some(only) if !is_tuple => Ok(only),
            None => self.expected("an expression"),
            last => {
                targets.extend(last);
                Ok(Target::Tuple(targets))
            }
        }
    }

    fn single_target(&mut self, with_attributes: bool) -> Parsed<Target> {
        if self.is_op("(") {
            self.take();
            let target = self.nested(|parser| parser.parenthesized_target())?;
            self.expect_op(")")?;
            return Ok(target);
        }
        if !matches!(self.current.kind, TokenKind::Name(_)) {
            return self.fail(format!("can't assign to '{}'", self.current.kind.describe()));
        }
        let name = self.assignable_name()?;
        if with_attributes && self.skip_op(".") {
            return Ok(Target::Attribute(name, self.expect_name()?.into()));
        }
        Ok(Target::Name(name))
    }

    fn parenthesized_target(&mut self) -> Parsed<Target> {
        if self.is_op(")") { Ok(Target::Tuple(Vec::new())) } else { self.target(false) }
    }
}

impl For {
    /// Jinja2 checks the whole block, with inner loops and macros.
    fn assigns_loop(&self) -> bool {
        self.target.assigns("loop") || assign_loop(&self.body) || assign_loop(&self.otherwise)
    }
}

fn assign_loop(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::Set(target, _) => target.assigns("loop"),
        StmtKind::SetBlock(target, _, body) => target.assigns("loop") || assign_loop(body),
        StmtKind::If(branches, otherwise) => {
            branches.iter().any(|(_, body)| assign_loop(body)) || assign_loop(otherwise)
        }
        StmtKind::With(_, body) | StmtKind::Filter(_, body) => assign_loop(body),
        StmtKind::Generation(body) | StmtKind::Block(_, body, _) | StmtKind::Autoescape(_, body) => assign_loop(body),
        StmtKind::Macro(_, function) | StmtKind::Call(_, function) => assign_loop(&function.body),
        // An inner loop was checked before.
        _ => false,
    })
}

impl Target {
    fn assigns(&self, name: &str) -> bool {
        match self {
            Self::Name(found) => **found == *name,
            Self::Tuple(targets) => targets.iter().any(|target| target.assigns(name)),
            Self::Attribute(..) => false,
        }
    }
}
