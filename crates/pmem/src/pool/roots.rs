//! The root directory: name → (type, layout, heap).
//!
//! ```text
//! entry, 256 bytes
//! byte   0  state: 0 none, 1 being created, 2 live, 3 being dropped
//!        8  heap chunk                    64  name, UTF-8, zero-padded (64 bytes)
//!       16  layout hash                  128  type name, UTF-8, zero-padded (128 bytes)
//!       24  CRC32C of bytes 8 … 23 and 64 … 255
//!       32  generation: how often a root of this number was created
//!       40  in the header chunk: word that leads to a directory chunk (`directory.rs`)
//! ```
//!
//! The state word is stored last, and alone decides. A crash while a root is created or dropped
//! leaves state 1 or 3. The next opening then gives back all chunks of its heap.

use std::any::Any;
use std::sync::Arc;

use crate::heap::Heap;
use crate::medium::{LINE_LEN, Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{ChunkId, ChunkKind, ROOT_LEN, RootId, root_count_max};
use crate::pool::registry::Registry;
use crate::pool::root_type::RootType;
use crate::pool::space::purpose::Purpose;
use crate::{Error, Result};

pub(super) const STATE: u64 = 0;
pub(super) const HEAP: u64 = 8;
pub(super) const LAYOUT: u64 = 16;
pub(super) const CRC: u64 = 24;
pub(super) const GENERATION: u64 = 32;
pub(super) const NAME: u64 = 64;
const NAME_LEN: u64 = 64;
pub(super) const TYPE: u64 = 128;
const TYPE_LEN: u64 = 128;

/// Maximal number of names in an error.
const NAMES_TOLD_MAX: usize = 20;

const NONE: u64 = 0;
const CREATING: u64 = 1;
const LIVE: u64 = 2;
const DROPPING: u64 = 3;

/// A root as the directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// Its number.
    pub id: RootId,
    /// Its name.
    pub name: String,
    /// Its type.
    pub root_type: RootType,
    /// Chunk with the header of its heap.
    pub(crate) heap: ChunkId,
}

/// A structure under a root, shared by everyone in this process who opened it.
pub trait RootObject<M: Medium>: Send + Sync + Sized + 'static {
    /// Whether the structure survives garbage in lines that were being written when the power
    /// failed; see [`Options::write_disturbance`](crate::Options::write_disturbance).
    const SURVIVES_DISTURBANCE: bool = false;

    /// Name and layout, to be compared with those in the directory.
    fn root_type() -> RootType;

    /// Fills a fresh heap. Everything written must be durable when this returns.
    ///
    /// # Errors
    ///
    /// Any error; the root is then not created.
    fn create(heap: Heap<M>) -> Result<Self>;

    /// Recovers from an existing heap.
    ///
    /// # Errors
    ///
    /// When the structure is damaged.
    fn open(heap: Heap<M>) -> Result<Self>;
}

impl<M: Medium> Pool<M> {
    /// Every live root.
    ///
    /// # Errors
    ///
    /// When an entry fails its checksum.
    pub fn roots(&self) -> Result<Vec<RootInfo>> {
        let mut roots = Vec::new();
        for id in self.root_ids() {
            if self.medium().load(self.root_entry(id) + STATE) == LIVE {
                roots.push(self.read_entry(id)?);
            }
        }
        Ok(roots)
    }

    /// Number and generation of every live root, whatever else its entry says.
    pub fn live_roots(&self) -> Vec<(RootId, u64)> {
        let is_live = |id: &RootId| self.medium().load(self.root_entry(*id) + STATE) == LIVE;
        self.root_ids().filter(is_live).map(|id| (id, self.root_generation(id))).collect()
    }

    /// Whether there is a root of that name.
    ///
    /// # Errors
    ///
    /// When an entry fails its checksum.
    pub fn has_root(&self, name: &str) -> Result<bool> {
        let mut registry = self.registry().lock(self.medium());
        Ok(self.find(&mut registry, name)?.is_some())
    }

