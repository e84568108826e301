mod basic;
mod fences;
mod space;
