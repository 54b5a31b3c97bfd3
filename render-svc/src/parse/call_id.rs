//! Identifiers of calls, for models that write none.

use tandem_model_files::digest::hex_sha256;

/// The form of identifiers that a model's template accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum IdForm {
    /// `call_` and 24 digits or letters.
    #[default]
    Usual,
    /// Nine digits or letters: Mistral.
    Nine,
    /// `functions.NAME:INDEX`: Kimi.
    Named,
}

impl IdForm {
    /// Every form, the usual one first.
    pub(crate) const ALL: [Self; 3] = [Self::Usual, Self::Nine, Self::Named];

    /// Returns the identifier of a call. The same call after the same prompt has the same one; the digest of another
    /// prompt gives another one, so that those of a conversation differ.
    pub(crate) fn id(self, prompt_sha256: &str, index: usize, name: &str, arguments: &str) -> String {
        let digest = hex_sha256(format!("{prompt_sha256}\n{index}\n{name}\n{arguments}").as_bytes());
        match self {
            Self::Usual => format!("call_{}", &digest[..24]),
            Self::Nine => digest[..9].to_owned(),
            Self::Named => format!("functions.{name}:{index}"),
        }
    }
}
