//! Generation: requests, sampling, grammars, and the text of an answer.

mod defaults;
mod grammar;
mod json_grammar;
mod output;
mod reasoning_grammar;
mod requests;
mod sampling;
