//! What `#[transactional]` makes of structs and their methods.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_pmem::pool::Guarantee;
use remanent_pmem::{Medium, Persistent, Pool};
use remanent_structures::line_tx::{SharedTx, Transactional, Tx};
use remanent_structures::transactional;

use crate::support::{self, fences};

fn sim_pool() -> Pool<Arc<Sim>> {
    support::sim_pool(Guarantee::default())
}

mod account {
    use super::*;

    /// Why an account refuses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Refusal {
        Overdrawn { by: u64 },
    }

    /// A `Result` that is not called one.
    pub(super) type Outcome = Result<u64, Refusal>;

    /// Money, and how often it moved.
    #[transactional(line)]
    #[derive(Debug, Default, PartialEq, Eq)]
    pub(super) struct Account {
        pub(super) balance: u64,
        pub(super) moves: u64,
    }

    #[transactional]
    impl Account {
        /// Adds money.
        pub(super) fn deposit(&mut self, amount: u64) {
            self.moves += 1;
            self.balance += amount;
        }

        pub(super) fn withdraw(&mut self, amount: u64) -> Result<u64, Refusal> {
            self.moves += 1;
            self.take(amount)
        }

        /// Counts what it refuses, too.
        #[transactional(commit_on_err)]
        pub(super) fn try_often(&mut self, amount: u64) -> Result<u64, Refusal> {
            self.moves += 1;
            self.take(amount)
        }

        #[transactional(abort_on_err)]
        pub(super) fn withdraw_all_but(&mut self, rest: u64) -> Outcome {
            self.moves += 1;
            self.take(self.balance.wrapping_sub(rest))
        }

        /// By its name no `Result`: what it changed is committed.
        pub(super) fn withdraw_by_another_name(&mut self, amount: u64) -> Outcome {
            self.moves += 1;
            self.take(amount)
        }

        pub(super) fn deposit_then_fail(&mut self, amount: u64) {
            self.deposit(amount);
            panic!("after the deposit");
        }

        /// Two methods that are transactions, in one.
        pub(super) fn exchange(&mut self, give: u64, take: u64) -> Result<u64, Refusal> {
            self.deposit(give);
            self.withdraw(take)
        }

        pub(super) fn balance(&self) -> u64 {
            self.balance
        }

        pub(super) fn checked(&self, most: u64) -> Result<u64, Refusal> {
            self.clone_less(most)
        }

        pub(super) fn into_parts(self) -> (u64, u64) {
            (self.balance, self.moves)
        }

        fn clone_less(mut self, amount: u64) -> Result<u64, Refusal> {
            self.take(amount)
        }

        fn take(&mut self, amount: u64) -> Result<u64, Refusal> {
            match self.balance.checked_sub(amount) {
                Some(balance) => {
                    self.balance = balance;
                    Ok(balance)
                }
                None => Err(Refusal::Overdrawn { by: amount - self.balance }),
            }
        }
    }

    #[transactional(commit_on_err)]
    impl Account {
        pub(super) fn block_commits(&mut self) -> Result<(), Refusal> {
            self.moves += 1;
            Err(Refusal::Overdrawn { by: 0 })
        }

        #[transactional(abort_on_err)]
        pub(super) fn method_aborts(&mut self) -> Result<(), Refusal> {
            self.moves += 1;
            Err(Refusal::Overdrawn { by: 0 })
        }
    }
}

use account::{Account, AccountShared, Refusal};

fn with_account(test: impl FnOnce(&Pool<Arc<Sim>>, account::AccountHandle<Arc<Sim>>)) {
    let pool = sim_pool();
    let handle = Account { balance: 100, moves: 0 }.create(&pool, "account").unwrap();
    test(&pool, handle);
}

#[test]
fn a_method_is_a_transaction() {
    with_account(|pool, mut account| {
        assert_eq!(fences(pool, || account.deposit(5).unwrap()), 1);
        assert_eq!(fences(pool, || assert_eq!(account.balance().unwrap(), 105)), 0);
        assert_eq!(account.into_parts().unwrap(), (105, 1));
        drop(account);
        let account = Account::open(pool, "account").unwrap();
        assert_eq!(account.get().unwrap(), Account { balance: 105, moves: 1 });
    });
}

