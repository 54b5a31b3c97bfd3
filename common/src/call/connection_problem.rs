//! The problem that the error of a connection reports, and its remedy.

/// A cause that people often meet. The libraries report it only as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionProblem {
    /// The client uses TLS, the server does not.
    PlainServer,
    /// The server uses TLS, the client does not.
    TlsServer,
    /// None of the authorities signed the server's certificate.
    UnknownIssuer,
    /// The server's certificate is for another host.
    OtherHost,
    /// The server's certificate is that of an authority.
    AuthorityCertificate,
    /// A certificate is X.509 v1.
    OldCertificate,
    /// The server requires a certificate of the client.
    CertificateRequired,
    /// The server does not accept the client's certificate.
    CertificateRejected,
    /// The server's certificate is not accepted for another reason.
    CertificateInvalid,
}

/// Words in the errors of rustls and h2, with their problem. The first match counts.
const WORDS: [(&str, ConnectionProblem); 15] = [
    ("InvalidContentType", ConnectionProblem::PlainServer),
    // h2 reads the TLS server's alert as the head of a frame.
    ("frame with invalid size", ConnectionProblem::TlsServer),
    ("UnknownIssuer", ConnectionProblem::UnknownIssuer),
    // Another authority of the same name.
    ("BadSignature", ConnectionProblem::UnknownIssuer),
    ("NotValidForName", ConnectionProblem::OtherHost),
    ("not valid for name", ConnectionProblem::OtherHost),
    ("CaUsedAsEndEntity", ConnectionProblem::AuthorityCertificate),
    ("UnsupportedCertVersion", ConnectionProblem::OldCertificate),
    ("CertificateRequired", ConnectionProblem::CertificateRequired),
    ("UnknownCA", ConnectionProblem::CertificateRejected),
    ("BadCertificate", ConnectionProblem::CertificateRejected),
    ("CertificateUnknown", ConnectionProblem::CertificateRejected),
    ("DecryptError", ConnectionProblem::CertificateRejected),
    ("CertificateExpired", ConnectionProblem::CertificateRejected),
    ("invalid peer certificate", ConnectionProblem::CertificateInvalid),
];

impl ConnectionProblem {
    /// Finds the problem in the text of an error and its causes.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        WORDS.into_iter().find_map(|(word, problem)| text.contains(word).then_some(problem))
    }

    /// Returns the remedy, without the names of flags, which differ between programs.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::PlainServer => "the server does not use TLS: use http://",
            Self::TlsServer => "the server seems to use TLS: use https://",
            Self::UnknownIssuer => "none of the given authorities signed the server's certificate",
            Self::OtherHost => "the server's certificate is for another host: use one of its names",
            Self::AuthorityCertificate => "the server's certificate is that of an authority; it needs one for its host",
            Self::OldCertificate => "a certificate is X.509 v1; make it v3",
            Self::CertificateRequired => "the server requires a certificate of the client",
            Self::CertificateRejected => "the server does not accept the client's certificate",
            Self::CertificateInvalid => "the server's certificate is not accepted",
        }
    }
}
