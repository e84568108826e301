mod basic;
mod fences;
