//! The network of a service without generation: token files, health, probes, gRPC-Web and the
//! origins of pages, broken requests, and `check` against other peers.

mod check;
mod health;
mod probes;
mod tokens;
mod web;
