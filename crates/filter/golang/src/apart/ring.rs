//! Bytes from one process to another through memory that both have: one writes, one reads.
//!
//! ```text
//! segment:  level | lane 0: ring down, ring up | lane 1: …      ring:  positions, busy (a page) | bytes
//! ```
//!
//! Positions only grow. Who finds nothing to read says so and waits at the socket; who writes then wakes it, so that a
//! reader which is busy costs its writer no call of the system. What finds no room waits with its writer, which is woken
//! the same way. A position that the other side made up is found out before anything is read or written by it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes that a ring holds: what is larger passes through it in parts.
const ROOM: usize = 256 * 1024;

/// What stands before a ring's bytes, and before the first ring.
const PAGE: usize = 4096;

const RING: usize = PAGE + ROOM;

/// Memory that two processes have.
#[derive(Debug)]
pub(super) struct Segment {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is a number of bytes that stay until it is dropped; who may touch which is up to the rings.
unsafe impl Send for Segment {}
// SAFETY: the same.
unsafe impl Sync for Segment {}

#[repr(C, align(64))]
struct Line<T>(T);

/// What both sides of a ring look at, each in a line of the processor's cache.
#[repr(C)]
struct Positions {
    written: Line<AtomicU64>,
    read: Line<AtomicU64>,
    reader_waits: Line<AtomicU32>,
    writer_waits: Line<AtomicU32>,
    /// Of a ring to a process: grows whenever that begins or ends with something; odd in between.
    busy: Line<AtomicU64>,
}

/// The other side broke the rules, or is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

#[derive(Debug, Clone)]
struct Ring {
    segment: Arc<Segment>,
    at: usize,
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    socket: Arc<UnixStream>,
    written: u64,
    /// What found no room.
    waiting: VecDeque<u8>,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    socket: Arc<UnixStream>,
    read: u64,
}

/// Which way a ring goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToProcess,
    ToProxy,
}

impl Segment {
    /// For so many lanes.
    pub(super) fn create(lanes: usize) -> io::Result<(Segment, OwnedFd)> {
        // SAFETY: the name is a string of C.
        let file = unsafe { libc::memfd_create(c"postrider-go".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let file = File::from(file);
        file.set_len(Segment::len_of(lanes) as u64)?;
        // Nobody takes away memory that the other reads.
        // SAFETY: a call without pointers, on a descriptor of ours.
        let sealed = unsafe {
            libc::fcntl(
                file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            )
        };
        if sealed != 0 {
            return Err(io::Error::last_os_error());
        }
        let file = OwnedFd::from(file);
        Ok((Segment::open(&file, lanes)?, file))
    }

    /// The same in the other process.
    pub(super) fn open(file: &OwnedFd, lanes: usize) -> io::Result<Segment> {
        let len = Segment::len_of(lanes);
        // SAFETY: new memory of the system's choice; the file cannot shrink.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Segment { start: start.cast(), len })
    }

    fn len_of(lanes: usize) -> usize {
        PAGE + lanes * 2 * RING
    }

    /// From which level on the proxy logs.
    pub(super) fn level(&self) -> &AtomicU32 {
        // SAFETY: the segment begins with a page, whose first word is this.
        unsafe { &*self.start.cast::<AtomicU32>() }
    }

    /// Whether a lane's thread in the process does something: see [`Positions`].
    pub(super) fn busy(&self, lane: usize) -> &AtomicU64 {
        &self.positions(self.place(lane, Direction::ToProcess)).busy.0
    }

    /// What a lane's thread in the process has done so far, as a number that changes with it; `None` when there is nothing
    /// to do for it.
    pub(super) fn progress(&self, lane: usize) -> Option<(u64, u64)> {
        let positions = self.positions(self.place(lane, Direction::ToProcess));
        let (busy, read) = (positions.busy.0.load(Ordering::Relaxed), positions.read.0.load(Ordering::Relaxed));
        (busy % 2 == 1 || read != positions.written.0.load(Ordering::Relaxed)).then_some((busy, read))
    }

    fn place(&self, lane: usize, direction: Direction) -> usize {
        let at = PAGE + (lane * 2 + usize::from(direction == Direction::ToProxy)) * RING;
        assert!(at + RING <= self.len, "there are fewer lanes");
        at
    }

    fn positions(&self, at: usize) -> &Positions {
        // SAFETY: a ring lies there in the segment, at the beginning of a page; all of its fields are atomic.
        unsafe { &*self.start.add(at).cast::<Positions>() }
    }

    fn ring(self: &Arc<Segment>, lane: usize, direction: Direction) -> Ring {
        Ring { segment: self.clone(), at: self.place(lane, direction) }
    }

    pub(super) fn writer(self: &Arc<Segment>, lane: usize, direction: Direction, socket: Arc<UnixStream>) -> Writer {
        Writer { ring: self.ring(lane, direction), socket, written: 0, waiting: VecDeque::new() }
    }

    pub(super) fn reader(self: &Arc<Segment>, lane: usize, direction: Direction, socket: Arc<UnixStream>) -> Reader {
        Reader { ring: self.ring(lane, direction), socket, read: 0 }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and rings keep the segment.
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.len) };
    }
}

impl Ring {
    fn positions(&self) -> &Positions {
        self.segment.positions(self.at)
    }

    /// Where the byte of a position lies, and how many follow before the ring begins anew.
    fn place(&self, position: u64) -> (*mut u8, usize) {
        let offset = (position % ROOM as u64) as usize;
        // SAFETY: the ring's bytes lie in the segment behind the page of its positions.
        (unsafe { self.segment.start.add(self.at + PAGE + offset) }, ROOM - offset)
    }
}

