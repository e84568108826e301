//! The B-link tree.

mod api;
mod basic;
mod clear;
mod damage;
mod damaged_records;
mod edges;
mod fences;
