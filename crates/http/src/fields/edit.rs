//! Editing the fields of a message: an added line goes into the arena, a removed one stays as a tombstone.

use super::{
    ADDED, Entry, FieldLine, FieldRef, Fields, LINE, MAX_INDEXED_FIELDS, MAX_NAME_BYTES, REMOVED, VALUE_IN_ARENA,
    checked_value, position,
};
use crate::chars::{is_token, with_lower_case};
use crate::{FieldError, HeaderId, HeaderName};

impl Fields {
    /// Adds a well-known field after all others.
    ///
    /// # Errors
    /// [`FieldError::Value`] for a control byte; [`FieldError::Name`] for [`HeaderId::Unknown`].
    pub fn append(&mut self, id: HeaderId, value: &[u8]) -> Result<(), FieldError> {
        if id == HeaderId::Unknown {
            return Err(FieldError::Name);
        }
        let line_start = id.line_start();
        let value = checked_value(value)?;
        let start = self.line_room(line_start.len() + value.len())?;
        self.arena.extend_from_slice(line_start);
        self.finish_line(id, start, value)
    }

    /// Adds a field that was checked before, unless its like is there already.
    ///
    /// # Errors
    /// [`FieldError::TooLarge`]
    #[inline]
    pub fn append_line_if_absent(&mut self, line: &FieldLine) -> Result<(), FieldError> {
        let mut entry = line.entry;
        // Not by `push`, which looks once more whether there is one: each head gets a line or two.
        let Some(first @ 0) = self.first.get_mut(entry.id as usize) else { return Ok(()) };
        let start = self.arena.len();
        position(start + line.bytes.len())?;
        if self.index.len() >= MAX_INDEXED_FIELDS {
            return Err(FieldError::TooLarge);
        }
        self.arena.extend_from_slice(&line.bytes);
        entry.name_start += start as u32;
        entry.value_start += start as u32;
        self.index.push(entry);
        *first = self.index.len() as u16;
        self.live += 1;
        self.noted |= line.bit;
        Ok(())
    }

    /// Adds a field after all others; `name` in any case.
    ///
    /// # Errors
    /// [`FieldError`] when the name is no token or the value holds a control byte.
    pub fn append_name(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        with_lower_case(name, |name| self.append_lower(HeaderId::from_lower(name), name, value))
    }

    /// Adds a field whose name was resolved at configuration time.
    ///
    /// # Errors
    /// [`FieldError::Value`] for a control byte.
    pub fn append_header(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), FieldError> {
        match name.id() {
            HeaderId::Unknown => self.append_lower(HeaderId::Unknown, name.as_bytes(), value),
            id => self.append(id, value),
        }
    }

    /// Makes `value` the only one of a well-known field: overwrites the first in its place, removes the
    /// others, appends when there was none.
    ///
    /// # Errors
    /// As [`Fields::append`]; nothing is changed then.
    pub fn set(&mut self, id: HeaderId, value: &[u8]) -> Result<(), FieldError> {
        let Some(at) = self.first_position(id) else {
            return self.append(id, value);
        };
        self.overwrite(at, value)?;
        self.remove_matching(at + 1, |_, entry| entry.id == id);
        Ok(())
    }

    /// [`Fields::set`] by name in any case.
    ///
    /// # Errors
    /// As [`Fields::append_name`]; nothing is changed then.
    pub fn set_name(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        with_lower_case(name, |name| match HeaderId::from_lower(name) {
            HeaderId::Unknown => {
                let Some(at) = self.unknown_from(0, name) else {
                    return self.append_lower(HeaderId::Unknown, name, value);
                };
                self.overwrite(at, value)?;
                self.remove_unknown_from(at + 1, name);
                Ok(())
            }
            id => self.set(id, value),
        })
    }

    /// [`Fields::set`] for a name resolved at configuration time.
    ///
    /// # Errors
    /// As [`Fields::append_header`].
    pub fn set_header(&mut self, name: &HeaderName, value: &[u8]) -> Result<(), FieldError> {
        match name.id() {
            HeaderId::Unknown => self.set_name(name.as_bytes(), value),
            id => self.set(id, value),
        }
    }

    /// Removes every field with `id`; true when there was one.
    #[inline]
    pub fn remove(&mut self, id: HeaderId) -> bool {
        match self.first_position(id) {
            Some(at) if self.is_repeated(id) => self.remove_matching(at, |_, entry| entry.id == id),
            Some(at) => {
                self.tombstone(at, id);
                true
            }
            None => false,
        }
    }

    /// Removes every field called `name` (any case); true when there was one.
    pub fn remove_name(&mut self, name: &[u8]) -> bool {
        with_lower_case(name, |name| match HeaderId::from_lower(name) {
            HeaderId::Unknown => self.remove_unknown_from(0, name),
            id => self.remove(id),
        })
    }

