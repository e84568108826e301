//! Transactional objects.

mod basic;
mod fences;
mod macros;
