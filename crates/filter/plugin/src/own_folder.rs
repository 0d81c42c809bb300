//! Folders for what is kept between runs and must be nobody else's to change: fetched code, compiled code.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Makes the folder, and looks whether it is this user's alone.
///
/// # Errors
/// It cannot be made, or is not ours alone.
pub fn own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let about = fs::symlink_metadata(folder)?;
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    if !about.is_dir() {
        return refused("it is no folder");
    }
    if about.uid() != rustix::process::geteuid().as_raw() {
        return refused("it belongs to somebody else");
    }
    if about.mode() & 0o077 != 0 {
        return refused("others may open it (expected mode 0700)");
    }
    Ok(())
}