    /// Whether there is a live root of that number; checks its entry and that its heap belongs to
    /// it. Nobody creates or removes roots meanwhile.
    pub(super) fn check_root(&self, id: RootId) -> Result<bool> {
        match self.medium().load(self.root_entry(id) + STATE) {
            NONE => Ok(false),
            LIVE => self.check_heap(&self.read_entry(id)?).map(|()| true),
            CREATING | DROPPING => {
                let what = "a root was being created or removed, and opening has not completed it";
                Err(Error::corrupt(self.root_entry(id) + STATE, what))
            }
            unknown => Err(self.unknown_state(id, unknown)),
        }
    }

    /// Creates the structure `T` under a new root.
    ///
    /// # Errors
    ///
    /// Those of [`create_root_with`](Pool::create_root_with).
    pub fn create_root<T: RootObject<M>>(&self, name: &str) -> Result<Arc<T>> {
        self.create_root_with(name, T::create)
    }

    /// Creates the structure `T` under a new root: `fill` creates it in a fresh heap, durably when
    /// `fill` returns.
    ///
    /// # Errors
    ///
    /// [`Error::RootExists`], [`Error::RootName`], [`Error::Disturbed`], or the error of `fill`.
    /// The pool is then as before; also if `fill` panics.
    pub fn create_root_with<T: RootObject<M>>(
        &self,
        name: &str,
        fill: impl FnOnce(Heap<M>) -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut registry = self.registry().lock(self.medium());
        if let Some(root) = self.find(&mut registry, name)? {
            let found = root.root_type.to_string();
            return Err(Error::RootExists { name: name.to_owned(), found });
        }
        let root_type = T::root_type();
        check_name(name, &root_type)?;
        self.check_disturbance::<T>(name)?;
        let id = self.vacant_entry(&mut registry, name)?;
        let unfinished = Unfinished { pool: self, id };
        let created = self
            .write_entry(id, name, &root_type)
            .and_then(|heap| fill(Heap::create(self.clone(), id, heap)?));
        std::mem::forget(unfinished);
        let object = match created {
            Ok(object) => Arc::new(object),
            Err(error) => {
                self.clear_entry(id)?;
                return Err(error);
            }
        };
        self.store_own([(self.root_entry(id) + STATE, LIVE)]);
        // Flush and fence: the root is durable before it is handed out. `fill` has made its content
        // durable.
        self.medium().persist(self.root_entry(id) + STATE, WORD_LEN);
        registry.add_name(name, id);
        let shared: Arc<dyn Any + Send + Sync> = object.clone();
        registry.open.insert(id, Arc::downgrade(&shared));
        Ok(object)
    }

    /// Opens the structure `T` under an existing root.
    ///
    /// Opening a root again yields the same object, because its volatile part exists once in a
    /// process.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRoot`], [`Error::WrongType`], [`Error::Disturbed`], or the error of recovery;
    /// [`Error::RootInUse`] when the root is open as another Rust type with the same name and
    /// layout as `T`.
    pub fn open_root<T: RootObject<M>>(&self, name: &str) -> Result<Arc<T>> {
        let mut registry = self.registry().lock(self.medium());
        let root = self.find_present(&mut registry, name)?;
        let expected = T::root_type();
        if root.root_type != expected {
            let (name, found) = (name.to_owned(), root.root_type);
            return Err(Error::WrongType { name, found, expected });
        }
        if let Some(open) = registry.open.get(&root.id).and_then(|weak| weak.upgrade()) {
            let in_use = |_| Error::RootInUse { name: name.to_owned() };
            return open.downcast::<T>().map_err(in_use);
        }
        self.check_disturbance::<T>(name)?;
        self.wait_for_heap(root.id);
        self.check_heap(&root)?;
        let object = Arc::new(T::open(Heap::open(self.clone(), root.id, root.heap)?)?);
        let shared: Arc<dyn Any + Send + Sync> = object.clone();
        registry.open.insert(root.id, Arc::downgrade(&shared));
        Ok(object)
    }

