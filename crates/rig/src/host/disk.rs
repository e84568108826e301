//! A disk that loses its write cache with the power.
//!
//! Killing QEMU loses nothing that the guest has written to an ordinary disk, because it lies in
//! the host's page cache. So QEMU gets its disk from here, by NBD over a Unix socket. Writes of the
//! guest stay in this program's memory until the guest flushes; then they go to the file. When the
//! power is cut, each unflushed sector reaches the file or not, at random, as on a disk that writes
//! in an order of its own.
//!
//! A cut seldom comes between a write and its flush. So it waits for the next flush, which then
//! comes too late.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::random::Random;

/// Length of a sector, which the disk writes atomically.
const SECTOR_LEN: u64 = 512;
/// Maximal length of a request, more than QEMU uses.
const REQUEST_LEN_MAX: u32 = 64 << 20;

const SERVER_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 1 << 1;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;
const UNSUPPORTED: u32 = 1 << 31 | 1;

const HAS_FLAGS: u16 = 1;
const SENDS_FLUSH: u16 = 1 << 2;
const SENDS_FUA: u16 = 1 << 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
/// Flag of a write that must be durable when it is answered.
const FUA: u16 = 1;
/// Invalid argument.
const EINVAL: u32 = 22;
/// Input or output error.
const EIO: u32 = 5;

type Sector = [u8; SECTOR_LEN as usize];

/// The fate of the sectors that were not flushed when the power was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) lost: u64,
    pub(crate) kept: u64,
}

/// The disk: a file, and its unflushed sectors.
#[derive(Debug)]
struct Disk {
    file: File,
    len: u64,
    unflushed: BTreeMap<u64, Sector>,
}

impl Disk {
    fn open(path: &Path) -> io::Result<Disk> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        Ok(Disk { file, len, unflushed: BTreeMap::new() })
    }

    /// The sectors of a request; `None` if it is not for whole sectors of this disk.
    fn sectors(&self, offset: u64, len: u64) -> Option<std::ops::Range<u64>> {
        let end = offset.checked_add(len)?;
        let is_whole = offset.is_multiple_of(SECTOR_LEN) && len.is_multiple_of(SECTOR_LEN);
        (is_whole && end <= self.len).then_some(offset / SECTOR_LEN..end / SECTOR_LEN)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)?;
        let first = offset / SECTOR_LEN;
        let end = first + bytes.len() as u64 / SECTOR_LEN;
        for (number, sector) in self.unflushed.range(first..end) {
            let at = ((number - first) * SECTOR_LEN) as usize;
            bytes[at..at + sector.len()].copy_from_slice(sector);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, sector) in (offset / SECTOR_LEN..).zip(bytes.chunks_exact(SECTOR_LEN as usize))
        {
            self.unflushed.insert(number, sector.try_into().expect("a chunk of this length"));
        }
    }

    fn write_through(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        let first = offset / SECTOR_LEN;
        let written = first..first + bytes.len() as u64 / SECTOR_LEN;
        self.unflushed.retain(|number, _| !written.contains(number));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for (number, sector) in std::mem::take(&mut self.unflushed) {
            self.file.write_all_at(&sector, number * SECTOR_LEN)?;
        }
        Ok(())
    }

    /// Cuts the power: none, all, or any part of the unflushed sectors has reached the disk.
    fn fail(mut self, random: &mut Random) -> io::Result<Loss> {
        let kept_of_8 = random.below(9);
        let mut loss = Loss::default();
        for (number, sector) in std::mem::take(&mut self.unflushed) {
            if random.below(8) < kept_of_8 {
                self.file.write_all_at(&sector, number * SECTOR_LEN)?;
                loss.kept += 1;
            } else {
                loss.lost += 1;
            }
        }
        Ok(loss)
    }
}

/// Maximal time that a cut waits for a flush; a guest under load flushes many times in it.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(1);

