//! Changes of a stream that is not at hand: it waits, and what it waits for came for somebody else. They are made when it
//! goes on.

use postrider_filter_api::{Stream, StreamInfo};

use crate::contexts::Passing;
use crate::maps::{REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS, RESPONSE_TRAILERS, Target};
use crate::properties::{self, Rules};
use crate::status::BAD_ARGUMENT;

/// A change that waits.
pub(crate) enum Edit {
    Add(u32, Vec<u8>, Vec<u8>),
    Replace(u32, Vec<u8>, Vec<u8>),
    Remove(u32, Vec<u8>),
    ReplaceAll(u32, Vec<(Vec<u8>, Vec<u8>)>),
    /// What modules write for each other.
    Property(String, Vec<u8>, Rules),
    /// What they write for other filters.
    State(String, String, Rules),
    ForgetRoute,
}

/// Most changes that wait for one stream.
const MAX_EDITS: usize = 1000;

impl Edit {
    /// The map that it is about; `None` for what is no field.
    pub(crate) fn map(&self) -> Option<u32> {
        match self {
            Edit::Add(map, ..) | Edit::Replace(map, ..) | Edit::Remove(map, _) | Edit::ReplaceAll(map, _) => Some(*map),
            Edit::Property(..) | Edit::State(..) | Edit::ForgetRoute => None,
        }
    }

    /// What it takes while it waits.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Edit>()
            + match self {
                Edit::Add(_, name, value) | Edit::Replace(_, name, value) => name.len() + value.len(),
                Edit::Remove(_, name) => name.len(),
                Edit::ReplaceAll(_, pairs) => {
                    pairs.iter().map(|(name, value)| name.len() + value.len() + size_of::<(Vec<u8>, Vec<u8>)>()).sum()
                }
                Edit::Property(name, value, _) => name.len() + value.len(),
                Edit::State(name, value, _) => name.len() + value.len(),
                Edit::ForgetRoute => 0,
            }
    }

    /// Makes the change. `false` for what no stream can carry.
    pub(crate) fn apply(&self, stream: &mut Stream<'_>) -> bool {
        let target = match self.map() {
            Some(REQUEST_HEADERS) => {
                stream.info.route_is_stale = true;
                Target::Request(stream.request)
            }
            Some(REQUEST_TRAILERS) => Target::Trailers(stream.request_trailers),
            Some(RESPONSE_HEADERS) => Target::Response(stream.response),
            Some(RESPONSE_TRAILERS) => Target::Trailers(stream.response_trailers),
            Some(_) => return false,
            None => return self.note(stream.info),
        };
        self.change(target)
    }

    /// The change of a map.
    pub(crate) fn change(&self, mut target: Target<'_>) -> bool {
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
            Edit::Property(..) | Edit::State(..) | Edit::ForgetRoute => return false,
        };
        made.is_ok()
    }

    /// The change of what is known of a stream.
    pub(crate) fn note(&self, info: &mut StreamInfo) -> bool {
        match self {
            Edit::Property(name, value, rules) => properties::put(info, name, value, *rules),
            Edit::State(name, value, rules) => return properties::put_state(info, name, value, *rules),
            Edit::ForgetRoute => info.route_is_stale = true,
            Edit::Add(..) | Edit::Replace(..) | Edit::Remove(..) | Edit::ReplaceAll(..) => return false,
        }
        true
    }
}

impl Passing {
    /// Changes the stream when it goes on, and what is seen of it until then at once.
    ///
    /// # Errors
    /// No stream can carry it, or too many changes wait.
    pub(crate) fn later(&mut self, edit: Edit) -> Result<(), u32> {
        let is_sound = self.kept.as_mut().is_none_or(|kept| kept.change(&edit));
        if !is_sound || self.edits.len() >= MAX_EDITS {
            return Err(BAD_ARGUMENT);
        }
        self.edits.push(edit);
        Ok(())
    }

    /// It is at hand again: makes the changes that waited.
    pub(crate) fn catch_up(&mut self, stream: &mut Stream<'_>) {
        for edit in self.edits.drain(..) {
            edit.apply(stream);
        }
    }
}
