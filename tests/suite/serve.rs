//! Serving: security, limits, deadlines, transport, load.

mod deadlines;
mod drain_delay;
mod fairness;
mod hostile;
mod limits;
mod load;
mod progress;
mod security;
mod soak;
mod transport;
