//! Generation: requests, sampling, grammars, and the text of an answer.

mod cli;
mod defaults;
mod device_rows;
mod device_sampling;
mod grammar;
mod host_sampler;
mod images;
mod output;
mod requests;
mod sampling;
