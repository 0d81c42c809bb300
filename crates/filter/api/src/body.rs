//! A piece of a body on its way through the filters.

/// One piece: borrowed from the connection's buffer until a filter changes it.
#[derive(Debug)]
pub struct Body<'a> {
    received: &'a [u8],
    changed: &'a mut Option<Vec<u8>>,
}

impl<'a> Body<'a> {
    /// `changed` gets the new bytes when a filter replaces the piece.
    pub fn new(received: &'a [u8], changed: &'a mut Option<Vec<u8>>) -> Body<'a> {
        Body { received, changed }
    }

    pub fn bytes(&self) -> &[u8] {
        self.changed.as_deref().unwrap_or(self.received)
    }

    /// From here on the piece is `bytes`; empty drops it. A message whose length was declared is then sent chunked.
    pub fn replace(&mut self, bytes: Vec<u8>) {
        *self.changed = Some(bytes);
    }
}