#[test]
fn a_method_that_calls_others_is_one_transaction() {
    with_account(|pool, mut account| {
        let cost = fences(pool, || assert_eq!(account.exchange(20, 10).unwrap(), Ok(110)));
        assert_eq!((cost, account.into_parts().unwrap()), (1, (110, 2)));
        // The deposit goes with the withdrawal that was refused.
        let refused = account.exchange(1, 1000).unwrap();
        assert_eq!(refused, Err(Refusal::Overdrawn { by: 889 }));
        assert_eq!(account.into_parts().unwrap(), (110, 2));
    });
}

#[test]
fn calls_are_grouped_by_the_handle() {
    with_account(|pool, mut account| {
        let cost = fences(pool, || {
            account
                .transact(|account| {
                    account.deposit(1);
                    account.deposit(2);
                })
                .unwrap();
        });
        assert_eq!((cost, account.into_parts().unwrap()), (1, (103, 2)));
    });
}

#[test]
fn an_err_aborts_or_commits_as_documented() {
    with_account(|_, mut account| {
        let refused = Err(Refusal::Overdrawn { by: 100 });
        let mut moves = 0;
        let mut expect = |account: &account::AccountHandle<_>, commits: bool| {
            moves += u64::from(commits);
            assert_eq!(account.into_parts().unwrap(), (100, moves));
        };
        assert_eq!(account.withdraw(200).unwrap(), refused);
        expect(&account, false);
        assert_eq!(account.try_often(200).unwrap(), refused);
        expect(&account, true);
        assert!(account.withdraw_all_but(101).unwrap().is_err());
        expect(&account, false);
        assert_eq!(account.withdraw_by_another_name(200).unwrap(), refused);
        expect(&account, true);
        account.block_commits().unwrap().unwrap_err();
        expect(&account, true);
        account.method_aborts().unwrap().unwrap_err();
        expect(&account, false);
        // A method that only reads has nothing to abort.
        assert_eq!(account.checked(200).unwrap(), refused);
        expect(&account, false);
        assert_eq!(account.withdraw(40).unwrap(), Ok(60));
    });
}

#[test]
fn a_panic_in_a_method_rolls_back() {
    with_account(|_, mut account| {
        let broken = catch_unwind(AssertUnwindSafe(|| account.deposit_then_fail(7)));
        assert!(broken.is_err());
        assert_eq!(account.into_parts().unwrap(), (100, 0));
        account.deposit(1).unwrap();
        assert_eq!(account.balance().unwrap(), 101);
    });
}

#[test]
fn threads_share_an_object() {
    with_account(|pool, account| {
        assert_eq!(format!("{account:?}"), "AccountHandle { .. }");
        let shared = AccountShared::from(account);
        assert_eq!(format!("{shared:?}"), "AccountShared { .. }");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let shared = shared.clone();
                scope.spawn(move || {
                    for _ in 0..10 {
                        shared.deposit(1).unwrap();
                        shared.withdraw(1000).unwrap().unwrap_err();
                    }
                });
            }
        });
        assert_eq!(shared.into_parts().unwrap(), (140, 40));
        shared.transact(|account| account.deposit(2)).unwrap();
        let other = Account::open_shared(pool, "account").unwrap();
        assert_eq!(other.balance().unwrap(), 142);
    });
}

mod ring {
    use super::*;

    /// Has parameters, one of them called as macros like to call theirs.
    #[transactional]
    #[derive(Debug)]
    pub(super) struct Ring<const M: usize, const DOUBLED: bool>
    where
        [u8; M]: Persistent,
    {
        pub(super) bytes: [u8; M],
        next: u8,
    }

    #[transactional]
    impl<const M: usize, const DOUBLED: bool> Ring<M, DOUBLED> {
        pub(super) const fn new() -> Self {
            Ring { bytes: [0; M], next: 0 }
        }

        pub(super) fn push(&mut self, byte: u8) -> usize {
            self.bytes[self.next as usize] = if DOUBLED { 2 * byte } else { byte };
            self.next = (self.next + 1) % M as u8;
            self.next.into()
        }

        pub(super) const fn bytes(&self) -> [u8; M] {
            self.bytes
        }
    }