    /// Removes a root and gives back all its space, in time proportional to the pool.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRoot`]; [`Error::RootInUse`] while the root is open.
    pub fn remove_root(&self, name: &str) -> Result<()> {
        let mut registry = self.registry().lock(self.medium());
        let root = self.find_present(&mut registry, name)?;
        if registry.open.get(&root.id).is_some_and(|weak| weak.strong_count() > 0) {
            return Err(Error::RootInUse { name: name.to_owned() });
        }
        self.wait_for_heap(root.id);
        self.store_own([(self.root_entry(root.id) + STATE, DROPPING)]);
        // Flush and fence: from here on the root is gone; after a crash recovery completes the
        // removal.
        self.medium().persist(self.root_entry(root.id) + STATE, WORD_LEN);
        registry.remove_name(name, root.id);
        self.clear_entry(root.id)
    }

    /// Completes what a crash interrupted: roots that were being created or dropped.
    pub(crate) fn recover_roots(&self) -> Result<()> {
        for id in self.root_ids() {
            match self.medium().load(self.root_entry(id) + STATE) {
                NONE | LIVE => {}
                CREATING | DROPPING => self.clear_entry(id)?,
                unknown => return Err(self.unknown_state(id, unknown)),
            }
        }
        Ok(())
    }

    /// The root of that name. The names are read once in a process; the entry is read each time.
    fn find(&self, registry: &mut Registry, name: &str) -> Result<Option<RootInfo>> {
        if registry.names.is_none() {
            let roots = self.roots()?;
            registry.names = Some(roots.into_iter().map(|root| (root.name, root.id)).collect());
        }
        let id = registry.names.as_ref().and_then(|names| names.get(name));
        id.map(|&id| self.read_entry(id)).transpose()
    }

    fn find_present(&self, registry: &mut Registry, name: &str) -> Result<RootInfo> {
        if let Some(root) = self.find(registry, name)? {
            return Ok(root);
        }
        let mut present: Vec<String> = self.roots()?.into_iter().map(|root| root.name).collect();
        let more = present.len().saturating_sub(NAMES_TOLD_MAX);
        present.truncate(NAMES_TOLD_MAX);
        let present = match (present.is_empty(), more) {
            (true, _) => "none".to_owned(),
            (false, 0) => present.join(", "),
            (false, more) => format!("{}, and {more} more", present.join(", ")),
        };
        Err(Error::NoSuchRoot { name: name.to_owned(), present })
    }

    fn check_disturbance<T: RootObject<M>>(&self, name: &str) -> Result<()> {
        if self.guarantee().write_disturbance && !T::SURVIVES_DISTURBANCE {
            let structure = T::root_type().to_string();
            return Err(Error::Disturbed { name: name.to_owned(), structure });
        }
        Ok(())
    }

    fn check_heap(&self, root: &RootInfo) -> Result<()> {
        let inside = root.heap.is_data() && root.heap < self.chunk_end();
        if inside {
            let state = self.chunk_state(root.heap)?;
            if state.kind == ChunkKind::Heap && state.owner == root.id.0 {
                return Ok(());
            }
        }
        let what =
            format!("chunk {} is to be the heap of root {}, and is not", root.heap.0, root.id.0);
        Err(Error::corrupt(self.root_entry(root.id) + HEAP, what))
    }

    /// Waits until the heap of a root is quiescent, once nobody can reach the root any more.
    ///
    /// At this moment another thread may be dropping the last handle of the structure. The blocks
    /// that it still frees must not meet a second heap on the same chunks.
    fn wait_for_heap(&self, id: RootId) {
        while self.heaps().lock(self.medium()).contains(&id) {
            self.medium().pause();
        }
    }

    fn vacant_entry(&self, registry: &mut Registry, name: &str) -> Result<RootId> {
        let mut ids = self.root_ids().skip(registry.taken_before.into());
        let is_vacant = |id: &RootId| self.medium().load(self.root_entry(*id) + STATE) == NONE;
        let id = match ids.find(is_vacant) {
            Some(id) => id,
            None => self.grow_directory()?.ok_or_else(|| {
                let limit = root_count_max(self.0.version);
                let version = self.0.version;
                let reason = format!(
                    "a pool of format version {version} has no room for more than {limit} roots"
                );
                Error::RootName { name: name.to_owned(), reason }
            })?,
        };
        registry.taken_before = id.0 - 1;
        Ok(id)
    }

