//! The hash maps.

mod basic;
mod damage;
mod fences;