    #[transactional]
    impl Ring<4, true> {
        /// What only this ring has.
        pub(super) fn as_number(&self) -> u32 {
            u32::from_le_bytes(self.bytes)
        }
    }
}

/// A block in another module than the struct.
#[transactional]
impl<const LEN: usize> ring::Ring<LEN, false> {
    fn clear(&mut self) {
        *self = Self::new();
    }
}

#[test]
fn structs_have_const_parameters_and_several_blocks() {
    let pool = sim_pool();
    let mut doubled = ring::Ring::<4, true>::new().create(&pool, "doubled").unwrap();
    assert_eq!(doubled.push(1).unwrap(), 1);
    assert_eq!(doubled.as_number().unwrap(), 2);
    let mut long = ring::Ring::<100, false>::new().create(&pool, "long").unwrap();
    assert_eq!(fences(&pool, || assert_eq!(long.push(7).unwrap(), 1)), 2);
    assert_eq!(long.bytes().unwrap()[..2], [7, 0]);
    long.clear().unwrap();
    assert_eq!(long.bytes().unwrap(), [0; 100]);
    let shared: ring::RingShared<100, false, _> = long.into();
    shared.push(9).unwrap();
    shared.clear().unwrap();
    assert_eq!(shared.bytes().unwrap()[0], 0);
}

/// Methods whose signatures are anything but plain.
#[transactional]
#[derive(PartialEq, Eq, Debug, Clone, Persistent, Copy)]
#[repr(transparent)]
struct Text {
    bytes: [u8; Text::LEN],
}

#[transactional]
#[allow(clippy::needless_arbitrary_self_type)]
impl Text {
    const LEN: usize = 16;

    fn set_pair(&mut self, (first, second): (u8, u8), _: u16, mut offset: usize) {
        offset += 1;
        self.bytes[offset..offset + 2].copy_from_slice(&[first, second]);
    }

    fn fill<F, const N: usize>(&mut self, make: F, object: impl Into<u8>) -> [u8; N]
    where
        F: Fn(&mut Self, usize) -> u8,
    {
        let first = object.into();
        for index in 0..Self::LEN {
            self.bytes[index] = make(self, index) + first;
        }
        [first; N]
    }

    fn default_of<T: Default>(&self) -> T {
        T::default()
    }

    fn longer<'a>(self: &Self, text: &'a str, other: &'static str) -> &'a str {
        if text.len() >= other.len() { text } else { other }
    }

    fn swap(self: &mut Self, with: &mut Self) -> [u8; Self::LEN] {
        std::mem::swap(self, with);
        self.bytes
    }

    fn zeros(&self) -> impl Iterator<Item = usize> + use<> {
        self.bytes.into_iter().enumerate().filter(|(_, byte)| *byte == 0).map(|(at, _)| at)
    }

    fn letters(self: Self) -> impl Iterator<Item = u8> {
        self.bytes.into_iter().filter(u8::is_ascii_alphabetic)
    }

    fn doubler(&self) -> fn(&u8) -> u8 {
        |byte| 2 * byte
    }

    fn r#match(&mut self, r#type: u8) -> u8 {
        r#type
    }

    #[cfg(any())]
    fn not_compiled(&mut self) -> NoSuchType {}

    #[allow(clippy::too_many_arguments)]
    #[deprecated = "there is nothing like this"]
    fn many(&mut self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {
        self.bytes[..7].copy_from_slice(&[a, b, c, d, e, f, g]);
    }
}