/// Bytes between two positions, if there can be so many.
fn between(read: u64, written: u64) -> Result<usize, Broken> {
    match written.checked_sub(read) {
        Some(count) if count <= ROOM as u64 => Ok(count as usize),
        _ => Err(Broken),
    }
}

/// Whoever waits at the other end looks again.
fn wake(socket: &UnixStream) {
    // One byte more makes no difference where so many wait that there is no room.
    // SAFETY: one byte of ours, and a descriptor of ours.
    unsafe { libc::send(socket.as_raw_fd(), [0_u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
}

impl Writer {
    /// Writes, and keeps what finds no room until [`Writer::flush`].
    ///
    /// # Errors
    /// The other side made up a position.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let taken = if self.waiting.is_empty() { self.put(bytes)? } else { 0 };
        let rest = bytes.get(taken..).unwrap_or_default();
        if !rest.is_empty() {
            self.waiting.extend(rest);
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what found no room before; what still finds none waits until the reader says that there is some.
    ///
    /// # Errors
    /// As for [`Writer::send`].
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            let (front, _) = waiting.as_slices();
            let taken = self.put(front)?;
            waiting.drain(..taken);
            self.waiting = waiting;
            if taken > 0 {
                continue;
            }
            let positions = self.ring.positions();
            positions.writer_waits.0.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // It may have read since, and not seen that somebody waits.
            if self.room()? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Something found no room.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The reader hears of what was written.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        let waits = &self.ring.positions().reader_waits.0;
        if waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0 {
            wake(&self.socket);
        }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    fn room(&self) -> Result<usize, Broken> {
        Ok(ROOM - between(self.ring.positions().read.0.load(Ordering::Acquire), self.written)?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut left = bytes.get(..bytes.len().min(self.room()?)).unwrap_or_default();
        let count = left.len();
        while !left.is_empty() {
            let (place, straight) = self.ring.place(self.written);
            let (now, later) = left.split_at(left.len().min(straight));
            // SAFETY: there is so much room, which the reader does not look at before the position says so.
            unsafe { place.copy_from_nonoverlapping(now.as_ptr(), now.len()) };
            self.written += now.len() as u64;
            left = later;
        }
        self.ring.positions().written.0.store(self.written, Ordering::Release);
        Ok(count)
    }
}

impl Reader {
    /// Appends all that is there, and answers how much that was.
    ///
    /// # Errors
    /// The other side made up a position.
    pub(super) fn read(&mut self, into: &mut Vec<u8>) -> Result<usize, Broken> {
        let count = self.there()?;
        let mut left = count;
        into.reserve(count);
        while left > 0 {
            let (place, straight) = self.ring.place(self.read);
            let now = left.min(straight);
            // SAFETY: `into` has room for it. The writer leaves these bytes alone until the position says that they were
            // read; if it does not, they are other bytes, which nobody relies on.
            unsafe {
                into.as_mut_ptr().add(into.len()).copy_from_nonoverlapping(place, now);
                into.set_len(into.len() + now);
            }
            self.read += now as u64;
            left -= now;
        }
        let positions = self.ring.positions();
        positions.read.0.store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        let waits = &positions.writer_waits.0;
        if waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::Relaxed) != 0 {
            wake(&self.socket);
        }
        Ok(count)
    }

    /// Waits until there is something to read or the other side wants to be looked at.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn wait(&self) -> Result<(), Broken> {
        let waits = &self.ring.positions().reader_waits.0;
        waits.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.there()? > 0 {
            waits.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let mut bytes = [0; 64];
        loop {
            match (&*self.socket).read(&mut bytes) {
                Ok(0) => return Err(Broken),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken),
            }
        }
    }

    fn there(&self) -> Result<usize, Broken> {
        between(self.read, self.ring.positions().written.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Writer, Reader) {
        let (segment, file) = Segment::create(1).unwrap();
        let other = Arc::new(Segment::open(&file, 1).unwrap());
        let (here, there) = UnixStream::pair().unwrap();
        let writer = Arc::new(segment).writer(0, Direction::ToProcess, Arc::new(here));
        (writer, other.reader(0, Direction::ToProcess, Arc::new(there)))
    }

    #[test]
    fn more_than_there_is_room_for_passes_in_parts() {
        let (mut writer, mut reader) = ends();
        let sent: Vec<u8> = (0..5 * ROOM + 77).map(|at| (at * 31 % 251) as u8).collect();
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            while got.len() < 5 * ROOM + 77 {
                if reader.read(&mut got).unwrap() == 0 {
                    reader.wait().unwrap();
                }
            }
            got
        });
        for piece in sent.chunks(70_001) {
            writer.send(piece).unwrap();
            writer.wake();
        }
        let mut byte = [0; 64];
        while !writer.waiting.is_empty() {
            // The reader says that there is room.
            assert!((&*writer.socket).read(&mut byte).unwrap() > 0);
            writer.flush().unwrap();
            writer.wake();
        }
        assert!(thread.join().unwrap() == sent);
    }

    #[test]
    fn a_position_that_was_made_up_is_found_out() {
        let (mut writer, mut reader) = ends();
        writer.send(b"abc").unwrap();
        reader.ring.positions().written.0.store(1 << 40, Ordering::Relaxed);
        assert_eq!(reader.read(&mut Vec::new()), Err(Broken));
        reader.ring.positions().read.0.store(1 << 40, Ordering::Relaxed);
        assert_eq!(writer.send(b"abc"), Err(Broken));
    }

    #[test]
    fn who_waits_hears_that_the_other_side_is_gone() {
        let (writer, reader) = ends();
        drop(writer);
        assert_eq!(reader.wait(), Err(Broken));
    }
}
