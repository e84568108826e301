//! The B-link tree.

mod basic;
mod edges;
mod fences;
