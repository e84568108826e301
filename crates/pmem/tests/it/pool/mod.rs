//! The pool on real and on simulated media, a module for each part of the source.

mod allocator;
mod aside;
mod backing;
mod damage;
mod emulated;
mod files;
mod fixture;
mod growth;
mod image;
mod inspect;
mod mapped;
mod open_time;
mod options;
mod order;
mod room;
mod roots;
mod sigbus;
mod slots;
mod superblock;
mod support;
mod unwind;
