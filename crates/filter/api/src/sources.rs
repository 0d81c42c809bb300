//! What code beside the filters was read from.
//!
//! Code that judges texts or chooses clusters is a function and no object that could be asked. So whoever builds it notes here
//! what it read, and whoever makes a plan of it collects that, on the same thread.

use std::cell::RefCell;

use crate::WatchedFile;
use crate::plugin::Facts;

thread_local! {
    static NOTED: RefCell<Option<Sources>> = const { RefCell::new(None) };
}

/// What was noted, each once.
#[derive(Debug, Default)]
pub struct Sources {
    pub files: Vec<WatchedFile>,
    pub plugins: Vec<Facts>,
}

/// Collects until it is dropped or asked.
#[derive(Debug)]
pub struct Collecting {
    before: Option<Sources>,
}

impl Sources {
    /// Notes what somebody built and what it was read from. Without anybody who collects, nothing happens.
    pub fn note(files: &[WatchedFile], plugin: Facts) {
        NOTED.with_borrow_mut(|noted| {
            let Some(noted) = noted else { return };
            for file in files {
                if !noted.files.contains(file) {
                    noted.files.push(file.clone());
                }
            }
            if !noted.plugins.contains(&plugin) {
                noted.plugins.push(plugin);
            }
        });
    }

    pub fn collect() -> Collecting {
        Collecting { before: NOTED.replace(Some(Sources::default())) }
    }
}

impl Collecting {
    /// What was noted since.
    pub fn finish(self) -> Sources {
        NOTED.with_borrow_mut(|noted| noted.as_mut().map(std::mem::take).unwrap_or_default())
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        NOTED.replace(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plugin::Policy;

    #[test]
    fn what_is_noted_is_collected_once_and_only_while_somebody_collects() {
        let file = [WatchedFile::new(Path::new("/a"), None)];
        let facts = Facts {
            name: "a".into(),
            version: String::new(),
            runtime: "r",
            source: String::new(),
            digest: String::new(),
            policy: Policy::default(),
            config: postrider_model::Value::Null,
            schema: None,
        };
        Sources::note(&file, facts.clone());
        let outer = Sources::collect();
        Sources::note(&file, facts.clone());
        let inner = Sources::collect();
        Sources::note(&file, facts.clone());
        Sources::note(&file, facts);
        let found = inner.finish();
        assert_eq!((found.files.len(), found.plugins.len()), (1, 1));
        assert_eq!(outer.finish().files.len(), 1);
        assert!(NOTED.take().is_none());
    }
}
