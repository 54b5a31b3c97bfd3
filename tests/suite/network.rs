//! The network of a service without generation: token files, health, probes, keepalive, gRPC-Web and the
//! origins of pages, broken requests, the size of requests, log lines, and `check` against other peers.

mod callers;
mod check;
mod fair_queue;
mod gone_clients;
mod health;
mod keepalive;
mod log_lines;
mod probes;
mod request_size;
mod tokens;
mod unread_answers;
mod web;
