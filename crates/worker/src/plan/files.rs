//! The files that a plan was made from. Plans are made on control threads, which may read them.

use std::path::Path;

use postrider_filter_api::WatchedFile;

/// Several filters may read one file.
pub(super) fn remember(files: &mut Vec<WatchedFile>, more: &[WatchedFile]) {
    for file in more {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
}

/// Reads a file and remembers what was read. Plans are made on control threads, which may.
pub(super) fn read(path: &Path, files: &mut Vec<WatchedFile>) -> std::io::Result<Vec<u8>> {
    let content = std::fs::read(path);
    remember(files, &[WatchedFile::new(path, content.as_deref().ok())]);
    content
}

/// No file changed since it was read.
pub(super) fn are_current(files: &[WatchedFile]) -> bool {
    files.iter().all(|file| file.stands(std::fs::File::open(&file.path)))
}
