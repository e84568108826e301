//! Integration tests of the pool and of what is published in it.

mod link_crash;
mod pool;
mod publish;
