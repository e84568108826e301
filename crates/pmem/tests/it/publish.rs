//! Fresh blocks, fences and links over a medium that counts what it is asked to do.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::persistent::read_value;
use remanent_pmem::{
    Dirty, Durable, Fault, Flushed, Fresh, Frozen, Link, Medium, Off, Persistent, Result, Word,
    fence,
};

/// Words on the heap, and a record of the flushes and fences.
struct Counting {
    words: Vec<AtomicU64>,
    needs_flush: bool,
    calls: Mutex<Vec<Call>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Flush { offset: u64, len: u64 },
    Fence,
}

impl Counting {
    fn new(needs_flush: bool) -> Self {
        let words = (0..512).map(|_| AtomicU64::new(0)).collect();
        Counting { words, needs_flush, calls: Mutex::default() }
    }

    /// What was flushed and fenced since the last time this was asked.
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn fences(&self) -> usize {
        self.calls().into_iter().filter(|call| *call == Call::Fence).count()
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        &self.words[offset as usize / 8]
    }

    fn fresh<T>(&self, offset: u64, len: u64) -> Fresh<'_, T, Dirty, Self> {
        // SAFETY: each test hands out ranges that do not overlap, once.
        unsafe { Fresh::from_raw(self, offset, len) }
    }
}

impl Medium for Counting {
    fn len(&self) -> u64 {
        self.words.len() as u64 * 8
    }
    fn needs_flush(&self) -> bool {
        self.needs_flush
    }
    fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }
    fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        self.word(offset).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
    fn compare_exchange_pair(
        &self,
        _: u64,
        _: [u64; 2],
        _: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        unreachable!("links are single words")
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (offset, byte) in (offset..).zip(bytes) {
            *byte = self.load(offset / 8 * 8).to_le_bytes()[offset as usize % 8];
        }
    }
    fn write(&self, offset: u64, bytes: &[u8]) {
        for (offset, byte) in (offset..).zip(bytes) {
            let mut word = self.load(offset / 8 * 8).to_le_bytes();
            word[offset as usize % 8] = *byte;
            self.store(offset / 8 * 8, u64::from_le_bytes(word));
        }
    }
    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        self.write(offset, bytes);
    }
    fn write_zeros(&self, offset: u64, len: u64) {
        self.write(offset, &vec![0; len as usize]);
    }
    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; range.len() as usize];
        self.read(range.offset(), &mut bytes);
        bytes.into()
    }
    fn flush(&self, offset: u64, len: u64) {
        self.calls.lock().unwrap().push(Call::Flush { offset, len });
    }
    fn fence(&self) {
        self.calls.lock().unwrap().push(Call::Fence);
    }
    fn grow(&self, _: u64) -> Result<()> {
        unreachable!("nothing here allocates")
    }
    fn release(&self, _: u64, _: u64) -> bool {
        false
    }
    fn pause(&self) {
        std::thread::yield_now();
    }
    fn thread(&self) -> u64 {
        0
    }
    fn fault(&self) -> Option<Fault> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Persistent)]
#[repr(C)]
struct Node {
    next: Off<Node>,
    key: u64,
    value: [u8; 12],
    check: u32,
}

const NODE_LEN: u64 = size_of::<Node>() as u64;
const HEAD: u64 = 64;

fn node(medium: &Counting, offset: u64) -> Fresh<'_, Node, Durable, Counting> {
    let mut node = medium.fresh::<Node>(offset, NODE_LEN);
    node.write_value(Node { next: Off::NULL, key: offset, value: *b"twelve bytes", check: 7 });
    fence(node.flush())
}

#[test]
fn what_was_written_is_what_is_read_and_flushed() {
    let medium = Counting::new(true);
    let mut block = medium.fresh::<Node>(1024, 256);
    assert_eq!((block.offset(), block.len(), block.off().raw()), (1024, 256, 1024));
    block.write(16, *b"twelve bytes");
    block.write(28, 9_u32);
    block.write_word(8, 5);
    block.write_bytes(33, b"tail");
    block.write_streaming(64, &[1; 128]);
    let block = fence(block.flush());

    // From the key to the tail's end; the streamed bytes need no flush.
    assert_eq!(medium.calls(), [Call::Flush { offset: 1024 + 8, len: 29 }, Call::Fence]);
    let value = Node { next: Off::NULL, key: 5, value: *b"twelve bytes", check: 9 };
    assert_eq!(read_value::<Node>(&medium, block.offset()), value);
    assert_eq!(read_value::<[u8; 4]>(&medium, 1024 + 33), *b"tail");
    assert_eq!(read_value::<[u64; 16]>(&medium, 1024 + 64), [0x0101_0101_0101_0101; 16]);
}

