//! A compiled pattern.

use super::error::PatternError;
use super::program::Program;
use super::syntax::{Node, Syntax, read};

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(super) program: Program,
    names: Vec<String>,
}

impl Pattern {
    /// Compiles a pattern, with the flag `s` on.
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        let Syntax { root, names } = read(pattern)?;
        let program = Program::new(&root, names.len())?;
        Ok(Self { program, names })
    }

    /// Compiles texts, of which the longest is preferred.
    pub(crate) fn of_literals(literals: &[String]) -> Result<Self, PatternError> {
        let mut longest_first: Vec<&String> = literals.iter().collect();
        longest_first.sort_by_key(|literal| std::cmp::Reverse(literal.chars().count()));
        let nodes = longest_first.into_iter().map(|literal| Node::literal(literal)).collect();
        Ok(Self { program: Program::new(&Node::Branch(nodes), 0)?, names: Vec::new() })
    }

    /// Returns true if a condition depends on whether a newline ends the text.
    pub(crate) fn sees_last_line(&self) -> bool {
        self.program.sees_last_line
    }

    /// Returns the names of the groups.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}
