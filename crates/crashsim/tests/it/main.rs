//! Small structures, sound and broken, and what the simulator finds in them.

mod buffered;
mod faults;
mod litmus;
mod lives;
mod log;
mod medium;
mod mutation;
mod ordering;
mod recovery;
mod threads;
