//! render-svc.