#[test]
fn a_reopened_block_flushes_only_what_is_written_again() {
    let medium = Counting::new(true);
    let mut block = node(&medium, 1024).reopen();
    medium.calls();
    block.write(0, Off::<Node>::new(2048));
    let block = fence(block.flush());
    assert_eq!(medium.calls(), [Call::Flush { offset: 1024, len: 8 }, Call::Fence]);
    assert_eq!(read_value::<Node>(&medium, 1024).next, Off::new(2048));
    assert_eq!(block.into_raw(), 1024);
}

#[test]
fn an_unwritten_block_is_not_flushed() {
    let medium = Counting::new(true);
    let block = medium.fresh::<Node>(1024, NODE_LEN).flush();
    assert_eq!(medium.calls(), []);
    assert_eq!(fence(block).into_raw(), 1024);
}

#[test]
fn one_fence_serves_any_number_of_blocks() {
    fn flushed(medium: &Counting, offset: u64) -> Fresh<'_, u64, Flushed, Counting> {
        let mut block = medium.fresh::<u64>(offset, 8);
        block.write_value(offset);
        block.flush()
    }
    let medium = Counting::new(true);
    let at = |offset| flushed(&medium, offset);
    let node = medium.fresh::<Node>(2048, NODE_LEN).flush();

    let (_, _) = fence((at(8), node));
    assert_eq!(medium.fences(), 1);
    let (_, _, _, _, _, _) = fence((at(16), at(24), at(32), at(40), at(48), at(56)));
    assert_eq!(medium.fences(), 1);
    let [_, _, _] = fence([at(64), at(72), at(80)]);
    assert_eq!(medium.fences(), 1);
    assert_eq!(fence((88..152).step_by(8).map(at).collect::<Vec<_>>()).len(), 8);
    assert_eq!(medium.fences(), 1);
    let (_, (_, [_, _])) = fence((at(160), (at(168), [at(176), at(184)])));
    assert_eq!(medium.fences(), 1);
    assert!(fence(Vec::<Fresh<'_, u64, Flushed, Counting>>::new()).is_empty());
    assert_eq!(medium.fences(), 0);
}

#[test]
#[should_panic(expected = "one fence cannot cover blocks of two media")]
fn a_fence_does_not_span_media() {
    let (one, other) = (Counting::new(true), Counting::new(true));
    let _ = fence((one.fresh::<u64>(8, 8).flush(), other.fresh::<u64>(8, 8).flush()));
}

#[test]
#[should_panic(expected = "8 bytes at 28 exceed the block of 32 bytes")]
fn a_write_stays_in_its_block() {
    let medium = Counting::new(true);
    medium.fresh::<Node>(1024, NODE_LEN).write_bytes(28, &[0; 8]);
}

#[test]
#[should_panic(expected = "too short")]
fn a_block_holds_its_header() {
    let _ = Counting::new(true).fresh::<Node>(1024, NODE_LEN - 8);
}

#[test]
fn publication_is_durable_and_clean_for_one_fence() {
    let medium = Counting::new(true);
    let link = Link::at(&medium, HEAD);
    link.replace(Word::NULL, Word::NULL.with_tag(3)).unwrap();
    let block = node(&medium, 1024);
    medium.calls();

    let published = link.publish(Word::NULL.with_tag(3), block).unwrap();
    assert_eq!(medium.calls(), [Call::Flush { offset: HEAD, len: 8 }, Call::Fence]);
    assert_eq!(published.word(), Word::to(1024).with_tag(3));
    assert_eq!(link.load(), published.word());
    assert_eq!(link.load_durable(), published.word());
    assert_eq!(medium.calls(), []);
}

#[test]
fn a_failed_publication_hands_the_block_back() {
    let medium = Counting::new(true);
    let link = Link::at(&medium, HEAD);
    link.publish(Word::NULL, node(&medium, 1024)).unwrap();
    let second = node(&medium, 2048);
    medium.calls();

    let (found, second) = link.publish(Word::NULL, second).unwrap_err();
    assert_eq!(medium.calls(), []);
    assert_eq!(found, Word::to(1024));
    let mut second = second.reopen();
    second.write(0, found.target::<Node>());
    link.publish(found, fence(second.flush())).unwrap();
    assert_eq!(medium.fences(), 2);
    assert_eq!(read_value::<Node>(&medium, link.load().offset()).next, Off::new(1024));
}

#[test]
fn a_block_is_published_by_a_word_that_leads_to_it() {
    let medium = Counting::new(true);
    let link = Link::at(&medium, HEAD);
    let word = Word::to(1024).with_mark().with_tag(9).with(Word::FLAG_B);
    link.publish_as(Word::NULL, node(&medium, 1024), word).unwrap();
    assert_eq!(link.load(), word);
}

#[test]
#[should_panic(expected = "does not lead to")]
fn a_block_is_not_published_by_another_word() {
    let medium = Counting::new(true);
    let _ = Link::at(&medium, HEAD).publish_as(Word::NULL, node(&medium, 1024), Word::to(2048));
}

#[test]
fn a_reader_helps_with_what_a_writer_left_dirty() {
    let medium = Counting::new(true);
    let link = Link::at(&medium, HEAD);
    let word = Word::to(1024).with_tag(1);
    medium.store(HEAD, word.with(Word::DIRTY).raw());

    assert_eq!(link.load_durable(), word);
    assert_eq!(medium.calls(), [Call::Flush { offset: HEAD, len: 8 }, Call::Fence]);
    assert_eq!(link.load(), word);
}

#[test]
fn helping_leaves_a_later_word_alone() {
    let medium = Counting::new(true);
    let link = Link::at(&medium, HEAD);
    let stale = Word::to(1024).with(Word::DIRTY);
    let later = Word::to(2048).with_tag(1);
    medium.store(HEAD, later.raw());
    assert_eq!(link.help(stale), Word::to(1024));
    assert_eq!(link.load(), later);
}

#[test]
fn without_flushes_no_word_is_dirty() {
    let medium = Counting::new(false);
    let link = Link::at(&medium, HEAD);
    link.publish(Word::NULL, node(&medium, 1024)).unwrap();
    medium.calls();
    let published = link.replace(Word::to(1024), Word::to(1024).with_mark()).unwrap();
    assert_eq!(published.word(), Word::to(1024).with_mark());
    assert_eq!(link.replace(Word::NULL, Word::NULL), Err(published.word()));
    assert_eq!(medium.calls(), []);
}

#[test]
fn publications_of_many_threads_are_all_there() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 12;
    let medium = Counting::new(true);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let medium = &medium;
            scope.spawn(move || {
                for block in 0..BLOCKS {
                    let offset = 1024 + (thread * BLOCKS + block) * 48;
                    let link = Link::at(medium, HEAD);
                    let mut block = medium.fresh::<Node>(offset, NODE_LEN);
                    let mut expected = link.load_durable();
                    loop {
                        block.write(0, expected.target::<Node>());
                        match link.publish(expected, fence(block.flush())) {
                            Ok(_) => break,
                            Err((_, refused)) => {
                                expected = link.load_durable();
                                block = refused.reopen();
                            }
                        }
                    }
                }
            });
        }
    });
    let mut seen = Vec::new();
    let mut next = Link::at(&medium, HEAD).load();
    assert!(!next.is_dirty());
    while !next.is_null() {
        seen.push(next.offset());
        next = Word::to(read_value::<Node>(&medium, next.offset()).next.raw());
    }
    seen.sort_unstable();
    let expected: Vec<u64> = (0..THREADS * BLOCKS).map(|block| 1024 + block * 48).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_word_keeps_its_parts_apart() {
    let word = Word::to(0x1234_5670).with_tag(u16::MAX).with(Word::FLAG_A).with_mark();
    assert_eq!((word.offset(), word.tag()), (0x1234_5670, u16::MAX));
    assert!(word.is_marked() && word.has(Word::FLAG_A));
    assert!(!word.is_dirty() && !word.has(Word::FLAG_B) && !word.is_null());
    assert_eq!(word.with_next_tag().tag(), 0);
    assert_eq!(word.with_next_tag().offset(), word.offset());
    let elsewhere = word.with_offset((1 << 48) - 16).without(Word::MARK);
    assert_eq!(elsewhere.offset(), (1 << 48) - 16);
    assert_eq!((elsewhere.tag(), elsewhere.is_marked()), (u16::MAX, false));
    assert!(Word::NULL.with_tag(1).with_mark().is_null());
    assert_eq!(Word::from_raw(word.raw()), word);
    assert_eq!(format!("{word:?}"), "0x12345670 v65535 MARK FLAG_A");
}

#[test]
#[should_panic(expected = "aligned to 16 bytes")]
fn a_word_refuses_a_misaligned_target() {
    let _ = Word::to(0x1008);
}
