//! Generation: requests, sampling, grammars, and the text of an answer.

mod defaults;
mod grammar;
mod output;
mod requests;
mod sampling;
