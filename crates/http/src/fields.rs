//! The fields of one message: a received byte block, an index into it, and a side arena for edits.
//!
//! A codec loads a whole received head with [`Fields::load`] and indexes its lines with
//! [`Fields::index_lines`]; filters and the router read and edit; [`crate::write_request`] and
//! [`crate::write_response`] emit. Names are lower-cased in place while they are validated. Nothing
//! gets into the index unvalidated, so nothing unvalidated can be emitted. Cleared and reused from
//! message to message: in the steady state nothing here allocates.

use std::borrow::Cow;

use crate::chars::is_field_value;
use crate::header_id::IdSet;
use crate::{FieldError, HeaderId, HeaderName};

mod edit;
mod received;
mod usual;

pub use usual::UsualHead;

/// Most fields that one index addresses, whatever the configured limit: positions are 16 bits wide.
pub const MAX_INDEXED_FIELDS: usize = 16_384;

/// Longest field name taken: lengths are 16 bits wide.
pub const MAX_NAME_BYTES: usize = u16::MAX as usize;

/// Fields of one message in the order received.
#[derive(Clone, Debug)]
pub struct Fields {
    /// Received bytes up to `received`, rubbish behind: nothing in the index, and no span, goes there.
    block: Vec<u8>,
    received: usize,
    /// Where the last head ended that was loaded the short way: the next one is hardly much longer.
    last_usual: usize,
    arena: Vec<u8>,
    index: Vec<Entry>,
    /// Position + 1 of the first live entry of each id; 0 when there is none.
    first: [u16; HeaderId::COUNT],
    /// Bit per id that was pushed more than once since the last clear.
    repeated: u128,
    /// Ids that were pushed since the last clear, as far as sets hold them.
    noted: IdSet,
    live: usize,
    /// So many entries at the beginning are received lines behind one another, as a fresh serialisation would
    /// write them, up to the end of the last. A lower bound: 0 is always right.
    in_order: usize,
}

/// One field as the index holds it: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    name_start: u32,
    value_start: u32,
    value_len: u32,
    /// 0 when it was removed.
    name_len: u16,
    pub(crate) id: HeaderId,
    flags: u8,
}

/// The field was removed; its place stays so that positions are stable.
const REMOVED: u8 = 1;
/// Name and value stand in a line that is exactly `name: value CRLF`, with the name in lower case.
const LINE: u8 = 2;
/// The name lies in the arena (else in the block).
const NAME_IN_ARENA: u8 = 4;
/// The value lies in the arena.
const VALUE_IN_ARENA: u8 = 8;

/// A live field in a received line that needs no serialisation.
const CANONICAL: u8 = LINE;
/// A live field in a line of the arena.
const ADDED: u8 = LINE | NAME_IN_ARENA | VALUE_IN_ARENA;

impl Entry {
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.flags & REMOVED == 0
    }

    /// Whether it is live, and emitting its received line equals emitting it afresh.
    #[inline]
    pub(crate) fn is_canonical(&self) -> bool {
        self.flags == CANONICAL
    }

    /// Whether it is live and was added, with a line of its own in the arena.
    #[inline]
    pub(crate) fn is_added(&self) -> bool {
        self.flags == ADDED
    }

    /// Whether this entry's line stands right behind that of `before`, the entry before it. Received lines always do;
    /// the arena has other things in it as well.
    #[inline(always)]
    pub(crate) fn follows(&self, before: &Self) -> bool {
        self.flags == before.flags && (self.flags == CANONICAL || self.line_start() == before.line_end())
    }

    /// Where its line begins, in block or arena. Only for canonical and added entries.
    #[inline]
    pub(crate) fn line_start(&self) -> usize {
        self.name_start as usize
    }

    /// Where its line, CR LF included, ends. Only for canonical and added entries.
    #[inline]
    pub(crate) fn line_end(&self) -> usize {
        self.value_start as usize + self.value_len as usize + 2
    }
}

/// A well-known field with its value, checked once and added to many heads.
#[derive(Clone, Debug)]
pub struct FieldLine {
    /// `name: value CRLF`
    bytes: Box<[u8]>,
    /// Its entry in an index, were the arena empty before.
    entry: Entry,
    /// [`HeaderId::noted_bit`]
    bit: IdSet,
}

