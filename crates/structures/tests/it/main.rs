//! Integration tests of the structures, one module a structure, as in `src`.

mod batch_list;
mod batch_map;
mod blink_tree;
mod hashmap;
mod line_tx;
mod papers;
mod support;
mod words_of_ones;
