//! Several structures in one heap, for programs that build something larger: an engine with its
//! columns and indexes, say.
//!
//! A structure under a root has a heap to itself: a chunk of 64 KiB for header and lanes, chunks of
//! its own for each size of blocks, and a lane to be entered for each operation. Structures that
//! share a heap share all of these, and what they do can share fences ([`Step`]).
//!
//! The *owner* of the heap is the object of a root
//! ([`RootObject`](remanent_pmem::pool::RootObject)). For each structure it keeps a header, which
//! is a block of [`header_len`](Shareable::header_len) zeros. It remembers where the header lies,
//! the structure's type and its [number](MemberId).
//!
//! - To create a structure, the owner allocates a header, zeroes and flushes it, and calls
//!   [`create_in`](Shareable::create_in). Then it links the header durably.
//! - When the root is opened, the owner [finds](Recovery::find) all structures, lets the heap
//!   [recover](Recovery::run), and [finishes](Found::finish) each structure.
//! - For a check, the owner collects the results of [`inspect`](Shareable::inspect), and compares
//!   the blocks with those that the heap has allocated.
//!
//! Recovery asks of each block in doubt whether a structure still leads to it. A tree's block has
//! the number of its tree, and an entry of a hash map the low byte of its map's number; blocks of
//! the other structures are looked up. So only hash maps whose numbers share the low byte are asked
//! one after the other.
//!
//! A structure must not outlive its owner, because the root cannot be opened again before the
//! structure is dropped.
//!
//! ```
//! use std::sync::Arc;
//!
//! use remanent_pmem::heap::Heap;
//! use remanent_pmem::pool::{RootObject, RootType};
//! use remanent_pmem::{Error, Mapped, Medium, Pool};
//! use remanent_structures::shared::{MemberId, Recovery, Shareable, Site};
//! use remanent_structures::{BlinkTree, HashMap};
//!
//! type Names = HashMap<u64, str>;
//! type ByName = BlinkTree<str, u64>;
//!
//! /// People by number, and their numbers by name.
//! struct People {
//!     names: Names,
//!     by_name: ByName,
//! }
//!
//! /// Where the headers lie: in the 2 KiB that the heap has for its owner.
//! fn sites(heap: &Arc<Heap<Mapped>>) -> [Site<Mapped>; 2] {
//!     let second = <Names as Shareable<Mapped>>::header_len().next_multiple_of(64);
//!     let site = |offset, number| {
//!         let member = MemberId::new(number).expect("a number that fits");
//!         Site::shared(heap, heap.header() + offset, member)
//!     };
//!     [site(0, 1), site(second, 2)]
//! }
//!
//! impl RootObject<Mapped> for People {
//!     fn root_type() -> RootType {
//!         RootType { name: "People".to_owned(), layout: 1 }
//!     }
//!
//!     fn create(heap: Heap<Mapped>) -> Result<Self, Error> {
//!         // A fresh heap's header has zeros. The root is linked when this returns.
//!         let [names, by_name] = sites(&Arc::new(heap));
//!         Ok(People { names: Names::create_in(names)?, by_name: ByName::create_in(by_name)? })
//!     }
//!
//!     fn open(heap: Heap<Mapped>) -> Result<Self, Error> {
//!         let heap = Arc::new(heap);
//!         let [names, by_name] = sites(&heap);
//!         let mut recovery = Recovery::new();
//!         let names = recovery.find::<Names>(names)?;
//!         let by_name = recovery.find::<ByName>(by_name)?;
//!         recovery.run(&heap, |_| false)?;
//!         Ok(People { names: names.finish()?, by_name: by_name.finish()? })
//!     }
//! }
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("people.pool");
//! let pool = Pool::options().create(&path)?;
//! let people: Arc<People> = pool.create_root("people")?;
//! people.names.insert(&1, "Ada")?;
//! people.by_name.insert("Ada", &1)?;
//! drop((people, pool));
//!
//! let people: Arc<People> = Pool::options().open(&path)?.open_root("people")?;
//! assert_eq!(people.names.get(&1)?.as_deref(), Some("Ada"));
//! assert_eq!(people.by_name.get("Ada")?, Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod maps;
mod recovery;
mod site;
mod step;

use std::sync::Arc;

use remanent_pmem::heap::{Block, Violation};
use remanent_pmem::{Error as PoolError, Medium};

pub(crate) use self::maps::shareable_map;
pub(crate) use self::recovery::recover;
pub use self::recovery::{Found, Recovery};
pub use self::site::{MemberId, Site};
pub use self::step::Step;
pub(crate) use self::step::{Operation, Progress, SUSPECTS, Scope};

/// A structure that can lie in a heap with others: [`ExtendibleMap`](crate::ExtendibleMap),
/// [`ExtendibleMultiMap`](crate::ExtendibleMultiMap), [`HashMap`](crate::HashMap),
/// [`HashMultiMap`](crate::HashMultiMap), [`BlinkTree`](crate::BlinkTree),
/// [`Vector`](crate::Vector), [`AppendVector`](crate::AppendVector), [`Log`](crate::Log),
/// [`RowIndex`](crate::RowIndex) and [`SharedTx`](crate::SharedTx).
pub trait Shareable<M: Medium>: Sized {
    /// What of a structure is known before its heap has recovered.
    #[doc(hidden)]
    type Member: Member<M>;

    /// Bytes of its header.
    fn header_len() -> u64;

    /// Makes an empty structure. Its header is zeros that the caller has flushed. All of it is
    /// durable on return.
    ///
    /// # Errors
    ///
    /// When the pool is full. Nothing needs to be undone then: blocks that nothing leads to are
    /// free after a crash, and the caller gives the header back.
    fn create_in(site: Site<M>) -> Result<Self, PoolError>;

    /// Reads the header.
    #[doc(hidden)]
    fn find(site: Site<M>) -> Result<Self::Member, PoolError>;

    /// Makes it ready for use, once its heap has recovered.
    #[doc(hidden)]
    fn finish(member: Arc<Self::Member>) -> Result<Self, PoolError>;

    /// Looks for contradictions, and says which blocks the structure reaches. No operation may be
    /// in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the structure is part of the result, not an
    /// error.
    fn inspect(&self) -> crate::Result<Inspection>;
}

/// What [`Shareable::inspect`] has found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// What contradicts itself.
    pub violations: Vec<Violation>,
    /// Offsets of all blocks that the structure reaches, but its header; `None` when it is too
    /// damaged to say.
    pub blocks: Option<Vec<u64>>,
}

/// What recovery asks a structure.
#[doc(hidden)]
pub trait Member<M: Medium>: Send + Sync {
    /// Offsets of blocks that the structure leads to without a search, but its header.
    fn fixed_blocks(&self) -> Vec<u64>;

    /// How its other blocks say whose they are; `None` when there are none.
    fn route(&self) -> Option<Route<M>>;

    /// Whether the structure leads to `block`, whose content may be garbage, and which is no fixed
    /// one.
    ///
    /// # Errors
    ///
    /// When damage keeps the answer from being found.
    fn is_linked(&self, block: Block) -> crate::Result<bool>;
}

/// How blocks of one kind say to which structure they belong.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Route<M> {
    /// Name of the kind: two structures whose kinds have one name have one `read`.
    pub(crate) kind: &'static str,
    /// What the block at an offset says; `None` when it is certain to be of another kind.
    pub(crate) read: fn(&M, u64) -> Option<u32>,
    /// What blocks of this structure say. Others may say the same: then both are asked.
    pub(crate) key: u32,
}