impl FieldLine {
    /// # Errors
    /// [`FieldError::Name`] for [`HeaderId::Unknown`], [`FieldError::Value`] for a control byte.
    pub fn new(id: HeaderId, value: &[u8]) -> Result<Self, FieldError> {
        if id == HeaderId::Unknown {
            return Err(FieldError::Name);
        }
        let (start, value) = (id.line_start(), checked_value(value)?);
        let entry = Entry {
            name_start: 0,
            name_len: start.len().saturating_sub(2) as u16,
            value_start: position(start.len())?,
            value_len: position(value.len())?,
            id,
            flags: ADDED,
        };
        Ok(Self { bytes: [start, value, b"\r\n"].concat().into(), entry, bit: id.noted_bit() })
    }

    /// The line as it is written, its CR LF included.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        let start = self.entry.value_start as usize;
        self.bytes.get(start..start + self.entry.value_len as usize).unwrap_or_default()
    }
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            block: Vec::new(),
            received: 0,
            last_usual: 0,
            arena: Vec::new(),
            index: Vec::new(),
            first: [0; HeaderId::COUNT],
            repeated: 0,
            noted: 0,
            live: 0,
            in_order: 0,
        }
    }
}

impl Fields {
    /// No fields, nothing allocated yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything, keeps the capacity.
    #[inline]
    pub fn clear(&mut self) {
        self.received = 0;
        self.arena.clear();
        self.index.clear();
        self.first = [0; HeaderId::COUNT];
        self.repeated = 0;
        self.noted = 0;
        self.live = 0;
        self.in_order = 0;
    }

    /// Number of fields (lines, not names).
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes of all names and values: what limits on decoded heads count.
    pub fn byte_len(&self) -> usize {
        self.iter().map(|field| field.name.len() + field.value.len()).sum()
    }

    /// Capacity held for reuse, in bytes.
    pub fn capacity(&self) -> usize {
        self.block.capacity() + self.arena.capacity() + self.index.capacity() * size_of::<Entry>()
    }

    // ---- reading -------------------------------------------------------------------------------------

    /// Whether a field with `id` is there.
    #[inline]
    pub fn has(&self, id: HeaderId) -> bool {
        self.first_position(id).is_some()
    }

    /// Whether one of the fields is there by which a request says how often and how long it wants to be tried, or what is
    /// counted and answered then.
    #[inline]
    pub fn asks_for_attempts(&self) -> bool {
        const FIRST: usize = HeaderId::XEnvoyUpstreamAltStatName as usize;
        const LAST: usize = HeaderId::XEnvoyUpstreamRqTimeoutMs as usize;
        // Some words together: the ids stand side by side in the table.
        self.first.get(FIRST..=LAST).is_some_and(|places| places.iter().fold(0, |any, place| any | place) != 0)
    }

    /// Whether one of the fields is there that only a client inside may send.
    #[inline]
    pub fn speaks_from_inside(&self) -> bool {
        const FIRST: usize = HeaderId::XEnvoyDecoratorOperation as usize;
        const LAST: usize = HeaderId::XEnvoyUpstreamRqTimeoutMs as usize;
        // As above.
        self.first.get(FIRST..=LAST).is_some_and(|places| places.iter().fold(0, |any, place| any | place) != 0)
    }

    /// The first value of a well-known field. `None` for [`HeaderId::Unknown`].
    #[inline]
    pub fn get(&self, id: HeaderId) -> Option<&[u8]> {
        let entry = self.index.get(self.first_position(id)?)?;
        Some(self.value_of(entry))
    }

    /// All values of a well-known field, in order.
    pub fn get_all(&self, id: HeaderId) -> impl Iterator<Item = &[u8]> {
        let from = self.first_position(id).unwrap_or(self.index.len());
        self.entries_from(from).filter(move |entry| entry.id == id).map(|entry| self.value_of(entry))
    }

