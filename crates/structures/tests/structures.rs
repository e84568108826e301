//! Integration tests of the structures, one module a structure, as in `src`.

mod hashmap;
mod line_tx;
mod support;
