//! Sorted sets: members with scores, in the order of their scores and, where these are the same, of
//! the members' bytes.
//!
//! Each member has two entries in the tree ([`layout`]): one finds its score, the other has its
//! place in the order. How many members come before one is not stored, but counted when it is first
//! asked for ([`ranks`]).
//!
//! # Fences
//!
//! | what a command does                       | fences |
//! |-------------------------------------------|--------|
//! | write the intent                          | 2      |
//! | add up to 16 members                      | 2      |
//! | remove up to 16 members                   | 2      |
//! | change a score                            | 4      |
//! | create the set, and remove the intent     | 4      |
//! | remove its last member                    | 3      |

mod changes;
mod check;
mod edit;
mod layout;
mod range;
mod ranks;
mod score;
mod view;

pub(crate) use self::edit::Edit;
pub(crate) use self::range::{LexLimit, Range, Selection};
pub(crate) use self::score::Score;
pub(crate) use self::view::{Need, View};

// What `types.rs` asks of the type.
pub(super) use self::changes::Changes;
pub(super) use self::check::Contents;
pub(super) use self::ranks::RankCache;
