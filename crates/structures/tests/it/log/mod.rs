mod basic;
mod damage;
mod fences;
mod threads;
