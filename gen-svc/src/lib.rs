//! gen-svc.