    /// The first value of the field called `name`, which must be lower case.
    pub fn get_name(&self, name: &[u8]) -> Option<&[u8]> {
        match HeaderId::from_lower(name) {
            id @ HeaderId::Unknown => self.all_named(id, name).next(),
            id => self.get(id),
        }
    }

    /// All values of the fields called `name`, which must be lower case.
    pub fn get_all_name<'f, 'n>(&'f self, name: &'n [u8]) -> impl Iterator<Item = &'f [u8]> + use<'f, 'n> {
        self.all_named(HeaderId::from_lower(name), name)
    }

    /// The first value of a field whose name was resolved at configuration time.
    #[inline]
    pub fn find(&self, name: &HeaderName) -> Option<&[u8]> {
        match name.id() {
            id @ HeaderId::Unknown => self.all_named(id, name.as_bytes()).next(),
            id => self.get(id),
        }
    }

    /// All values of a field whose name was resolved at configuration time.
    pub fn find_all<'f, 'n>(&'f self, name: &'n HeaderName) -> impl Iterator<Item = &'f [u8]> + use<'f, 'n> {
        self.all_named(name.id(), name.as_bytes())
    }

    /// Every field in order.
    pub fn iter(&self) -> impl Iterator<Item = FieldRef<'_>> {
        self.entries_from(0).map(|entry| FieldRef {
            id: entry.id,
            name: self.name_of(entry),
            value: self.value_of(entry),
        })
    }

    // ---- for the rules and the writers of this crate -----------------------------------------------------

    #[inline]
    pub(crate) fn block(&self) -> &[u8] {
        self.block.get(..self.received).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Bytes of the received block; an out-of-range request is empty.
    #[inline]
    pub(crate) fn block_range(&self, range: Span) -> &[u8] {
        self.block.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn arena_range(&self, range: Span) -> &[u8] {
        self.arena.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// Copies `bytes` into the arena.
    pub(crate) fn stash(&mut self, bytes: &[u8]) -> Span {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        Span { start, end: self.arena.len() as u32 }
    }

    /// The path at `span`, and the arena to build a new one in. A path that lies in the arena itself
    /// (absolute-form without a path) is copied out first.
    pub(crate) fn path_and_arena(&mut self, span: Span, in_arena: bool) -> (Cow<'_, [u8]>, &mut Vec<u8>) {
        let range = span.start as usize..span.end as usize;
        let path = if in_arena {
            Cow::Owned(self.arena.get(range).unwrap_or_default().to_vec())
        } else {
            Cow::Borrowed(self.block.get(range).unwrap_or_default())
        };
        (path, &mut self.arena)
    }

    /// Whether a field with one of these ids may be there: false is certain.
    #[inline]
    pub(crate) fn may_have(&self, ids: IdSet) -> bool {
        self.noted & ids != 0
    }

    /// Whether more than one field with `id` was received or added.
    #[inline]
    pub(crate) fn is_repeated(&self, id: HeaderId) -> bool {
        self.repeated & (1 << id as u8) != 0
    }

    /// Names that are not well known, as far as they can hold anything but letters, digits and `-`.
    #[inline]
    pub(crate) fn odd_names(&self) -> impl Iterator<Item = &[u8]> {
        // The entries in order came by the usual way, which takes no others.
        self.entries_from(self.in_order).filter(|entry| entry.id == HeaderId::Unknown).map(|entry| self.name_of(entry))
    }

    /// The value of the one Content-Length, when it was received as a fresh serialisation would be: `None` for
    /// leading zeros.
    #[inline]
    pub(crate) fn canonical_length(&self) -> Option<u64> {
        crate::framing::parse_length(self.canonical_length_digits()?)
    }

    /// Its digits.
    #[inline]
    pub(crate) fn canonical_length_digits(&self) -> Option<&[u8]> {
        let entry = self.index.get(self.first_position(HeaderId::ContentLength)?)?;
        if self.is_repeated(HeaderId::ContentLength) || !entry.is_canonical() {
            return None;
        }
        Some(self.value_of(entry)).filter(|digits| !matches!(digits, [b'0', _, ..]))
    }

    /// The received lines that can be emitted as one: how many entries they are, and their bytes in the block.
    /// Up to the first field whose id is in `ids`.
    #[inline]
    pub(crate) fn lines_before(&self, ids: IdSet) -> (usize, std::ops::Range<usize>) {
        let mut count = self.in_order;
        let mut present = self.noted & ids;
        while present != 0 {
            // A bit is its id's position in the table.
            let first = self.first.get(present.trailing_zeros() as usize).copied().unwrap_or_default();
            count = (first as usize).checked_sub(1).map_or(count, |at| count.min(at));
            present &= present - 1;
        }
        match (self.index.first(), self.index.get(..count).and_then(<[Entry]>::last)) {
            (Some(first), Some(last)) => (count, first.line_start()..last.line_end()),
            _ => (0, 0..0),
        }
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.index
    }

    #[inline]
    pub(crate) fn name_of(&self, entry: &Entry) -> &[u8] {
        let start = entry.name_start as usize;
        self.name_source(entry).get(start..start + entry.name_len as usize).unwrap_or_default()
    }

    /// What an entry's name lies in.
    #[inline]
    fn name_source(&self, entry: &Entry) -> &[u8] {
        if entry.flags & NAME_IN_ARENA != 0 { &self.arena } else { &self.block }
    }

    #[inline]
    pub(crate) fn value_of(&self, entry: &Entry) -> &[u8] {
        let source = if entry.flags & VALUE_IN_ARENA != 0 { &self.arena } else { &self.block };
        let start = entry.value_start as usize;
        source.get(start..start + entry.value_len as usize).unwrap_or_default()
    }

    // ---- inside ----------------------------------------------------------------------------------------

    #[inline]
    fn first_position(&self, id: HeaderId) -> Option<usize> {
        if id == HeaderId::Unknown {
            return None;
        }
        (*self.first.get(id as usize)? as usize).checked_sub(1)
    }

    #[inline]
    fn entries_from(&self, from: usize) -> impl Iterator<Item = &Entry> {
        self.index.get(from..).unwrap_or_default().iter().filter(|entry| entry.is_live())
    }

    /// The first live entry from position `from` on with this lower-case name, which is not well known.
    #[inline]
    fn unknown_from(&self, from: usize, name: &[u8]) -> Option<usize> {
        let (&last, before) = name.split_last()?;
        // Most names are of another length, and removed ones have none. Those of a family (`x-acme-…`) are often of one
        // length and differ at their end.
        let is_it = |entry: &Entry| {
            entry.name_len as usize == name.len()
                && entry.id == HeaderId::Unknown
                && self.name_source(entry).get(entry.name_start as usize + before.len()) == Some(&last)
                && self.name_of(entry) == name
        };
        Some(from + self.index.get(from..)?.iter().position(is_it)?)
    }

    /// The values of the fields with `id`, and for [`HeaderId::Unknown`] with this lower-case name.
    #[inline]
    fn all_named<'f, 'n>(&'f self, id: HeaderId, name: &'n [u8]) -> Values<'f, 'n> {
        // Of a well-known field it is known where the first is.
        let next = match id {
            HeaderId::Unknown => 0,
            id => self.first_position(id).unwrap_or(self.index.len()),
        };
        Values { fields: self, id, name, next }
    }

    #[inline]
    fn push(&mut self, entry: Entry) -> Result<(), FieldError> {
        if self.index.len() >= MAX_INDEXED_FIELDS {
            return Err(FieldError::TooLarge);
        }
        self.index.push(entry);
        self.live += 1;
        self.noted |= entry.id.noted_bit();
        if let Some(first) = self.first.get_mut(entry.id as usize) {
            if *first == 0 {
                *first = self.index.len() as u16;
            } else {
                self.repeated |= 1 << entry.id as u8;
            }
        }
        Ok(())
    }
}

/// All values of one field.
struct Values<'f, 'n> {
    fields: &'f Fields,
    id: HeaderId,
    /// In lower case; counts where the field is not well known.
    name: &'n [u8],
    /// No value lies before this position.
    next: usize,
}

impl<'f> Iterator for Values<'f, '_> {
    type Item = &'f [u8];

    #[inline]
    fn next(&mut self) -> Option<&'f [u8]> {
        let fields = self.fields;
        let at = match self.id {
            HeaderId::Unknown => fields.unknown_from(self.next, self.name)?,
            id => {
                let rest = fields.index.get(self.next..)?;
                self.next + rest.iter().position(|entry| entry.is_live() && entry.id == id)?
            }
        };
        let is_last = self.id != HeaderId::Unknown && !fields.is_repeated(self.id);
        self.next = if is_last { fields.index.len() } else { at + 1 };
        Some(fields.value_of(fields.index.get(at)?))
    }
}

