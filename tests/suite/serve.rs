//! Serving: security, limits, deadlines, transport, load.

mod deadlines;
mod drain_delay;
mod hostile;
mod limits;
mod load;
mod progress;
mod security;
mod transport;
