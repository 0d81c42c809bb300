//! The layer of an image: a tar archive, compressed or not, with one file that matters.

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::client::MAX_CODE_BYTES;

/// A block of a tar archive.
const BLOCK: usize = 512;

/// How a gzip stream begins.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Tells the decoder to expect a gzip stream with the largest window.
const GZIP_WINDOW: u8 = 16 + 15;

/// Most bytes that a layer may unpack to: the code, and what little else stands there.
const MAX_LAYER_BYTES: usize = MAX_CODE_BYTES + (1 << 20);

/// The content of the file of that name: the one at the top of the layer, else the first one in a folder, as Istio takes it.
///
/// # Errors
/// The layer is broken or too large, or has no such file.
pub(crate) fn file(layer: Vec<u8>, name: &str) -> Result<Vec<u8>, String> {
    let archive = if layer.starts_with(&GZIP_MAGIC) { unpack(&layer)? } else { layer };
    find(&archive, name)?.map(<[u8]>::to_vec).ok_or_else(|| format!("the image's layer has no {name}"))
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut inflate = Inflate::new(true, GZIP_WINDOW);
    let mut out = Vec::new();
    let mut room = vec![0; 64 << 10];
    let mut rest = packed;
    loop {
        let (read, wrote) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(rest, &mut room, InflateFlush::NoFlush);
        let status = status.map_err(|error| format!("the image's layer is no gzip stream: {error:?}"))?;
        let [read, wrote] = [inflate.total_in() - read, inflate.total_out() - wrote]
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        rest = rest.get(read..).unwrap_or_default();
        out.extend_from_slice(room.get(..wrote).unwrap_or_default());
        if out.len() > MAX_LAYER_BYTES {
            return Err(format!("the image's layer unpacks to more than {MAX_LAYER_BYTES} bytes"));
        }
        match status {
            Status::StreamEnd => return Ok(out),
            _ if read == 0 && wrote == 0 => return Err("the image's layer breaks off".to_owned()),
            _ => {}
        }
    }
}

/// POSIX tar, with the long names of GNU and pax skipped: the name that is looked for is short.
fn find<'a>(archive: &'a [u8], wanted: &str) -> Result<Option<&'a [u8]>, String> {
    let mut rest = archive;
    let mut below = None;
    while let Some((header, behind)) = rest.split_at_checked(BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let field = |at: usize, length: usize| header.get(at..at + length).unwrap_or_default();
        let size = octal(field(124, 12)).ok_or("the image's layer is no tar archive")?;
        let content = behind.get(..size).ok_or("the image's layer breaks off")?;
        let name = String::from_utf8_lossy(text(field(0, 100)));
        let is_file = matches!(header.get(156), Some(b'0' | 0));
        let path = name.trim_start_matches("./").trim_start_matches('/');
        if is_file && path.rsplit('/').next() == Some(wanted) {
            if path == wanted && text(field(345, 155)).is_empty() {
                return Ok(Some(content));
            }
            below.get_or_insert(content);
        }
        rest = behind.get(size.next_multiple_of(BLOCK)..).unwrap_or_default();
    }
    Ok(below)
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn octal(field: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(text(field)).ok()?.trim();
    usize::from_str_radix(digits, 8).ok().filter(|size| *size <= MAX_LAYER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[156] = kind;
        block.extend_from_slice(content);
        block.resize(block.len().next_multiple_of(BLOCK), 0);
        block
    }

    #[test]
    fn the_file_is_found_among_others() {
        let folder = entry("./", b'5', b"");
        let other = entry("a/plugin.wasm", b'0', &[1; 600]);
        let link = entry("plugin.wasm", b'2', b"");
        let mut archive = [folder, other, link, entry("./plugin.wasm", b'0', b"code")].concat();
        assert_eq!(file(archive.clone(), "plugin.wasm").unwrap(), b"code");
        let folders = [entry("a/plugin.wasm", b'0', b"first"), entry("b/plugin.wasm", b'0', b"second")].concat();
        assert_eq!(file(folders, "plugin.wasm").unwrap(), b"first");
        archive.resize(archive.len() + 2 * BLOCK, 0);
        assert!(file(archive.clone(), "none.wasm").unwrap_err().contains("has no none.wasm"));
        archive.truncate(BLOCK * 2);
        assert!(file(archive, "plugin.wasm").unwrap_err().contains("breaks off"));
        assert!(file(vec![b'x'; BLOCK], "plugin.wasm").unwrap_err().contains("no tar archive"));
        assert!(file(vec![0x1f, 0x8b, 1], "plugin.wasm").is_err());
    }
}
