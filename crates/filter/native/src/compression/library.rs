//! Which library codes, and how it is set: `compressor_library` and `decompressor_library`.

use brotli::enc::BrotliEncoderParams;
use brotli::enc::backward_references::BrotliEncoderMode;
use postrider_filter_api::WatchedFile;
use postrider_model::Reading;
use zlib_rs::{DeflateConfig, Strategy};
use zstd::stream::raw::CParameter;
use zstd::zstd_safe::Strategy as ZstdStrategy;

use super::{Coder, brotli as br, gzip, zstd as zst};
use crate::read::data_source;

/// Bytes of a buffer that a library writes into, where nothing is written.
const CHUNK_BYTES: u64 = 4096;

/// The slowest one.
const MAX_ZSTD_LEVEL: u64 = 22;

/// Largest ratio of a decoded body to what came, where nothing is written.
const MAX_INFLATE_RATIO: u64 = 100;

/// How bodies are compressed.
#[derive(Debug, Clone)]
pub(crate) struct Compressor {
    /// As the configuration calls it.
    pub(crate) name: String,
    kind: CompressorKind,
    chunk: usize,
}

#[derive(Debug, Clone)]
enum CompressorKind {
    Gzip(DeflateConfig),
    Brotli(Box<BrotliEncoderParams>),
    Zstd { level: i32, checksum: bool, strategy: Option<ZstdStrategy>, dictionary: Vec<u8> },
}

impl Compressor {
    /// The content coding.
    pub(crate) fn encoding(&self) -> &'static str {
        match self.kind {
            CompressorKind::Gzip(_) => "gzip",
            CompressorKind::Brotli(_) => "br",
            CompressorKind::Zstd { .. } => "zstd",
        }
    }

    /// As statistics call it.
    pub(crate) fn stat_name(&self) -> &'static str {
        match self.kind {
            CompressorKind::Brotli(_) => "brotli",
            _ => self.encoding(),
        }
    }

    /// `None` when the library refuses its settings or finds no memory.
    pub(crate) fn coder(&self) -> Option<Box<dyn Coder>> {
        Some(match &self.kind {
            CompressorKind::Gzip(config) => Box::new(gzip::Compress::new(*config, self.chunk)),
            CompressorKind::Brotli(params) => Box::new(br::Compress::new(params, self.chunk)),
            CompressorKind::Zstd { level, checksum, strategy, dictionary } => {
                let checksum = CParameter::ChecksumFlag(*checksum);
                let settings: Vec<CParameter> =
                    [checksum].into_iter().chain(strategy.map(CParameter::Strategy)).collect();
                Box::new(zst::Compress::new(*level, dictionary, &settings, self.chunk).ok()?)
            }
        })
    }
}

/// How bodies are decompressed.
#[derive(Debug, Clone)]
pub(crate) struct Decompressor {
    pub(crate) name: String,
    kind: DecompressorKind,
    chunk: usize,
    pub(crate) max_ratio: u64,
}

#[derive(Debug, Clone)]
enum DecompressorKind {
    Gzip { window_bits: u8 },
    Brotli,
    Zstd,
}

impl Decompressor {
    pub(crate) fn encoding(&self) -> &'static str {
        match self.kind {
            DecompressorKind::Gzip { .. } => "gzip",
            DecompressorKind::Brotli => "br",
            DecompressorKind::Zstd => "zstd",
        }
    }

    pub(crate) fn stat_name(&self) -> &'static str {
        match self.kind {
            DecompressorKind::Brotli => "brotli",
            _ => self.encoding(),
        }
    }

    /// `None` when the library finds no memory.
    pub(crate) fn coder(&self) -> Option<Box<dyn Coder>> {
        Some(match &self.kind {
            DecompressorKind::Gzip { window_bits } => Box::new(gzip::Decompress::new(*window_bits, self.chunk)),
            DecompressorKind::Brotli => Box::new(br::Decompress::new(self.chunk)),
            DecompressorKind::Zstd => Box::new(zst::Decompress::new(self.chunk).ok()?),
        })
    }
}

