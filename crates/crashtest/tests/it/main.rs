//! What holds for the scenarios themselves; `tests/exploration.rs` explores them.

#![forbid(unsafe_code)]

mod faults;
mod methods;
mod shapes;
mod subjects;
