//! The batched map.

mod basic;
mod damage;
mod fences;
mod pace;
mod space;