/// `compressor_library`.
pub(crate) fn read_compressor(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> Option<Compressor> {
    library(at, "compressor", |at, kind| {
        let kind = match kind {
            "gzip" => CompressorKind::Gzip(gzip_settings(at)),
            "brotli" => CompressorKind::Brotli(Box::new(brotli_settings(at))),
            _ => zstd_settings(at, files),
        };
        Some((kind, chunk(at)))
    })
    .map(|(name, (kind, chunk))| Compressor { name, kind, chunk })
}

/// `decompressor_library`.
pub(crate) fn read_decompressor(at: &mut Reading<'_>) -> Option<Decompressor> {
    library(at, "decompressor", |at, kind| {
        let mut max_ratio = MAX_INFLATE_RATIO;
        let kind = match kind {
            "gzip" => {
                max_ratio = within(at, "max_inflate_ratio", 1, 1032, MAX_INFLATE_RATIO);
                DecompressorKind::Gzip { window_bits: small(within(at, "window_bits", 9, 15, 15)) }
            }
            "brotli" => {
                at.refuse("disable_ring_buffer_reallocation", "a ring buffer of a fixed size");
                DecompressorKind::Brotli
            }
            _ => {
                at.refuse("dictionaries", "dictionaries for decompression");
                DecompressorKind::Zstd
            }
        };
        Some((kind, chunk(at), max_ratio))
    })
    .map(|(name, (kind, chunk, max_ratio))| Decompressor { name, kind, chunk, max_ratio })
}

/// A library by its type, and its name.
fn library<T>(
    at: &mut Reading<'_>,
    way: &str,
    read: impl FnOnce(&mut Reading<'_>, &str) -> Option<T>,
) -> Option<(String, T)> {
    let key = format!("{way}_library");
    let made = at.map(&key, |at| {
        let name = at.text("name").unwrap_or_default().to_owned();
        if name.is_empty() {
            at.error("name", "a name is required: it is part of statistics");
        }
        let made = at.map("typed_config", |at| {
            let url = at.text("@type").unwrap_or_default();
            let kind = url.rsplit('/').next().unwrap_or_default();
            let known = [("gzip", "Gzip"), ("brotli", "Brotli"), ("zstd", "Zstd")];
            let is = |(kind_of, message): &&(&str, &str)| {
                kind == format!("envoy.extensions.compression.{kind_of}.{way}.v3.{message}")
            };
            match known.iter().find(is) {
                Some((kind, _)) => read(at, kind),
                None => {
                    at.skip();
                    at.wrong(format!("{kind} is no {way} library that Postrider has: gzip, brotli and zstd are"));
                    None
                }
            }
        });
        if made.is_none() {
            at.error("typed_config", "which library it is, is required");
        }
        Some((name, made.flatten()?))
    });
    if made.is_none() {
        at.error(&key, format!("a {way} library is required"));
    }
    made.flatten()
}

fn gzip_settings(at: &mut Reading<'_>) -> DeflateConfig {
    let level = match at.text("compression_level").unwrap_or_default() {
        "BEST_SPEED" => 1,
        "BEST_COMPRESSION" => 9,
        // The level of `DEFAULT_COMPRESSION` is zlib's own.
        other => other.strip_prefix("COMPRESSION_LEVEL_").and_then(|level| level.parse().ok()).unwrap_or(-1),
    };
    let strategy = match at.text("compression_strategy").unwrap_or_default() {
        "FILTERED" => Strategy::Filtered,
        "HUFFMAN_ONLY" => Strategy::HuffmanOnly,
        "RLE" => Strategy::Rle,
        "FIXED" => Strategy::Fixed,
        _ => Strategy::Default,
    };
    DeflateConfig {
        level,
        strategy,
        mem_level: i32::from(small(within(at, "memory_level", 1, 9, 5))),
        window_bits: i32::from(small(within(at, "window_bits", 9, 15, 12))),
        ..DeflateConfig::default()
    }
}

fn brotli_settings(at: &mut Reading<'_>) -> BrotliEncoderParams {
    let mode = match at.text("encoder_mode").unwrap_or_default() {
        "TEXT" => BrotliEncoderMode::BROTLI_MODE_TEXT,
        "FONT" => BrotliEncoderMode::BROTLI_MODE_FONT,
        _ => BrotliEncoderMode::BROTLI_MODE_GENERIC,
    };
    BrotliEncoderParams {
        mode,
        quality: i32::from(small(within(at, "quality", 0, 11, 3))),
        lgwin: i32::from(small(within(at, "window_bits", 10, 24, 18))),
        lgblock: i32::from(small(within(at, "input_block_bits", 16, 24, 24))),
        disable_literal_context_modeling: i32::from(at.flag("disable_literal_context_modeling")),
        ..BrotliEncoderParams::default()
    }
}

fn zstd_settings(at: &mut Reading<'_>, files: &mut Vec<WatchedFile>) -> CompressorKind {
    let strategy = match at.text("strategy").unwrap_or_default() {
        "FAST" => Some(ZstdStrategy::ZSTD_fast),
        "DFAST" => Some(ZstdStrategy::ZSTD_dfast),
        "GREEDY" => Some(ZstdStrategy::ZSTD_greedy),
        "LAZY" => Some(ZstdStrategy::ZSTD_lazy),
        "LAZY2" => Some(ZstdStrategy::ZSTD_lazy2),
        "BTLAZY2" => Some(ZstdStrategy::ZSTD_btlazy2),
        "BTOPT" => Some(ZstdStrategy::ZSTD_btopt),
        "BTULTRA" => Some(ZstdStrategy::ZSTD_btultra),
        "BTULTRA2" => Some(ZstdStrategy::ZSTD_btultra2),
        _ => None,
    };
    CompressorKind::Zstd {
        // Higher ones mean the highest, as the library itself takes them.
        level: i32::from(small(at.number("compression_level").unwrap_or(0).min(MAX_ZSTD_LEVEL))),
        checksum: at.flag("enable_checksum"),
        strategy,
        dictionary: data_source(at, "dictionary", files).unwrap_or_default(),
    }
}

fn chunk(at: &mut Reading<'_>) -> usize {
    usize::try_from(within(at, "chunk_size", 4096, 65536, CHUNK_BYTES)).unwrap_or(4096)
}

/// A number with its limits.
fn within(at: &mut Reading<'_>, key: &str, least: u64, most: u64, default: u64) -> u64 {
    let number = at.number(key).unwrap_or(default);
    if !(least..=most).contains(&number) {
        at.error(key, format!("{number} is not between {least} and {most}"));
    }
    number
}

fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
