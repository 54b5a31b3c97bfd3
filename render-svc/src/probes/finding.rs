//! The outcomes of probes.

/// What became of a marked text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finding {
    /// The prompt contains it.
    Shown,
    /// The prompt does not contain it.
    LeftOut,
    /// The template fails for it, and not without it.
    Refused,
    /// The probe says nothing.
    #[default]
    Unknown,
}

impl Finding {
    /// Returns the name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::LeftOut => "left out",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if a probe showed that the prompt cannot contain it.
    #[must_use]
    pub fn is_lost(self) -> bool {
        matches!(self, Self::LeftOut | Self::Refused)
    }

    /// Returns this finding, or `other` if this one says less.
    pub(super) fn or(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::Shown {
            return self;
        }
        match other() {
            Self::Unknown => self,
            other => other,
        }
    }
}

/// What became of two messages of one role in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Each is a separate turn.
    Separate,
    /// The template itself joins them to one turn.
    Merged,
    /// The template fails.
    Refused,
    /// The prompt lacks one of them.
    LeftOut,
    /// The probe says nothing.
    #[default]
    Unknown,
}

impl Repeat {
    /// Returns the name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Separate => "separate",
            Self::Merged => "merged by the template",
            Self::Refused => "refused",
            Self::LeftOut => "left out",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if the messages must be merged so that the template shows both.
    #[must_use]
    pub fn needs_merging(self) -> bool {
        matches!(self, Self::Refused | Self::LeftOut)
    }
}
