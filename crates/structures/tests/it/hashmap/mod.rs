//! The hash maps.

mod api;
mod basic;
mod damage;
mod fences;
