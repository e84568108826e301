//! Integration tests of the structures, one module a structure, as in `src`.

mod batch;
mod batch_list;
mod batch_map;
mod blink_tree;
mod damage_ones;
#[cfg(feature = "serde")]
mod encoded;
mod errors;
mod extendible;
mod extendible_multi;
mod hashmap;
mod in_memory;
mod line_tx;
mod linearizable;
mod log;
mod papers;
mod row_index;
mod shared;
mod stored;
mod support;
mod unwind;
mod vector;
