//! Transactional objects.

mod basic;
mod damage;
mod fences;
mod macros;
