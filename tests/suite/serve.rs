//! Serving: security, limits, deadlines, transport, load.

mod deadlines;
mod hostile;
mod limits;
mod load;
mod security;
mod transport;
mod web;
