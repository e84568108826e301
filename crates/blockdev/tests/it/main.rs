//! Integration tests of disks and files, one module each, as in `src`.

mod disk;
mod file;
mod papers;
