//! The B-link tree.

mod basic;
mod fences;