    /// Removes every field with this resolved name; true when there was one.
    pub fn remove_header(&mut self, name: &HeaderName) -> bool {
        match name.id() {
            HeaderId::Unknown => self.remove_unknown_from(0, name.as_bytes()),
            id => self.remove(id),
        }
    }

    /// Keeps the fields for which `keep` is true; true when one was removed.
    pub fn retain(&mut self, mut keep: impl FnMut(FieldRef<'_>) -> bool) -> bool {
        self.remove_matching(0, |fields, entry| {
            !keep(FieldRef { id: entry.id, name: fields.name_of(entry), value: fields.value_of(entry) })
        })
    }

    /// Removes live entries from position `from` on for which `matches` holds.
    pub(crate) fn remove_matching(&mut self, from: usize, mut matches: impl FnMut(&Self, &Entry) -> bool) -> bool {
        let mut removed = false;
        let mut at = from;
        while let Some(entry) = self.index.get(at).copied() {
            if entry.is_live() && matches(self, &entry) {
                self.tombstone(at, entry.id);
                removed = true;
            }
            at += 1;
        }
        removed
    }

    // ---- inside ----------------------------------------------------------------------------------------

    /// Adds a field after all others; `id` is that of `name`, which has no capitals.
    fn append_lower(&mut self, id: HeaderId, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        if !is_token(name) || name.len() > MAX_NAME_BYTES {
            return Err(FieldError::Name);
        }
        let value = checked_value(value)?;
        let start = self.line_room(name.len() + 2 + value.len())?;
        self.arena.extend_from_slice(name);
        self.arena.extend_from_slice(b": ");
        self.finish_line(id, start, value)
    }

    fn remove_unknown_from(&mut self, from: usize, name: &[u8]) -> bool {
        let mut next = from;
        while let Some(at) = self.unknown_from(next, name) {
            self.tombstone(at, HeaderId::Unknown);
            next = at + 1;
        }
        next > from
    }

    fn overwrite(&mut self, at: usize, value: &[u8]) -> Result<(), FieldError> {
        let (start, len) = self.store_value(value)?;
        if let Some(entry) = self.index.get_mut(at) {
            entry.value_start = start;
            entry.value_len = len;
            entry.flags = (entry.flags | VALUE_IN_ARENA) & !LINE;
            self.in_order = self.in_order.min(at);
        }
        Ok(())
    }

    /// Makes room for a line of `length` bytes and its end in the arena; where it is to begin.
    #[inline]
    fn line_room(&mut self, length: usize) -> Result<usize, FieldError> {
        let start = self.arena.len();
        position(start + length + 2)?;
        self.arena.reserve(length + 2);
        Ok(start)
    }

    /// Ends the line that begins at `start` in the arena with a name, a colon and a space.
    #[inline]
    fn finish_line(&mut self, id: HeaderId, start: usize, value: &[u8]) -> Result<(), FieldError> {
        let value_start = self.arena.len();
        self.arena.extend_from_slice(value);
        self.arena.extend_from_slice(b"\r\n");
        self.push(Entry {
            name_start: start as u32,
            // The caller has put the colon and the space behind a name of at most `MAX_NAME_BYTES`.
            name_len: (value_start - start).saturating_sub(2) as u16,
            value_start: value_start as u32,
            value_len: value.len() as u32,
            id,
            flags: ADDED,
        })
    }

    fn store_value(&mut self, value: &[u8]) -> Result<(u32, u32), FieldError> {
        let value = checked_value(value)?;
        let start = self.arena.len();
        position(start + value.len())?;
        self.arena.extend_from_slice(value);
        Ok((start as u32, value.len() as u32))
    }

    fn tombstone(&mut self, at: usize, id: HeaderId) {
        if let Some(entry) = self.index.get_mut(at) {
            entry.flags |= REMOVED;
            entry.name_len = 0;
        }
        self.live -= 1;
        self.in_order = self.in_order.min(at);
        let is_repeated = self.is_repeated(id);
        let Some(first) = self.first.get_mut(id as usize) else { return };
        if *first as usize == at + 1 {
            *first = if is_repeated { next_of_id(&self.index, at + 1, id) } else { 0 };
        }
    }
}

/// Position + 1 of the first live entry of `id` from `from` on; 0 when there is none.
#[cold]
fn next_of_id(index: &[Entry], from: usize, id: HeaderId) -> u16 {
    let mut rest = index.iter().enumerate().skip(from);
    rest.find(|(_, entry)| entry.is_live() && entry.id == id).map_or(0, |(at, _)| at as u16 + 1)
}