#[test]
fn signatures_are_kept() {
    let pool = sim_pool();
    let mut text = Text { bytes: [0; 16] }.create(&pool, "text").unwrap();
    text.set_pair((b'a', b'b'), 0, 1).unwrap();
    assert_eq!(text.get().unwrap().bytes[..5], [0, 0, b'a', b'b', 0]);
    assert_eq!(
        text.zeros().unwrap().collect::<Vec<_>>(),
        [0, 1].into_iter().chain(4..16).collect::<Vec<_>>()
    );
    assert_eq!(text.letters().unwrap().collect::<Vec<_>>(), b"ab");
    let first: [u8; 2] = text.fill(|_, index| index as u8, 1).unwrap();
    assert_eq!((first, text.get().unwrap().bytes[15]), ([1; 2], 16));
    assert_eq!(text.default_of::<u64>().unwrap(), 0);
    assert_eq!(text.longer(&String::from("long"), "lo").unwrap(), "long");
    let mut other = Text { bytes: [3; 16] };
    assert_eq!(text.swap(&mut other).unwrap(), [3; 16]);
    assert_eq!(other.bytes[15], 16);
    assert_eq!(text.doubler().unwrap()(&4), 8);
    assert_eq!(text.r#match(4).unwrap(), 4);
    #[allow(deprecated)]
    text.many(1, 2, 3, 4, 5, 6, 7).unwrap();
    assert_eq!(TextShared::from(text).get().unwrap().bytes[6], 7);
}

/// Implements traits, with what belongs to them.
#[transactional]
struct Lines {
    counts: [u64; 3],
}

trait Tally<T> {
    type Total;
    const START: u64;

    fn tally(&self, more: T) -> Self::Total;
    fn drain(self) -> u64;
    fn raise(&mut self, by: T) -> Result<Self::Total, T>;
}

#[transactional]
impl<T: Into<u64> + Copy> Tally<T> for Lines {
    type Total = [u64; Self::LEN];
    const START: u64 = Self::LEN as u64;

    fn tally(&self, more: T) -> Self::Total {
        self.counts.map(|count| count + more.into())
    }

    fn drain(mut self) -> u64 {
        self.counts[0] += 1;
        self.counts.into_iter().sum()
    }

    fn raise(&mut self, by: T) -> Result<Self::Total, T> {
        self.counts[0] += by.into();
        if self.counts[0] > 10 { Err(by) } else { Ok(self.counts) }
    }
}

impl Lines {
    const LEN: usize = 3;
}

#[transactional]
impl fmt::Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.counts[0] += text.lines().count() as u64;
        self.counts[1] += text.len() as u64;
        if text.contains('\0') { Err(fmt::Error) } else { Ok(()) }
    }
}

#[transactional]
impl Iterator for Lines {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.counts[2] += 1;
        (self.counts[2] < 4).then_some(self.counts[2])
    }
}

#[test]
fn traits_are_implemented_for_the_handle() {
    let pool = sim_pool();
    let mut lines = Lines { counts: [0; 3] }.create(&pool, "lines").unwrap();
    assert_eq!(fences(&pool, || lines.write_str("one\ntwo\n").unwrap()), 1);
    lines.write_str("\0").unwrap_err();
    assert_eq!(lines.get().unwrap().counts, [2, 8, 0]);
    assert_eq!(lines.by_ref().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lines.tally(1_u8), [3, 9, 5]);
    assert_eq!(lines.raise(8_u32), Ok([10, 8, 4]));
    assert_eq!(lines.raise(1_u32), Err(1));
    assert_eq!(<LinesHandle<Arc<Sim>> as Tally<u8>>::START, 3);
    assert_eq!(Tally::<u8>::drain(lines), 23);
}

#[test]
fn a_medium_that_fails_is_an_error_of_methods_and_a_panic_of_traits() {
    let pool = sim_pool();
    let mut lines = Lines { counts: [0; 3] }.create(&pool, "lines").unwrap();
    let account = Account { balance: 1, moves: 0 }.create(&pool, "account").unwrap();
    pool.medium().poison(0, pool.medium().len());
    pool.medium().load(0); // This is what meets the fault.
    account.balance().unwrap_err();
    let panic = catch_unwind(AssertUnwindSafe(|| lines.next())).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("the transaction was not made durable"), "{text}");
}

#[test]
fn handles_are_made_from_transactional_objects() {
    let pool = sim_pool();
    let tx = Tx::create(&pool, "account", Account::default()).unwrap();
    let mut handle = account::AccountHandle::from(tx);
    handle.deposit(3).unwrap();
    drop(handle);
    let shared: SharedTx<Account, _> = SharedTx::open(&pool, "account").unwrap();
    assert_eq!(AccountShared::from(shared).balance().unwrap(), 3);
}

#[test]
fn an_object_may_be_declared_in_a_function() {
    #[transactional]
    struct Local(u64);

    #[transactional]
    impl Local {
        fn raise(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
    }

    let mut local = Local(1).create(&sim_pool(), "local").unwrap();
    assert_eq!(local.raise().unwrap(), 2);
}
