//! TATP before and after a `kill -9`, as SOFORT's authors measure and show it (Oukid et al., CIDR
//! 2015).
//!
//! Two processes take part. The *users* process ([`serve`]) opens the database and executes TATP
//! until it is killed. The *observer* ([`Trial::run`]) starts it, kills it, starts it again, and
//! reads from its standard output what it does every 10 ms. The result is a [`Timeline`].
//!
//! A program that observes calls [`serve`] when it is executed with the arguments that it gives to
//! [`Trial`]. `remanent-bench recovery` and `remanent demo recovery` are such programs.

mod event;
mod long;
mod plan;
mod process;
mod store;
mod timeline;
mod trial;
mod users;

pub use self::plan::{ENTRIES_PER_SUBSCRIBER, Plan, RebuildPolicy, placed};
pub use self::store::{ROOT, check, load, open_pool, place};
pub use self::timeline::{LongTransaction, Phases, Timeline, Window};
pub use self::trial::{Seen, Trial};
pub use self::users::serve;
