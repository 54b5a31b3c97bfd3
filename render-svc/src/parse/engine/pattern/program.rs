//! Compiles a pattern into a program for the search.

use super::class::CharSet;
use super::error::{Construct, PatternError};
use super::ghosts::Literal;
use super::syntax::{Assertion, Node};

/// The most instructions of a program. A step of the search takes time linear in them.
const MAX_SIZE: usize = 20_000;
/// The deepest nesting of repeats whose parts can be empty. Each level doubles the states of a step.
const MAX_EMPTY_REPEATS: u32 = 6;

/// An instruction. Places of instructions are their indexes.
#[derive(Debug)]
pub(super) enum Step {
    /// Takes one character of the set with this index, and continues with the next instruction. At the end of the text
    /// `regex` does not take a late one for unfinished: it is a pass of a lazy repeat before an assertion.
    Take {
        set: usize,
        is_late: bool,
    },
    /// Continues if the condition holds.
    Assert(Assertion),
    /// Continues at the first place, and later at the second one.
    Split(usize, usize),
    /// Notes that a thread is in a lazy repeat before the literal with this index.
    Ghost(usize),
    /// Notes that a thread comes to a lazy repeat before an assertion.
    Arrive,
    Jump(usize),
    /// Notes where the group with this mark starts.
    Open(usize),
    /// Makes the text since the mark the content of the group.
    Close {
        mark: usize,
        group: usize,
    },
    /// Starts a pass of the repeat at this level.
    Enter(u32),
    /// Ends a pass of the repeat at this level. A pass that took nothing is the last one.
    Again {
        level: u32,
        more: usize,
        exit: usize,
        is_greedy: bool,
    },
    Match,
    Never,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) sets: Vec<CharSet>,
    /// The number of names of groups.
    pub(super) names: usize,
    /// The number of values that a thread notes: two for each name, and one for each group.
    pub(super) notes: usize,
    /// The number of levels of repeats whose parts can be empty.
    pub(super) levels: u32,
    /// The characters with which a match can begin, or None if a match can be empty.
    pub(super) first: Option<CharSet>,
    /// The literals after lazy repeats of one character.
    pub(super) literals: Vec<Literal>,
    /// True if a condition depends on whether a newline ends the text.
    pub(super) sees_last_line: bool,
}

impl Program {
    pub(super) fn new(root: &Node, names: usize) -> Result<Self, PatternError> {
        let mut compiler = Compiler {
            steps: Vec::new(),
            sets: Vec::new(),
            notes: names * 2,
            literals: Vec::new(),
            is_late: false,
            level: 0,
            levels: 0,
        };
        compiler.node(root, &mut Vec::new())?;
        compiler.push(Step::Match)?;
        let Compiler { steps, sets, notes, literals, levels, .. } = compiler;
        let sees_last_line = steps.iter().any(|step| matches!(step, Step::Assert(Assertion::LastLineEnd)));
        // `regex` tries no other start either, but only if it can list the characters.
        let first = first(&steps, &sets).filter(|(_, is_listed)| *is_listed || literals.is_empty()).map(|(set, _)| set);
        Ok(Self { steps, sets, names, notes, levels, first, literals, sees_last_line })
    }
}

struct Compiler {
    steps: Vec<Step>,
    sets: Vec<CharSet>,
    notes: usize,
    literals: Vec<Literal>,
    is_late: bool,
    level: u32,
    levels: u32,
}

impl Compiler {
    fn push(&mut self, step: Step) -> Result<usize, PatternError> {
        if self.steps.len() >= MAX_SIZE {
            return Err(PatternError::TooLarge { limit: MAX_SIZE });
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    fn set_step(&mut self, at: usize, step: Step) {
        if let Some(place) = self.steps.get_mut(at) {
            *place = step;
        }
    }

    /// Compiles a part. The parts after it are in `after`, the next one last.
    fn node<'n>(&mut self, node: &'n Node, after: &mut Vec<After<'n>>) -> Result<(), PatternError> {
        match node {
            Node::Never => drop(self.push(Step::Never)?),
            Node::Set(set) => {
                let index = self.sets.iter().position(|known| known == set).unwrap_or(self.sets.len());
                if index == self.sets.len() {
                    self.sets.push(set.clone());
                }
                self.push(Step::Take { set: index, is_late: self.is_late })?;
            }
            Node::Assert(assertion) => drop(self.push(Step::Assert(*assertion))?),
            Node::Sequence(nodes) => {
                let size = after.len();
                after.extend(nodes.iter().rev().map(After::Node));
                for node in nodes {
                    after.pop();
                    self.node(node, after)?;
                }
                after.truncate(size);
            }
            Node::Branch(nodes) => self.branch(nodes, after)?,
            Node::Group(name, node) => {
                after.push(After::Boundary);
                match name {
                    Some(name) => self.group(*name, node, after)?,
                    None => self.node(node, after)?,
                }
                after.pop();
            }
            Node::Repeat { node, min, max, is_greedy } => self.repeat(node, (*min, *max), *is_greedy, after)?,
        }
        Ok(())
    }

    fn group<'n>(&mut self, group: usize, node: &'n Node, after: &mut Vec<After<'n>>) -> Result<(), PatternError> {
        let mark = self.notes;
        self.notes += 1;
        self.push(Step::Open(mark))?;
        self.node(node, after)?;
        self.push(Step::Close { mark, group })?;
        Ok(())
    }

