//! Grammars in the notation of llguidance, for engines that have this library (its docs/syntax.md).

use tandem_core::grammar::Grammar;

/// The first line of such a grammar, which other libraries refuse. llama.cpp needs it.
pub(crate) const LLGUIDANCE: &str = "%llguidance {}";
/// A grammar that only llguidance reads.
pub(crate) const LLGUIDANCE_ONLY: &str = "%llguidance {}\nstart: \"a\"";

/// Returns a grammar in this notation. Engines take a text with `::=` for another one.
pub(crate) fn lark(grammar: &Grammar) -> String {
    grammar.to_lark().unwrap_or_default().replace("::=", ":\\u003a=")
}
