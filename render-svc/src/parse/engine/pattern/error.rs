//! Why a pattern cannot be used.

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Python refuses the pattern too.
    #[error("not a pattern: {reason} (at character {at})")]
    Invalid { reason: String, at: usize },
    /// Python accepts the construct.
    #[error("the pattern has {construct}, which is not supported (at character {at})")]
    Refused { construct: Construct, at: usize },
    #[error("the pattern needs more than {limit} steps")]
    TooLarge { limit: usize },
}

/// A construct that is refused: most of them have no linear-time search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Construct {
    #[error("a look-ahead")]
    LookAhead,
    #[error("a look-behind")]
    LookBehind,
    #[error("a back-reference")]
    BackReference,
    #[error("a conditional group")]
    Conditional,
    #[error("a call of a group")]
    Recursion,
    #[error("a possessive repeat")]
    Possessive,
    #[error("an atomic group")]
    Atomic,
    #[error("a branch reset")]
    BranchReset,
    #[error("fuzzy matching")]
    Fuzzy,
    #[error("a named list")]
    NamedList,
    #[error("a verb of backtracking")]
    Verb,
    #[error("a search anchor")]
    SearchAnchor,
    #[error("a changed start of the match")]
    Keep,
    #[error("a grapheme")]
    Grapheme,
    #[error("a named character")]
    NamedCharacter,
    #[error("a property other than a general category")]
    Property,
    #[error("a property without regard to case")]
    PropertyInAnyCase,
    #[error("the flag `{0}`")]
    Flag(char),
    #[error("too deep a nesting")]
    DeepNesting,
}