/// A field as the iterators give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// The id, [`HeaderId::Unknown`] when the name is not well known.
    pub id: HeaderId,
    /// The lower-case name.
    pub name: &'a [u8],
    /// The value without surrounding white space.
    pub value: &'a [u8],
}

/// A range in the block or in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: u32,
    pub end: u32,
}

/// `value` without surrounding white space, when it may stand in a field.
#[inline]
fn checked_value(value: &[u8]) -> Result<&[u8], FieldError> {
    let value = crate::chars::trim_ows(value);
    if is_field_value(value) { Ok(value) } else { Err(FieldError::Value) }
}

fn position(at: usize) -> Result<u32, FieldError> {
    u32::try_from(at).map_err(|_| FieldError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_line_is_added_as_if_it_was_appended_and_only_once() {
        let line = FieldLine::new(HeaderId::XForwardedProto, b" http ").unwrap();
        assert_eq!(line.value(), b"http");
        let (mut prepared, mut appended) = (Fields::new(), Fields::new());
        for _ in 0..2 {
            prepared.append_line_if_absent(&line).unwrap();
        }
        appended.append(HeaderId::XForwardedProto, b"http").unwrap();
        let all = |fields: &Fields| Vec::from_iter(fields.iter().map(|f| (f.name.to_vec(), f.value.to_vec())));
        assert_eq!(all(&prepared), all(&appended));
        assert_eq!(prepared.get(HeaderId::XForwardedProto), Some(&b"http"[..]));
        let (mut one, mut other) = (Vec::new(), Vec::new());
        crate::write_trailers(&prepared, &mut one);
        crate::write_trailers(&appended, &mut other);
        assert_eq!(one, other);
        assert!(FieldLine::new(HeaderId::Server, b"a\r\nb").is_err());
        assert!(FieldLine::new(HeaderId::Unknown, b"a").is_err());
    }

    fn loaded(lines: &[&str]) -> Fields {
        let mut head = b"start".to_vec();
        let mut ends = vec![5];
        for line in lines {
            head.extend_from_slice(format!("\r\n{line}").as_bytes());
            ends.push(head.len() as u32);
        }
        head.extend_from_slice(b"\r\n\r\n");
        let mut fields = Fields::new();
        fields.load(&head, lines.len() + 2).unwrap();
        fields.index_lines(&ends).unwrap();
        fields
    }

    fn shown(fields: &Fields) -> Vec<(String, String)> {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        fields.iter().map(|f| (text(f.name), text(f.value))).collect()
    }

    #[test]
    fn received_lines_are_found_by_id_and_name() {
        let fields = loaded(&["HoSt: a", "X-One:  1 ", "x-two:", "X-ONE: 2", "Cookie:\ta=b"]);
        assert_eq!(fields.len(), 5);
        assert_eq!(fields.get(HeaderId::Host), Some(&b"a"[..]));
        assert_eq!(fields.get(HeaderId::Cookie), Some(&b"a=b"[..]));
        assert_eq!(fields.get_name(b"x-two"), Some(&b""[..]));
        assert_eq!(fields.get_all_name(b"x-one").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.get(HeaderId::Unknown), None);
    }

    #[test]
    fn well_known_fields_are_all_found_by_name_after_edits() {
        let mut fields = loaded(&["x-one: 1", "cookie: a", "server: s", "cookie: b"]);
        let all = |fields: &Fields, name: &[u8]| fields.get_all_name(name).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(all(&fields, b"cookie"), [b"a", b"b"]);
        assert_eq!(all(&fields, b"server"), [b"s"]);
        assert!(all(&fields, b"authorization").is_empty());
        fields.append_name(b"server", b"t").unwrap();
        assert_eq!(all(&fields, b"server"), [b"s", b"t"]);
        fields.remove_name(b"server");
        assert!(all(&fields, b"server").is_empty());
        fields.append_name(b"server", b"u").unwrap();
        assert_eq!(all(&fields, b"server"), [b"u"]);
        fields.set_name(b"cookie", b"c").unwrap();
        assert_eq!(all(&fields, b"cookie"), [b"c"]);
    }

    #[test]
    fn edits_keep_order_and_first_positions() {
        let mut fields = loaded(&["cookie: a", "x-one: 1", "cookie: b", "server: s"]);
        assert_eq!(fields.get_all(HeaderId::Cookie).count(), 2);
        fields.set(HeaderId::Server, b"me").unwrap();
        fields.set_name(b"X-One", b"11").unwrap();
        fields.append_name(b"X-New", b" v ").unwrap();
        fields.append(HeaderId::Via, b"1.1 p").unwrap();
        let want =
            [("cookie", "a"), ("x-one", "11"), ("cookie", "b"), ("server", "me"), ("x-new", "v"), ("via", "1.1 p")];
        assert_eq!(shown(&fields), want.map(|(n, v)| (n.to_owned(), v.to_owned())));
        fields.set(HeaderId::Cookie, b"c").unwrap();
        assert_eq!(fields.get_all(HeaderId::Cookie).collect::<Vec<_>>(), [b"c"]);
        assert!(fields.remove(HeaderId::Cookie));
        assert!(!fields.has(HeaderId::Cookie));
        assert!(fields.remove_name(b"X-ONE"));
        assert!(!fields.remove_name(b"x-one"));
        assert_eq!(fields.len(), 3);
        fields.clear();
        assert!(fields.is_empty() && fields.get(HeaderId::Via).is_none());
    }

    #[test]
    fn names_of_a_family_are_told_apart_in_any_case() {
        let long = format!("X-{}", "Long-".repeat(20));
        let mut fields = loaded(&["x-a-1: 1", "x-a-2: 2", "x-a-11: 3", "X-A-1: 4", "user-agent: curl"]);
        fields.set_name(b"X-A-2", b"two").unwrap();
        fields.set_name(b"x-a-1", b"one").unwrap();
        fields.set_name(b"USER-AGENT", b"wget").unwrap();
        fields.set_name(long.as_bytes(), b"far").unwrap();
        fields.set_name(long.as_bytes(), b"farther").unwrap();
        assert_eq!(fields.set_name(b"x a", b"v"), Err(FieldError::Name));
        let long = long.to_ascii_lowercase();
        let want = [("x-a-1", "one"), ("x-a-2", "two"), ("x-a-11", "3"), ("user-agent", "wget"), (&*long, "farther")];
        assert_eq!(shown(&fields), want.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert!(fields.remove_name(b"X-a-1") && fields.remove_name(b"User-Agent") && !fields.remove_name(b"x-a-3"));
        assert_eq!(fields.get(HeaderId::UserAgent), None);
        assert!(fields.remove_name(long.as_bytes()));
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn removing_the_first_of_several_finds_the_next() {
        let mut fields = loaded(&["cookie: a", "cookie: b", "cookie: c"]);
        let mut seen = 0;
        fields.retain(|_| {
            seen += 1;
            seen > 1
        });
        assert_eq!(fields.get(HeaderId::Cookie), Some(&b"b"[..]));
    }

    #[test]
    fn bad_edits_change_nothing() {
        let mut fields = loaded(&["host: a"]);
        for bad in [&b"a\r\nx: y"[..], b"a\nb", b"\0", b"\x7f"] {
            assert_eq!(fields.set(HeaderId::Host, bad), Err(FieldError::Value));
            assert_eq!(fields.append_name(b"x-a", bad), Err(FieldError::Value));
        }
        assert_eq!(fields.append_name(b"x a", b"v"), Err(FieldError::Name));
        assert_eq!(fields.append(HeaderId::Unknown, b"v"), Err(FieldError::Name));
        assert_eq!(shown(&fields), [("host".to_owned(), "a".to_owned())]);
    }
}
