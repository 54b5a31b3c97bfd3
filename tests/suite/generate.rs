//! Generation: requests, sampling, grammars, and the text of an answer.

mod cli;
mod defaults;
mod grammar;
mod images;
mod output;
mod requests;
mod sampling;
