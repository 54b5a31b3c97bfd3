//! gen-bridge in front of llama.cpp's own HTTP server, in a process of its own.

mod answers;
mod engines;
mod failures;
mod fields;
mod life;
