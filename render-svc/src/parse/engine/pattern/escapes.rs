//! Reads the escapes and the sets of a pattern.

use super::class::{CharSet, Posix, is_identifier};
use super::error::Construct;
use super::syntax::{Assertion, Node, Read, Reader};

/// A member of a set, or an escape.
enum Item {
    Char(u32),
    Set(CharSet),
    Assert(Assertion),
}

impl Reader {
    /// Reads what follows a backslash outside of a set.
    pub(super) fn escape_node(&mut self) -> Read<Node> {
        Ok(match self.escape(false)? {
            Item::Char(code) => self.char_node(code),
            Item::Set(set) => Node::Set(set),
            Item::Assert(assertion) => Node::Assert(assertion),
        })
    }

    /// Reads what follows a backslash.
    fn escape(&mut self, in_set: bool) -> Read<Item> {
        let c = self.source.next_raw().ok_or_else(|| self.invalid("a backslash ends the pattern"))?;
        Ok(match c {
            'x' => Item::Char(self.hex(2)?),
            'u' => Item::Char(self.hex(4)?),
            'U' => Item::Char(self.hex(8)?),
            'g' if !in_set => self.group_reference()?,
            'G' if !in_set => return self.refused(Construct::SearchAnchor),
            'L' if !in_set => return self.refused(Construct::NamedList),
            'R' if !in_set => return self.refused(Construct::Atomic),
            'X' if !in_set => return self.refused(Construct::Grapheme),
            'K' if !in_set => return self.refused(Construct::Keep),
            'N' => self.named_char()?,
            'p' | 'P' => self.property(c == 'p')?,
            c if c.is_ascii_alphabetic() => self.letter(c, in_set)?,
            c if c.is_ascii_digit() => self.number(c, in_set)?,
            c => Item::Char(c.into()),
        })
    }

    fn letter(&mut self, c: char, in_set: bool) -> Read<Item> {
        let position = match c {
            _ if in_set => None,
            'A' => Some(Assertion::TextStart),
            'Z' | 'z' => Some(Assertion::TextEnd),
            'b' => Some(Assertion::WordEdge),
            'B' => Some(Assertion::NoWordEdge),
            'm' => Some(Assertion::WordStart),
            'M' => Some(Assertion::WordEnd),
            _ => None,
        };
        if let Some(assertion) = position {
            return Ok(Item::Assert(assertion));
        }
        let code = match c {
            'd' => return Ok(Item::Set(CharSet::digits())),
            'D' => return Ok(Item::Set(CharSet::digits().negated())),
            's' => return Ok(Item::Set(CharSet::spaces())),
            'S' => return Ok(Item::Set(CharSet::spaces().negated())),
            'w' => return Ok(Item::Set(CharSet::words())),
            'W' => return Ok(Item::Set(CharSet::words().negated())),
            'h' => return Ok(Item::Set(CharSet::posix(Posix::Blank))),
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            _ => return Err(self.invalid(&format!("an unknown escape `\\{c}`"))),
        };
        Ok(Item::Char(code))
    }

    fn hex(&mut self, size: usize) -> Read<u32> {
        let mut code: u32 = 0;
        for _ in 0..size {
            let digit = self.source.next().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or_else(|| self.invalid("a hexadecimal escape lacks digits"))?;
            code = code.checked_mul(16).map(|code| code + digit).unwrap_or(u32::MAX);
        }
        if code > 0x10_ffff { Err(self.invalid("a hexadecimal escape is no code point")) } else { Ok(code) }
    }

    fn group_reference(&mut self) -> Read<Item> {
        let before = self.source.at;
        if self.source.take("<") {
            let name = self.source.take_while(|c| c != ')' && c != '>');
            let is_name = is_identifier(&name) || name.parse::<u64>().is_ok_and(|number| number > 0);
            if is_name && self.source.take(">") {
                return self.refused(Construct::BackReference);
            }
        }
        self.source.at = before;
        Ok(Item::Char('g'.into()))
    }

    fn named_char(&mut self) -> Read<Item> {
        let before = self.source.at;
        if self.source.take("{") {
            self.source.take_while(|c| c.is_ascii_alphanumeric() || c == ' ' || c == '-');
            if self.source.take("}") {
                return self.refused(Construct::NamedCharacter);
            }
        }
        self.source.at = before;
        Ok(Item::Char('N'.into()))
    }

