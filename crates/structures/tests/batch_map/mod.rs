mod basic;
mod fences;
mod pace;
mod space;
