//! The chat client, at a terminal and in pipes, against a render-svc whose answers are fixed.

mod connection;
mod conversation;
mod images;
mod kept;
mod service;
mod wrapping;
