//! The B-link tree.

mod basic;
mod damage;
mod edges;
mod fences;
