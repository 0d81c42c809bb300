//! Session keys, written to a file in the format of NSS, for whoever reads captured traffic.
//!
//! Each line is one append to a file that is open, made by the worker whose connection it is. This is for debugging:
//! the secrets open every byte of the connections that are logged.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_model::{Cidr, KeyLog};

use crate::facts::hex;
use crate::material::Material;

/// A key log and for which connections it is.
#[derive(Debug)]
pub(crate) struct Choice {
    pub log: Arc<Log>,
    local: Vec<Cidr>,
    remote: Vec<Cidr>,
}

impl Choice {
    /// `None` when the file cannot be opened, which is reported.
    pub fn open(model: &KeyLog, material: &mut Material<'_>) -> Option<Choice> {
        match Log::open(&model.path) {
            Ok(log) => Some(Choice { log, local: model.local.clone(), remote: model.remote.clone() }),
            Err(error) => {
                material.refuse("common.key_log.path", format!("{} cannot be written: {error}", model.path.display()));
                None
            }
        }
    }

    /// An address that is not known fits no range, and every connection fits where there are none.
    pub fn wants(&self, local: Option<IpAddr>, remote: Option<IpAddr>) -> bool {
        let fits = |ranges: &[Cidr], address: Option<IpAddr>| {
            ranges.is_empty() || address.is_some_and(|address| ranges.iter().any(|it| it.contains(address)))
        };
        fits(&self.local, local) && fits(&self.remote, remote)
    }
}

#[derive(Debug)]
pub(crate) struct Log(Mutex<File>);

impl Log {
    /// One open file per path and process, for as long as somebody uses it.
    fn open(path: &Path) -> std::io::Result<Arc<Log>> {
        static OPEN: Mutex<Vec<(PathBuf, Weak<Log>)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, log)| log.strong_count() > 0);
        if let Some(log) = open.iter().find(|(it, _)| it == path).and_then(|(_, log)| log.upgrade()) {
            return Ok(log);
        }
        let log = Arc::new(Log(Mutex::new(OpenOptions::new().append(true).create(true).open(path)?)));
        open.push((path.to_owned(), Arc::downgrade(&log)));
        Ok(log)
    }
}

impl rustls::KeyLog for Log {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk must not end a connection, and there is nobody here to tell.
        let _ = file.write_all(line.as_bytes());
    }
}
