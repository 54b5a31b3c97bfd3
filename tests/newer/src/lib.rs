//! A later version of the contract, and services of it: the services of this version behind a proxy that
//! adds to their answers what a later version may add.

pub mod contract;
pub mod proxy;