    /// Reads the property after `\p` or `\P`, or an ordinary letter if there is none.
    fn property(&mut self, is_positive: bool) -> Read<Item> {
        let before = self.source.at;
        let mut is_positive = is_positive;
        let name = match self.source.next() {
            Some('{') => {
                is_positive ^= self.source.take("^");
                let name = self.property_name();
                self.source.take("}").then_some(name)
            }
            Some(c @ ('C' | 'L' | 'M' | 'N' | 'P' | 'S' | 'Z')) => Some(c.to_string()),
            _ => None,
        };
        let Some(name) = name else {
            self.source.at = before;
            return Ok(Item::Char(if is_positive { 'p' } else { 'P' }.into()));
        };
        if self.flags.any_case {
            return self.refused(Construct::PropertyInAnyCase);
        }
        let set = CharSet::category(&name).map_or_else(|| self.refused(Construct::Property), Ok)?;
        Ok(Item::Set(if is_positive { set } else { set.negated() }))
    }

    fn property_name(&mut self) -> String {
        let part = |c: char| c.is_ascii_alphanumeric() || " &_-.".contains(c);
        let mut name = self.source.take_while(part);
        let before = self.source.at;
        if let Some(c @ (':' | '=')) = self.source.next() {
            let value = self.source.take_while(|c| part(c) || c == '/');
            if !value.trim().is_empty() {
                name.push(c);
                name.push_str(value.trim());
                return name;
            }
        }
        self.source.at = before;
        name
    }

    /// Reads a number after a backslash: a character in octal, or a reference to a group.
    fn number(&mut self, c: char, in_set: bool) -> Read<Item> {
        if in_set || c == '0' {
            return self.octal(c);
        }
        let mut digits = c.to_string();
        let before = self.source.at;
        for _ in 0..2 {
            match self.source.next() {
                Some(next) if next.is_ascii_digit() => digits.push(next),
                _ => break,
            }
        }
        match u32::from_str_radix(&digits, 8) {
            Ok(code) if digits.len() == 3 => Ok(Item::Char(code & 0x1ff)),
            _ => {
                self.source.at = before;
                self.refused(Construct::BackReference)
            }
        }
    }

    fn octal(&mut self, c: char) -> Read<Item> {
        let mut digits = c.to_string();
        while digits.len() < 3 {
            let before = self.source.at;
            match self.source.next() {
                Some(next @ '0'..='7') => digits.push(next),
                _ => {
                    self.source.at = before;
                    break;
                }
            }
        }
        let code = u32::from_str_radix(&digits, 8);
        code.map(Item::Char).map_err(|_| self.invalid("not an octal number"))
    }

    /// Reads what follows an opening bracket.
    pub(super) fn set(&mut self) -> Read<CharSet> {
        self.source.is_verbose = false;
        let is_negated = self.source.take("^");
        let mut set = self.set_member()?;
        while !self.source.take("]") {
            set = set.or(self.set_member()?);
        }
        self.source.is_verbose = self.flags.verbose;
        if self.flags.any_case {
            set = set.in_any_case();
        }
        Ok(if is_negated { set.negated() } else { set })
    }

    fn set_member(&mut self) -> Read<CharSet> {
        let start = match self.set_item()? {
            Item::Char(start) => start,
            Item::Set(set) => return Ok(set),
            Item::Assert(_) => return Err(self.invalid("a set holds an assertion")),
        };
        let single = CharSet::one(start);
        if !self.source.take("-") {
            return Ok(single);
        }
        let before = self.source.at;
        let hyphen = CharSet::one('-'.into());
        if self.source.take("]") {
            self.source.at = before;
            return Ok(single.or(hyphen));
        }
        match self.set_item()? {
            Item::Char(end) if start <= end => Ok(CharSet::range(start, end)),
            Item::Set(set) => Ok(single.or(hyphen).or(set)),
            _ => Err(self.invalid("the start of a range is after its end")),
        }
    }

    fn set_item(&mut self) -> Read<Item> {
        if self.source.take("\\") {
            return self.escape(true);
        }
        let before = self.source.at;
        if self.source.take("[:") {
            let is_negated = self.source.take("^");
            let name = self.property_name();
            if self.source.take(":]") {
                if self.flags.any_case {
                    return self.refused(Construct::PropertyInAnyCase);
                }
                let set = Posix::of(&name).map(CharSet::posix).or_else(|| CharSet::category(&name));
                let set = set.map_or_else(|| self.refused(Construct::Property), Ok)?;
                return Ok(Item::Set(if is_negated { set.negated() } else { set }));
            }
            self.source.at = before;
        }
        let c = self.source.next().ok_or_else(|| self.invalid("a set has no end"))?;
        Ok(Item::Char(c.into()))
    }
}
