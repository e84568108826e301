//! The B-link tree.

mod basic;
mod clear;
mod damage;
mod edges;
mod fences;
