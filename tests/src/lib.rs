//! Starts real services for the suite.
