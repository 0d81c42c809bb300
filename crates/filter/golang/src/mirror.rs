//! A copy of a head's or trailers' fields that threads of Go may read while the worker does other things.
//!
//! What Go code is given of it may be a pointer: texts are never moved or freed until the stream is over.

use crate::abi::GoString;
use crate::dear::Left;

#[derive(Debug, Default)]
pub(crate) struct Mirror {
    built: bool,
    lines: Vec<Line>,
    arena: Vec<u8>,
    /// Texts that were set later.
    added: Vec<Box<[u8]>>,
    /// Memory of earlier copies.
    old: Vec<Vec<u8>>,
    /// What Go code was told of the fields' number and bytes: it has room for so much.
    announced: (usize, usize),
}

#[derive(Debug, Clone, Copy)]
struct Line {
    name: Span,
    value: Span,
}

/// A text in memory that does not move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    start: *const u8,
    len: usize,
}

// SAFETY: the spans lead into memory that the mirror owns.
unsafe impl Send for Mirror {}

impl Span {
    fn of(bytes: &[u8]) -> Span {
        Span { start: bytes.as_ptr(), len: bytes.len() }
    }

    pub(crate) fn start(self) -> *const u8 {
        self.start
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a span is used as long as its mirror has it, and that keeps its memory.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// How many fields there are, and the bytes of their names and values.
pub(crate) type Size = (usize, usize);

/// Calls with each name and value of something.
pub(crate) type Each<'a> = &'a dyn Fn(&mut dyn FnMut(&[u8], &[u8]));

pub(crate) fn size_of(each: Each<'_>) -> Size {
    let mut size = (0, 0);
    each(&mut |name, value| {
        size.0 += 1;
        size.1 += name.len() + value.len();
    });
    size
}

impl Mirror {
    /// Of fields as they are now.
    pub(crate) fn of(each: Each<'_>) -> (Mirror, Size) {
        let mut mirror = Mirror::default();
        let size = size_of(each);
        mirror.announce(size);
        mirror.build(each);
        (mirror, size)
    }

    pub(crate) fn is_built(&self) -> bool {
        self.built
    }

    /// Another message or moment begins: what was copied is no longer true. Go code is told `size`.
    pub(crate) fn announce(&mut self, size: Size) {
        self.announced = size;
        self.built = false;
    }

    /// Copies.
    pub(crate) fn build(&mut self, each: Each<'_>) {
        self.lines.clear();
        if !self.arena.is_empty() {
            self.old.push(std::mem::take(&mut self.arena));
        }
        let (count, bytes) = size_of(each);
        // With all of its room, it does not move while it is filled.
        self.arena.reserve_exact(bytes);
        self.lines.reserve(count);
        let (arena, lines) = (&mut self.arena, &mut self.lines);
        each(&mut |name, value| {
            let mut put = |bytes: &[u8]| {
                let start = arena.len();
                arena.extend_from_slice(bytes);
                Span::of(arena.get(start..).unwrap_or_default())
            };
            lines.push(Line { name: put(name), value: put(value) });
        });
        self.built = true;
    }

    /// The first value of a field.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Span> {
        self.lines.iter().find(|line| is(line, name)).map(|line| line.value)
    }

    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        let line = Line { name: self.keep(name.to_ascii_lowercase()), value: self.keep(value.to_vec()) };
        self.lines.push(line);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.lines.retain(|line| !is(line, name));
    }

    fn keep(&mut self, bytes: Vec<u8>) -> Span {
        let bytes = bytes.into_boxed_slice();
        let span = Span::of(&bytes);
        self.added.push(bytes);
        span
    }

    /// Writes the fields where Go code has room for what was announced: names and values by turns.
    ///
    /// # Safety
    /// There is room for twice as many strings, and for as many bytes.
    pub(crate) unsafe fn copy_out(&self, mut strings: *mut GoString, mut bytes: *mut u8) {
        let (mut count, mut room) = self.announced;
        for line in &self.lines {
            let needed = line.name.len + line.value.len;
            if count == 0 || needed > room {
                return;
            }
            for text in [line.name, line.value] {
                // SAFETY: `count` and `room` say that there is room.
                unsafe {
                    (*strings).len = text.len as isize;
                    if text.len > 0 {
                        // Of an empty text Go must not see an address that may lie behind its memory.
                        (*strings).start = bytes;
                        bytes.copy_from_nonoverlapping(text.start, text.len);
                    }
                    strings = strings.add(1);
                    bytes = bytes.add(text.len);
                }
            }
            count -= 1;
            room -= needed;
        }
    }

    /// The stream is over. What Go code may still read goes to `left`.
    pub(crate) fn reset(&mut self, left: &mut Left) {
        self.announced = (0, 0);
        self.built = false;
        if self.lines.capacity() == 0 && self.added.is_empty() {
            return;
        }
        self.lines.clear();
        left.texts.append(&mut self.old);
        if !self.arena.is_empty() {
            left.texts.push(std::mem::take(&mut self.arena));
        }
        left.added.append(&mut self.added);
    }
}

fn is(line: &Line, name: &[u8]) -> bool {
    let known = line.name.bytes();
    known.eq_ignore_ascii_case(name) || known == b":authority" && name.eq_ignore_ascii_case(b"host")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(mirror: &Mirror, count: usize, bytes: usize) -> Vec<String> {
        let mut strings = vec![GoString { start: std::ptr::null(), len: 0 }; count * 2];
        let mut room = vec![0; bytes];
        // SAFETY: there is room for what was announced.
        unsafe { mirror.copy_out(strings.as_mut_ptr(), room.as_mut_ptr()) };
        let text = |string: &GoString| match string.start.is_null() {
            true => String::new(),
            // SAFETY: it was just written.
            false => {
                String::from_utf8(unsafe { std::slice::from_raw_parts(string.start, string.len as usize) }.to_vec())
                    .unwrap()
            }
        };
        strings.iter().map(text).collect()
    }

    #[test]
    fn a_copy_is_edited_and_told_within_its_room() {
        let mut mirror = Mirror::default();
        let each = |call: &mut dyn FnMut(&[u8], &[u8])| {
            call(b":authority", b"x");
            call(b"a", b"1");
            call(b"empty", b"");
        };
        let size = size_of(&each);
        assert_eq!(size, (3, 18));
        mirror.announce(size);
        assert!(!mirror.is_built());
        mirror.build(&each);
        assert_eq!(copied(&mirror, 3, 18), [":authority", "x", "a", "1", "empty", ""]);
        assert_eq!(mirror.get(b"Host").unwrap().bytes(), b"x");
        let before = mirror.get(b"a").unwrap();
        mirror.set(b"A", b"22");
        mirror.add(b"a", b"3");
        assert_eq!((before.bytes(), mirror.get(b"a").unwrap().bytes()), (&b"1"[..], &b"22"[..]));
        // More than was announced is not told.
        assert_eq!(copied(&mirror, 3, 18), [":authority", "x", "empty", "", "", ""]);
        mirror.remove(b"a");
        assert!(mirror.get(b"a").is_none());
        let mut left = Left::default();
        mirror.reset(&mut left);
        assert!(mirror.get(b"empty").is_none());
        // Whoever holds the old value can still read it.
        assert_eq!((before.bytes(), left.texts.len(), left.added.len()), (&b"1"[..], 1, 4));
        mirror.reset(&mut left);
        assert_eq!(left.texts.len(), 1);
    }
}
