//! Generation: requests, sampling, grammars, and the text of an answer.

mod cli;
mod grammar;
mod output;
mod requests;
mod sampling;
