//! Structures as their papers describe them, for comparison, and to reproduce the papers' figures.
//!
//! They are crash-safe and tested like the others, but programs have a better choice:
//!
//! | here | after | use instead |
//! |---|---|---|
//! | [`AppendList`] | BOPL, its section 4.2 | [`LogList`] |
//! | [`TableList`] | BOPL-Hashmap, its section 4.3 | [`LogList`] |
//! | [`FlushAlwaysList`] | flush always, BOPL's section 4.1 | [`HashMap`], [`BlinkTree`] |
//! | [`BoundedBuffer`] | cache-line transactions (PLOS 2019) | [`transactional`] on a struct |
//! | [`BpTree`] | NVB+-Tree of HYRISE-NV (IMDM 2015) | [`BlinkTree`] |
//! | [`BpMultiTree`] | the same, with several values a key | [`HashMultiMap`] |
//!
//! `remanent-bench` runs the papers' evaluations with them.
//!
//! [`BlinkTree`]: crate::BlinkTree
//! [`HashMap`]: crate::HashMap
//! [`HashMultiMap`]: crate::HashMultiMap
//! [`LogList`]: crate::batch_list::LogList
//! [`transactional`]: crate::transactional

mod append_list;
mod bounded_buffer;
pub mod bptree;
mod flush_always_list;
mod table_list;

pub use self::append_list::{Append, AppendList};
pub use self::bounded_buffer::{BoundedBuffer, BoundedBufferHandle, BoundedBufferShared};
pub use self::bptree::{BpMultiTree, BpTree};
pub use self::flush_always_list::{FlushAlways, FlushAlwaysList};
pub use self::table_list::{Table, TableList};
