//! A status as an error: its message, its code, and the remedy that the user has.

use std::error::Error;
use std::fmt;

use tandem_common::status::Reason;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// A status, displayed as message and code.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Status);

impl Refusal {
    /// Returns the reason of a Tandem service.
    pub(crate) fn reason(&self) -> Option<Reason> {
        Reason::from_name(&self.0.get_details_error_info()?.reason)
    }

    /// Returns true if the prompt does not fit into the model or the service.
    pub(crate) fn is_too_long(&self) -> bool {
        use Reason::{MessageTooLarge, PromptTooLarge, PromptTooLong, TextTooLong};
        matches!(self.reason(), Some(MessageTooLarge | PromptTooLarge | PromptTooLong | TextTooLong))
    }

    /// Returns true if the service rejected the request, rather than being unreachable.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(self.0.code(), Code::Unavailable | Code::Unknown)
    }

    fn remedy(&self) -> Option<&'static str> {
        match self.reason()? {
            Reason::CredentialsMissing => Some("give a file with a token: --token-file FILE"),
            Reason::CredentialsInvalid => Some("the first unexpired token of --token-file is not accepted"),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0.message(), self.0.code())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
