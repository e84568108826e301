//! What batches need of a tree.

use super::BlinkTree;
use super::step::Edit;
use crate::batch::edit::batched;

batched!(BlinkTree, OrderedKey, |core, key| core.probed(key, |probe| probe.gate_key::<K>()));