    fn branch<'n>(&mut self, nodes: &'n [Node], after: &mut Vec<After<'n>>) -> Result<(), PatternError> {
        let Some((last, earlier)) = nodes.split_last() else { return Ok(()) };
        after.push(After::Boundary);
        let mut ends = Vec::new();
        for node in earlier {
            let split = self.push(Step::Never)?;
            self.node(node, after)?;
            ends.push(self.push(Step::Never)?);
            self.set_step(split, Step::Split(split + 1, self.steps.len()));
        }
        self.node(last, after)?;
        after.pop();
        for end in ends {
            self.set_step(end, Step::Jump(self.steps.len()));
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        node: &Node,
        (min, max): (u32, Option<u32>),
        is_greedy: bool,
        after: &[After<'_>],
    ) -> Result<(), PatternError> {
        // What follows a pass is the end of the repeat.
        let inner = &mut vec![After::RepeatEnd];
        for _ in 0..min {
            let size = self.steps.len();
            self.node(node, inner)?;
            if self.steps.len() == size {
                break;
            }
        }
        let is_nullable = node.is_nullable();
        if is_nullable {
            self.level += 1;
            self.levels = self.levels.max(self.level);
            if self.levels > MAX_EMPTY_REPEATS {
                return Err(PatternError::Refused { construct: Construct::DeepNesting, at: 0 });
            }
        }
        let repeats_set = matches!(node, Node::Set(_));
        self.is_late = !is_greedy && repeats_set && is_assertion_next(after);
        if self.is_late {
            self.push(Step::Arrive)?;
        }
        match max {
            None => self.repeat_forever(node, is_nullable, is_greedy)?,
            Some(max) => self.repeat_up_to(node, max.saturating_sub(min), is_nullable, is_greedy)?,
        }
        self.is_late = false;
        if is_nullable {
            self.level -= 1;
        }
        // No character ends a repeat of all characters before the literal. Repeats with a greatest count are not
        // followed, since `regex` rules some of them out in another way.
        let is_lazy = !is_greedy && max.is_none() && matches!(node, Node::Set(set) if *set != CharSet::all());
        let literal = literal(after).filter(|_| is_lazy);
        if let Some(literal) = literal {
            self.literals.push(Literal::new(literal));
            self.push(Step::Ghost(self.literals.len() - 1))?;
        }
        Ok(())
    }

    fn repeat_forever(&mut self, node: &Node, is_nullable: bool, is_greedy: bool) -> Result<(), PatternError> {
        let split = self.push(Step::Never)?;
        if is_nullable {
            self.push(Step::Enter(self.level))?;
        }
        self.node(node, &mut vec![After::RepeatEnd])?;
        let last = self.push(Step::Jump(split))?;
        let exit = self.steps.len();
        self.set_step(split, choice(split + 1, exit, is_greedy));
        if is_nullable {
            self.set_step(last, Step::Again { level: self.level, more: split + 1, exit, is_greedy });
        }
        Ok(())
    }

    /// Compiles optional passes, each within the one before it.
    fn repeat_up_to(
        &mut self,
        node: &Node,
        count: u32,
        is_nullable: bool,
        is_greedy: bool,
    ) -> Result<(), PatternError> {
        let (mut splits, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..count {
            splits.push(self.push(Step::Never)?);
            if is_nullable {
                self.push(Step::Enter(self.level))?;
            }
            self.node(node, &mut vec![After::RepeatEnd])?;
            if is_nullable {
                ends.push(self.push(Step::Never)?);
            }
        }
        let exit = self.steps.len();
        for split in splits {
            self.set_step(split, choice(split + 1, exit, is_greedy));
        }
        for end in ends {
            // The next pass starts with the choice whether to make it.
            let again = Step::Again { level: self.level, more: end + 1, exit, is_greedy: true };
            self.set_step(end, again);
        }
        Ok(())
    }
}

/// What follows a part of a pattern.
#[derive(Debug, Clone, Copy)]
enum After<'n> {
    Node(&'n Node),
    /// The end of a group or of an alternative, which ends a literal.
    Boundary,
    RepeatEnd,
}

/// Returns true if the parts after another one begin with an assertion.
fn is_assertion_next(after: &[After<'_>]) -> bool {
    let mut after = after.to_vec();
    while let Some(next) = after.pop() {
        match next {
            After::Node(Node::Assert(_)) => return true,
            After::Node(Node::Sequence(nodes)) => after.extend(nodes.iter().rev().map(After::Node)),
            After::Node(Node::Group(_, node)) => after.push(After::Node(node)),
            After::Boundary => {}
            After::Node(_) | After::RepeatEnd => return false,
        }
    }
    false
}

/// Returns the literal with which the parts after another one begin, if they do.
fn literal(after: &[After<'_>]) -> Option<Vec<char>> {
    let (mut chars, mut after) = (Vec::new(), after.to_vec());
    while let Some(next) = after.pop() {
        match next {
            After::Node(Node::Set(set)) if set.only().is_some() => chars.extend(set.only()),
            After::Node(one) if chars.is_empty() && is_char(one) => return Some(vec![char::default()]),
            After::Node(Node::Sequence(nodes)) => after.extend(nodes.iter().rev().map(After::Node)),
            // A group ends a literal, but can come before it.
            After::Node(Node::Group(_, node)) if chars.is_empty() => after.extend([After::Boundary, After::Node(node)]),
            After::Boundary if chars.is_empty() => {}
            After::Node(Node::Branch(nodes)) => {
                chars.extend(common_start(nodes));
                break;
            }
            After::Node(_) | After::Boundary | After::RepeatEnd => break,
        }
    }
    (!chars.is_empty()).then_some(chars)
}

/// Returns the characters with which all alternatives begin. `regex` moves them out of the alternatives.
fn common_start(nodes: &[Node]) -> Vec<char> {
    let start = |node: &Node| {
        let (mut chars, mut open) = (Vec::new(), vec![node]);
        while let Some(node) = open.pop() {
            match node {
                Node::Set(set) if set.only().is_some() => chars.extend(set.only()),
                Node::Sequence(nodes) => open.extend(nodes.iter().rev()),
                _ => break,
            }
        }
        chars
    };
    let shared = |one: Vec<char>, other: Vec<char>| {
        one.into_iter().zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
    };
    nodes.iter().map(start).reduce(shared).unwrap_or_default()
}

/// Returns true for any character but one, and for a repeat that begins with a certain character. They act like a
/// literal of one character, whatever it is.
fn is_char(node: &Node) -> bool {
    match node {
        Node::Set(set) => set.negated().only().is_some(),
        Node::Repeat { node, min, .. } if *min > 0 => match &**node {
            Node::Set(set) => set.only().is_some() || set.negated().only().is_some(),
            _ => false,
        },
        _ => false,
    }
}

/// Returns the choice between another pass and the end of a repeat.
fn choice(more: usize, exit: usize, is_greedy: bool) -> Step {
    if is_greedy { Step::Split(more, exit) } else { Step::Split(exit, more) }
}

/// Returns the characters that can be taken first, or None if the program can match without taking one.
/// Also returns false if one of the sets has all characters but one.
fn first(steps: &[Step], sets: &[CharSet]) -> Option<(CharSet, bool)> {
    let (mut seen, mut open) = (vec![false; steps.len()], vec![0]);
    let (mut first, mut is_listed) = (CharSet::none(), true);
    while let Some(at) = open.pop() {
        match seen.get_mut(at) {
            Some(seen) if !*seen => *seen = true,
            _ => continue,
        }
        match steps.get(at) {
            Some(Step::Take { set, .. }) => {
                let set = sets.get(*set)?;
                is_listed &= set.negated().only().is_none();
                first = first.or(set.clone());
            }
            Some(Step::Split(one, other)) => open.extend([*one, *other]),
            Some(Step::Again { more, exit, .. }) => open.extend([*more, *exit]),
            Some(Step::Jump(place)) => open.push(*place),
            Some(
                Step::Assert(_) | Step::Open(_) | Step::Close { .. } | Step::Enter(_) | Step::Ghost(_) | Step::Arrive,
            ) => open.push(at + 1),
            Some(Step::Match) | None => return None,
            Some(Step::Never) => {}
        }
    }
    Some((first, is_listed))
}
