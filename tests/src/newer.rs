//! A later version of the contract, and services of it: the services of this version behind a proxy that
//! adds new fields and events to their answers.

pub mod contract;
pub mod proxy;
