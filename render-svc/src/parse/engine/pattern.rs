//! The patterns of a response template: a part of the syntax of Python's `regex` module, in linear time.
//!
//! `regex` searches by backtracking. Here a search keeps the set of all places of the program that it can be at, in the
//! order in which backtracking would try them, so that it finds the same match. That takes time linear in the text. It
//! also shows at any time the result of a partial search of `regex`: whether a match can still begin before the end of
//! the text.
//!
//! A partial search of `regex` differs from its definition for some patterns. The cases that are likely in a template,
//! lazy repeats of one character, are followed (see [`ghosts`] and [`program`]). In the others a search here holds back
//! as the definition says: `regex` reports unfinished matches too early or too late for lazy repeats with a greatest
//! count or next to parts without regard to case, for repeated groups around or before an assertion, and for a pattern
//! that begins with a lazy repeat of a single range, such as `[a-z]*?`. It also reports a match that does not exist at
//! the end of the text for a pattern that begins with `.`. Complete matches are the same.

mod barren;
mod class;
mod compiled;
mod error;
mod escapes;
mod finder;
mod fuzzy;
mod ghosts;
mod program;
mod search;
mod source;
mod syntax;
mod tables;

pub(crate) use self::barren::Barren;
pub(crate) use self::compiled::Pattern;
pub use self::error::{Construct, PatternError};
pub(crate) use self::finder::find_all;
pub(crate) use self::search::{Edge, Found, Scratch, Search, Tail, is_word};
