//! The command table: the rows of all groups in one order, and the search for a name.

use super::row::Command;

/// All commands and subcommands in alphabetical order. The subcommands of a container follow it.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: [Command; N],
    /// Open-addressing hash table from packed names to rows. It has no subcommands.
    index: [(u128, u8); SLOTS],
}

/// Longest name of a command in bytes: a packed name is one number of 128 bits.
const NAME_LEN_MAX: usize = 16;
/// Slots of the index: few enough to stay in the cache, and enough for most names to have a slot of
/// their own.
const SLOTS: usize = 256;
/// Marks an empty slot of the index.
const ABSENT: u8 = u8::MAX;

impl<const N: usize> Table<N> {
    /// Joins the rows of the groups. `order` is what [`order`] returns for them.
    pub(super) const fn new(groups: &[&[Command]], order: &[u8; N]) -> Self {
        let mut rows = arrange(groups, order);
        let mut index = [(0, ABSENT); SLOTS];
        let mut container = 0;
        let mut number = 0;
        while number < N {
            let name = rows[number].text.as_bytes();
            rows[number].number = number as u8;
            if is_subcommand(name) {
                assert!(starts_with(name, rows[container].text.as_bytes()), "no container");
                rows[container].subcommands += 1;
            } else {
                container = number;
                let Some(packed) = pack(name) else { panic!("a command's name is too long") };
                let mut slot = slot_of(packed);
                while index[slot].1 != ABSENT {
                    slot = (slot + 1) % SLOTS;
                }
                index[slot] = (packed, number as u8);
            }
            number += 1;
        }
        Table { rows, index }
    }

    /// The command that a word names, in any case.
    pub(crate) fn find(&self, word: &[u8]) -> Option<&Command> {
        let packed = pack(word)?;
        let mut slot = slot_of(packed);
        loop {
            match self.index[slot] {
                (_, ABSENT) => return None,
                (found, number) if found == packed => return Some(&self.rows[usize::from(number)]),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }

    /// The commands, without subcommands.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Command> + Clone {
        self.rows.iter().filter(|command| !is_subcommand(command.text.as_bytes()))
    }

    /// The commands and their subcommands.
    pub(crate) fn all(&self) -> &[Command] {
        &self.rows
    }

    /// The row with a number.
    pub(crate) fn get(&self, number: u8) -> Option<&Command> {
        self.rows.get(usize::from(number))
    }

    pub(crate) fn subcommands(&self, container: &Command) -> &[Command] {
        let first = usize::from(container.number) + 1;
        &self.rows[first..first + usize::from(container.subcommands)]
    }

    /// The subcommand of `container` that a word names, in any case.
    pub(crate) fn subcommand(&self, container: &Command, word: &[u8]) -> Option<&Command> {
        let mut subcommands = self.subcommands(container).iter();
        subcommands.find(|command| command.own_name().as_bytes().eq_ignore_ascii_case(word))
    }
}

/// How many rows the groups have together.
pub(super) const fn count(groups: &[&[Command]]) -> usize {
    let mut count = 0;
    let mut group = 0;
    while group < groups.len() {
        count += groups[group].len();
        group += 1;
    }
    assert!(count < ABSENT as usize, "numbers of commands take a byte");
    count
}

/// The number of each row in alphabetical order. The rows are indexed in the order of the groups.
pub(super) const fn order<const N: usize>(groups: &[&[Command]]) -> [u8; N] {
    let mut positions = [0; N];
    let mut position = 0;
    while position < N {
        positions[position] = position as u8;
        position += 1;
    }
    let names = arrange(groups, &positions);
    let mut order = [0; N];
    let mut row = 0;
    while row < N {
        let mut other = 0;
        while other < N {
            order[row] += is_before(names[other].text.as_bytes(), names[row].text.as_bytes()) as u8;
            other += 1;
        }
        row += 1;
    }
    order
}

/// Joins the elements of the groups to one array, in which each has the index that `order` says.
pub(super) const fn arrange<T: Copy, const N: usize>(groups: &[&[T]], order: &[u8; N]) -> [T; N] {
    let mut arranged = [groups[0][0]; N];
    let (mut group, mut position) = (0, 0);
    while group < groups.len() {
        let mut row = 0;
        while row < groups[group].len() {
            arranged[order[position] as usize] = groups[group][row];
            (row, position) = (row + 1, position + 1);
        }
        group += 1;
    }
    arranged
}

const fn is_subcommand(name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        if name[index] == b'|' {
            return true;
        }
        index += 1;
    }
    false
}

const fn starts_with(name: &[u8], start: &[u8]) -> bool {
    let mut index = 0;
    while index < start.len() {
        if index >= name.len() || name[index] != start[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Whether a name comes before another one. The bar in the names of subcommands comes before all
/// other characters.
const fn is_before(name: &[u8], other: &[u8]) -> bool {
    const fn rank(name: &[u8], index: usize) -> u8 {
        if index >= name.len() {
            0
        } else if name[index] == b'|' {
            1
        } else {
            name[index]
        }
    }
    let mut index = 0;
    while index < name.len() || index < other.len() {
        let (one, two) = (rank(name, index), rank(other, index));
        if one != two {
            return one < two;
        }
        index += 1;
    }
    false
}

/// A name as one number, the same in upper and lower case; `None` if no command can have it.
const fn pack(word: &[u8]) -> Option<u128> {
    if word.len() > NAME_LEN_MAX {
        return None;
    }
    let mut packed = 0;
    let mut index = 0;
    while index < word.len() {
        // A zero byte in front of others would not show in the number. No name has one.
        if word[index] == 0 {
            return None;
        }
        packed = packed << 8 | word[index].to_ascii_lowercase() as u128;
        index += 1;
    }
    Some(packed)
}

const fn slot_of(packed: u128) -> usize {
    // Multiplying by a number with well-spread bits makes the top bits depend on every byte.
    let folded = (packed >> 64) as u64 ^ packed as u64;
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use crate::command::TABLE;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in TABLE.commands() {
            for word in [command.text.to_owned(), command.text.to_uppercase()] {
                assert_eq!(TABLE.find(word.as_bytes()).map(|found| found.text), Some(command.text));
            }
            for subcommand in TABLE.subcommands(command) {
                let word = subcommand.own_name().to_uppercase();
                let found = TABLE.subcommand(command, word.as_bytes()).map(|found| found.text);
                assert_eq!(found, Some(subcommand.text));
            }
        }
        for word in [
            &b""[..],
            b"nosuch",
            b"ge",
            b"gett",
            b"\0get",
            b"client|id",
            b"a name that is too long",
        ] {
            assert!(TABLE.find(word).is_none());
        }
    }

    #[test]
    fn commands_are_in_order_and_named_once() {
        assert!(TABLE.commands().is_sorted_by(|a, b| a.text < b.text));
        for (number, command) in TABLE.all().iter().enumerate() {
            assert_eq!(usize::from(command.number), number);
            assert!(TABLE.subcommands(command).is_sorted_by(|a, b| a.text < b.text));
        }
        let subcommands: usize = TABLE.commands().map(|c| TABLE.subcommands(c).len()).sum();
        assert_eq!(subcommands + TABLE.commands().count(), TABLE.all().len());
    }

    #[test]
    fn arity_counts_the_name() {
        let get = TABLE.find(b"get").unwrap();
        assert!(!get.accepts(1) && get.accepts(2) && !get.accepts(3));
        let del = TABLE.find(b"del").unwrap();
        assert!(!del.accepts(1) && del.accepts(2) && del.accepts(99));
    }
}
