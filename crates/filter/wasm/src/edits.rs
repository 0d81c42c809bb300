//! Changes of headers of a stream that is not at hand: it waits, and what it waits for came for somebody else. They are
//! made when it goes on.

use postrider_filter_api::Stream;

use crate::maps::{REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_TRAILERS, Target};

/// A change that waits.
pub(crate) enum Edit {
    Add(u32, Vec<u8>, Vec<u8>),
    Replace(u32, Vec<u8>, Vec<u8>),
    Remove(u32, Vec<u8>),
    ReplaceAll(u32, Vec<(Vec<u8>, Vec<u8>)>),
}

/// Most changes that wait for one stream.
pub(crate) const MAX_EDITS: usize = 1000;

impl Edit {
    pub(crate) fn map(&self) -> u32 {
        match self {
            Edit::Add(map, ..) | Edit::Replace(map, ..) | Edit::Remove(map, _) | Edit::ReplaceAll(map, _) => *map,
        }
    }

    /// Makes the change. `false` for a name or value that no message can carry.
    pub(crate) fn apply(&self, stream: &mut Stream<'_>) -> bool {
        let Some(mut target) = target(self.map(), stream) else { return false };
        let made = match self {
            Edit::Add(_, name, value) => target.add(name, value),
            Edit::Replace(_, name, value) => target.replace(name, value),
            Edit::Remove(_, name) => {
                target.remove(name);
                Ok(())
            }
            Edit::ReplaceAll(_, pairs) => {
                let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                target.replace_all(&pairs)
            }
        };
        made.is_ok()
    }
}

/// The map of that type of a stream.
pub(crate) fn target<'a>(map: u32, stream: &'a mut Stream<'_>) -> Option<Target<'a>> {
    Some(match map {
        REQUEST_HEADERS => Target::Request(stream.request),
        REQUEST_TRAILERS => Target::Trailers(stream.request_trailers),
        RESPONSE_HEADERS => Target::Response(stream.response),
        RESPONSE_TRAILERS => Target::Trailers(stream.response_trailers),
        _ => return None,
    })
}