/// A disk that waits for its machine, or serves it.
pub(crate) struct Served {
    thread: JoinHandle<Result<Disk>>,
    is_failing: Arc<AtomicBool>,
    /// Notified when a flush is refused because of a power cut.
    refused: Receiver<()>,
}

/// Shared with the thread that serves: whether the power is being cut.
struct Power {
    is_failing: Arc<AtomicBool>,
    refused: Sender<()>,
}

impl Power {
    fn fails(&self) -> bool {
        // Relaxed: it publishes nothing else.
        self.is_failing.load(Ordering::Relaxed)
    }
}

impl Served {
    /// Serves the disk in `file` to the first client that connects to `socket`.
    pub(crate) fn start(file: &Path, socket: &Path) -> Result<Served> {
        let disk = Disk::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        let listener = UnixListener::bind(socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let is_failing = Arc::new(AtomicBool::new(false));
        let (sender, refused) = mpsc::channel();
        let power = Power { is_failing: Arc::clone(&is_failing), refused: sender };
        let thread = std::thread::spawn(move || {
            let (link, _) = listener.accept().context("no machine connects to its disk")?;
            serve(disk, link, &power)
        });
        Ok(Served { thread, is_failing, refused })
    }

    /// Cuts the power of the disk at its next flush, which is never answered; if none comes, after
    /// a while.
    pub(crate) fn wait_for_flush(&self) {
        // Relaxed: see `Power::fails`.
        self.is_failing.store(true, Ordering::Relaxed);
        // If there is no flush, there is no load, and any moment is equally good.
        let _ = self.refused.recv_timeout(FLUSH_WAIT_MAX);
    }

    /// Decides about the write cache that the dead machine has left.
    pub(crate) fn fail(self, random: &mut Random) -> Result<Loss> {
        let disk = self.thread.join().map_err(|_| anyhow!("the disk panicked"))??;
        disk.fail(random).context("cannot write to the disk's file")
    }
}

/// Serves until the client is gone; an incomplete message does not count.
fn serve(mut disk: Disk, link: UnixStream, power: &Power) -> Result<Disk> {
    let mut reader = BufReader::new(link.try_clone()?);
    let mut writer = BufWriter::new(link);
    let served = negotiate(disk.len, &mut reader, &mut writer)
        .and_then(|()| answer_all(&mut disk, power, &mut reader, &mut writer));
    match served {
        Ok(()) => Ok(disk),
        Err(error) if is_end(&error) => Ok(disk),
        Err(error) => Err(anyhow!(error).context("the machine's disk")),
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn read_u16(reader: &mut impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    reader.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

fn read_u32(reader: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64(reader: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn read_bytes(reader: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    if len > REQUEST_LEN_MAX {
        return Err(wrong(format!("{len} bytes in one message")));
    }
    let mut bytes = vec![0; len as usize];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The fixed newstyle handshake, restricted to what QEMU needs.
fn negotiate(len: u64, reader: &mut impl Read, writer: &mut impl Write) -> io::Result<()> {
    writer.write_all(&SERVER_MAGIC.to_be_bytes())?;
    writer.write_all(&OPTION_MAGIC.to_be_bytes())?;
    writer.write_all(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
    writer.flush()?;
    let flags = read_u32(reader)?;
    let export = [&len.to_be_bytes()[..], &(HAS_FLAGS | SENDS_FLUSH | SENDS_FUA).to_be_bytes()];
    let export = export.concat();
    loop {
        if read_u64(reader)? != OPTION_MAGIC {
            return Err(wrong("no option".to_owned()));
        }
        let option = read_u32(reader)?;
        let data_len = read_u32(reader)?;
        read_bytes(reader, data_len)?;
        match option {
            EXPORT_NAME => {
                writer.write_all(&export)?;
                if flags & u32::from(NO_ZEROES) == 0 {
                    writer.write_all(&[0; 124])?;
                }
                return writer.flush();
            }
            GO => {
                let info = [&0u16.to_be_bytes()[..], &export].concat();
                reply(writer, option, INFO, &info)?;
                reply(writer, option, ACK, &[])?;
                return writer.flush();
            }
            ABORT => {
                reply(writer, option, ACK, &[])?;
                writer.flush()?;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            _ => reply(writer, option, UNSUPPORTED, &[])?,
        }
        writer.flush()?;
    }
}

fn reply(writer: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    writer.write_all(&OPTION_REPLY_MAGIC.to_be_bytes())?;
    writer.write_all(&option.to_be_bytes())?;
    writer.write_all(&kind.to_be_bytes())?;
    writer.write_all(&(data.len() as u32).to_be_bytes())?;
    writer.write_all(data)
}

fn answer_all(
    disk: &mut Disk,
    power: &Power,
    reader: &mut impl Read,
    writer: &mut impl Write,
) -> io::Result<()> {
    loop {
        if read_u32(reader)? != REQUEST_MAGIC {
            return Err(wrong("no request".to_owned()));
        }
        let flags = read_u16(reader)?;
        let kind = read_u16(reader)?;
        let cookie = read_u64(reader)?;
        let offset = read_u64(reader)?;
        let len = read_u32(reader)?;
        let data = if kind == WRITE { read_bytes(reader, len)? } else { Vec::new() };
        if kind == DISCONNECT {
            return Ok(());
        }
        if kind == FLUSH && power.fails() {
            // If the machine is already dead, nobody waits for this.
            let _ = power.refused.send(());
            // Keeps the link open: closing it would report a failed flush to the guest, which a
            // power cut does not.
            return io::copy(reader, &mut io::sink()).map(drop);
        }
        let (error, payload) = match disk.answer(kind, flags, offset, len, &data) {
            Ok(payload) => (0, payload),
            Err(error) => (error, Vec::new()),
        };
        writer.write_all(&REPLY_MAGIC.to_be_bytes())?;
        writer.write_all(&error.to_be_bytes())?;
        writer.write_all(&cookie.to_be_bytes())?;
        writer.write_all(&payload)?;
        writer.flush()?;
    }
}

impl Disk {
    /// Executes a request; returns the bytes of the answer, or an error number.
    fn answer(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, u32> {
        let is_inside = self.sectors(offset, len.into()).is_some() && len <= REQUEST_LEN_MAX;
        let done = match kind {
            READ if is_inside => {
                let mut bytes = vec![0; len as usize];
                self.read(offset, &mut bytes).map(|()| bytes)
            }
            WRITE if is_inside && flags & FUA != 0 => {
                self.write_through(offset, data).map(|()| Vec::new())
            }
            WRITE if is_inside => {
                self.write(offset, data);
                Ok(Vec::new())
            }
            FLUSH => self.flush().map(|()| Vec::new()),
            _ => return Err(EINVAL),
        };
        done.map_err(|_| EIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Sector = [b'a'; SECTOR_LEN as usize];
    const B: Sector = [b'b'; SECTOR_LEN as usize];

    fn disk() -> (tempfile::NamedTempFile, Disk) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(64 * SECTOR_LEN).expect("a length");
        let disk = Disk::open(file.path()).expect("opened");
        (file, disk)
    }

    fn power() -> (Power, Receiver<()>, Arc<AtomicBool>) {
        let (sender, refused) = mpsc::channel();
        let is_failing = Arc::new(AtomicBool::new(false));
        (Power { is_failing: Arc::clone(&is_failing), refused: sender }, refused, is_failing)
    }

    fn content(file: &tempfile::NamedTempFile) -> Vec<u8> {
        std::fs::read(file.path()).expect("read")
    }

    #[test]
    fn what_is_not_flushed_is_seen_and_lost() {
        let (file, mut disk) = disk();
        let write = |disk: &mut Disk, flags, offset, data: &[u8]| {
            disk.answer(WRITE, flags, offset, data.len() as u32, data).expect("written");
        };
        write(&mut disk, 0, 0, &A);
        disk.answer(FLUSH, 0, 0, 0, &[]).expect("flushed");
        write(&mut disk, 0, 0, &B);
        write(&mut disk, FUA, 1024, &B);
        let seen = disk.answer(READ, 0, 0, 1536, &[]).expect("read");
        assert_eq!(seen, [&B[..], &[0; 512], &B].concat());
        assert_eq!(content(&file)[..1536], [&A[..], &[0; 512], &B].concat());
        assert_eq!(disk.answer(WRITE, 0, 64 * SECTOR_LEN, 512, &A), Err(EINVAL));
        assert_eq!(disk.answer(READ, 0, 7, 512, &[]), Err(EINVAL));
    }

    #[test]
    fn any_part_of_what_is_not_flushed_survives() {
        let mut losses = Vec::new();
        for seed in 0..40 {
            let (file, mut disk) = disk();
            for sector in 0..32 {
                disk.write(sector * SECTOR_LEN, &A);
            }
            let loss = disk.fail(&mut Random::of(&[seed])).expect("failed");
            let kept = content(&file).chunks(512).filter(|sector| *sector == A).count();
            assert_eq!((loss.kept, loss.lost), (kept as u64, 32 - kept as u64));
            losses.push(loss.lost);
        }
        assert!(losses.contains(&0) && losses.contains(&32), "{losses:?}");
        assert!(losses.iter().any(|lost| (1..32).contains(lost)), "{losses:?}");
    }

    /// Does what QEMU does: a handshake, a write, a flush, a read, and the end.
    #[test]
    fn a_client_is_served_over_its_socket() {
        let (file, disk) = disk();
        let (here, there) = UnixStream::pair().expect("a socket");
        let (power, refused, is_failing) = power();
        let served = std::thread::spawn(move || serve(disk, there, &power));
        let mut link = here;
        let mut greeting = [0; 18];
        link.read_exact(&mut greeting).expect("greeted");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        link.write_all(&3u32.to_be_bytes()).expect("sent");
        for option in [8, GO] {
            let words = [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &[0; 4]];
            link.write_all(&words.concat()).expect("sent");
        }
        let mut replies = [0; 20 + 32 + 20];
        link.read_exact(&mut replies).expect("answered");
        assert_eq!(replies[12..16], UNSUPPORTED.to_be_bytes());
        assert_eq!(replies[20 + 22..20 + 30], (64 * SECTOR_LEN).to_be_bytes());
        let mut request = |kind: u16, len: u32, data: &[u8], answer_len: usize| {
            let head = [&REQUEST_MAGIC.to_be_bytes()[..], &[0; 2], &kind.to_be_bytes(), &[7; 8]];
            let place = [&512u64.to_be_bytes()[..], &len.to_be_bytes(), data];
            link.write_all(&[head.concat(), place.concat()].concat()).expect("sent");
            let mut answer = vec![0; 16 + answer_len];
            link.read_exact(&mut answer).expect("answered");
            assert_eq!(answer[4..16], [&[0; 4][..], &[7; 8]].concat());
            answer.split_off(16)
        };
        request(WRITE, 512, &A, 0);
        request(FLUSH, 0, &[], 0);
        assert_eq!(request(READ, 512, &[], 512), A);
        request(WRITE, 512, &B, 0);
        is_failing.store(true, Ordering::Relaxed);
        let flush = [&REQUEST_MAGIC.to_be_bytes()[..], &[0; 2], &FLUSH.to_be_bytes(), &[0; 20]];
        link.write_all(&flush.concat()).expect("sent");
        refused.recv().expect("refused");
        drop(link);
        let disk = served.join().expect("no panic").expect("served");
        assert!(disk.unflushed.len() == 1 && content(&file)[512..1024] == A);
    }
}
