//! Revisions of the official chat template that the adapter equals.

use std::fmt;

use crate::model::Model;

/// A revision of the template. All earlier ones differ in more, and are left to the template engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// Google's template of 2026-07-09.
    July2026,
    /// The same with two changes, as Unsloth ships it: a line break between two assistant messages
    /// of one turn, and a new turn after an answer that follows its results.
    Newest,
}

/// Each revision by the SHA-256 of its source without leading comments and surrounding white space,
/// which these sources ignore: they begin and end with a tag that removes white space. Two sources
/// differ in comments inside only. A revision has one text for E2B and E4B, and one for the others.
///
/// `tests/suite/render/gemma4_revisions.rs` states how equality was found.
const REVISIONS: [(&str, Revision); 5] = [
    ("60c7112d810af6d8ef6a85fb237109067479aaf6d3263a4837a825aa1d1a2ccb", Revision::Newest),
    ("7c51bfb9ec58ef48dc1df8ec6b771a50080058fdf6f55cba7d40634476d20a23", Revision::Newest),
    ("140006c2da4763fac5b831bcca5c625306a69967dccfc524f5af1dfce647023a", Revision::July2026),
    ("79d976837ede587c4871c30862bda4ee09daed086cfb63388d1bebde7b918bfe", Revision::July2026),
    ("ef5c22d5aaad1fd04a76b71c2805ab363aa79a9772022728c0f78acf83b775e0", Revision::July2026),
];

/// The chat templates of a model, as far as the adapter is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shipped {
    /// The model ships no template.
    Nothing,
    /// Every template is of this revision.
    Known(Revision),
    /// A template that the adapter does not equal, or that does not compile.
    Other,
}

impl Shipped {
    /// Returns the kind of the model's templates.
    pub(super) fn of(model: &Model) -> Self {
        if model.artifacts.templates.is_empty() {
            return Self::Nothing;
        }
        let mut revisions = model.templates.iter().map(|named| known(&named.core_sha256));
        match revisions.next().flatten() {
            Some(first) if model.templates.broken().is_empty() && revisions.all(|found| found == Some(first)) => {
                Self::Known(first)
            }
            _ => Self::Other,
        }
    }

    /// Returns the revision that the adapter renders: the newest where no template says otherwise.
    pub(super) fn rendered(self) -> Revision {
        match self {
            Self::Known(revision) => revision,
            Self::Nothing | Self::Other => Revision::Newest,
        }
    }
}

fn known(core_sha256: &str) -> Option<Revision> {
    REVISIONS.iter().find(|(sha256, _)| *sha256 == core_sha256).map(|(_, revision)| *revision)
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::July2026 => "2026-07-09",
            Self::Newest => "newest",
        })
    }
}