    /// Writes everything but the final state, and takes the heap's chunk.
    fn write_entry(&self, id: RootId, name: &str, root_type: &RootType) -> Result<ChunkId> {
        let medium = self.medium();
        let entry = self.root_entry(id);
        // The state after the generation: the order of stores within this line matters.
        let generation = self.root_generation(id) + 1;
        self.store_own([(entry + GENERATION, generation), (entry + STATE, CREATING)]);
        // Flush and fence: from here on recovery gives back everything that this root has taken;
        // and no other root has the same number and generation.
        medium.persist(entry + STATE, WORD_LEN);
        let heap = self.take_chunks(Purpose::Heap, id)?;
        medium.write_zeros(entry + NAME, ROOT_LEN - NAME);
        medium.write(entry + NAME, name.as_bytes());
        medium.write(entry + TYPE, root_type.name.as_bytes());
        self.store_own([(entry + HEAP, u64::from(heap.0)), (entry + LAYOUT, root_type.layout)]);
        self.store_own([(entry + CRC, self.entry_checksum(id))]);
        // Flush: fenced together with the heap's header, before the state says that the root is
        // live.
        medium.flush(entry, ROOT_LEN);
        Ok(heap)
    }

    /// Number of times a root of this number was created.
    pub(crate) fn root_generation(&self, id: RootId) -> u64 {
        self.medium().load(self.root_entry(id) + GENERATION)
    }

    fn clear_entry(&self, id: RootId) -> Result<()> {
        self.give_back_all(id);
        self.store_own([(self.root_entry(id) + STATE, NONE)]);
        // Flush and fence: the entry is reused only when no chunk belongs to it any more.
        // Redundant: if this is lost, recovery finds the state before it, and nothing left to give
        // back.
        self.medium().persist(self.root_entry(id) + STATE, WORD_LEN);
        Ok(())
    }

    fn read_entry(&self, id: RootId) -> Result<RootInfo> {
        let entry = self.root_entry(id);
        let stored = self.medium().load(entry + CRC);
        let computed = self.entry_checksum(id);
        if stored != computed {
            let what = format!(
                "root entry {} has checksum {stored:#x}, its fields give {computed:#x}",
                id.0
            );
            return Err(Error::corrupt(entry, what));
        }
        Ok(RootInfo {
            id,
            name: self.read_text(entry + NAME, NAME_LEN),
            root_type: RootType {
                name: self.read_text(entry + TYPE, TYPE_LEN),
                layout: self.medium().load(entry + LAYOUT),
            },
            heap: ChunkId(self.medium().load(entry + HEAP) as u32),
        })
    }

    fn entry_checksum(&self, id: RootId) -> u64 {
        let mut bytes = [0; (ROOT_LEN - LINE_LEN + 16) as usize];
        self.medium().read(self.root_entry(id) + HEAP, &mut bytes[..16]);
        self.medium().read(self.root_entry(id) + NAME, &mut bytes[16..]);
        u64::from(crate::crc32c(&bytes))
    }

    fn unknown_state(&self, id: RootId, state: u64) -> Error {
        Error::corrupt(self.root_entry(id), format!("root {} has unknown state {state}", id.0))
    }

    fn read_text(&self, offset: u64, len: u64) -> String {
        let mut bytes = vec![0; len as usize];
        self.medium().read(offset, &mut bytes);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// A root that is being created. Dropped when `fill` panics: takes the entry back, as for an error.
/// The heap, which `fill` had, is dropped by then.
struct Unfinished<'p, M: Medium> {
    pool: &'p Pool<M>,
    id: RootId,
}

impl<M: Medium> Drop for Unfinished<'_, M> {
    fn drop(&mut self) {
        // What fails here is completed by the next opening, which finds a root that was being
        // created.
        let _ = self.pool.clear_entry(self.id);
    }
}

fn check_name(name: &str, root_type: &RootType) -> Result<()> {
    let refuse = |reason: String| Err(Error::RootName { name: name.to_owned(), reason });
    if name.is_empty() || name.len() as u64 > NAME_LEN || name.contains('\0') {
        return refuse(format!("a name has 1 to {NAME_LEN} bytes and no NUL"));
    }
    if root_type.name.len() as u64 > TYPE_LEN {
        return refuse(format!("its type name has more than {TYPE_LEN} bytes"));
    }
    Ok(())
}
