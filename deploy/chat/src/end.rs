//! How a chat ended.

use std::process::ExitCode;

use tokio::signal::unix::SignalKind;

/// How a chat ended, if not by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    /// `--status` found no services.
    Nothing,
    Signal(SignalKind),
}

impl End {
    pub(crate) const INTERRUPTED: Self = Self::Signal(SignalKind::interrupt());

    /// Returns the exit code that shells expect: 128 plus the signal's number.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Nothing => ExitCode::FAILURE,
            Self::Signal(kind) => ExitCode::from(128_u8.saturating_add(u8::try_from(kind.as_raw_value()).unwrap_or(0))),
        }
    }
}
