//! The batched map.

mod api;
mod basic;
mod damage;
mod fences;
mod pace;
mod space;
