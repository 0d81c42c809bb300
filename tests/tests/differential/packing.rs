//! Bodies that are packed, by the names that `content-encoding` has for it: two libraries pack the same text into other bytes.

use std::io::Read;
use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, InflateConfig, ReturnCode, decompress_slice};

/// No scene has larger bodies.
const LARGEST: usize = 1 << 20;

pub fn pack(coding: &str, body: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut packed = vec![0; body.len() + 200];
            let mut deflate = Deflate::new_with_config(DeflateConfig { window_bits: 31, ..DeflateConfig::default() });
            deflate.compress(body, &mut packed, DeflateFlush::Finish).expect("room for all of it");
            packed.truncate(usize::try_from(deflate.total_out()).expect("a small body"));
            packed
        }
        "br" => {
            let mut packed = Vec::new();
            let settings = brotli::enc::BrotliEncoderParams::default();
            brotli::BrotliCompress(&mut &body[..], &mut packed, &settings).expect("brotli");
            packed
        }
        "zstd" => zstd::encode_all(body, 3).expect("zstd"),
        other => panic!("no packing is called {other}"),
    }
}

/// The text in a packed body; `None` when it is none.
pub fn unpack(coding: &str, body: &[u8]) -> Option<Vec<u8>> {
    match coding {
        "gzip" => {
            let mut plain = vec![0; LARGEST];
            let (made, code) = decompress_slice(&mut plain, body, InflateConfig { window_bits: 31 });
            let length = made.len();
            plain.truncate(length);
            (code == ReturnCode::Ok).then_some(plain)
        }
        "br" => {
            let mut plain = Vec::new();
            brotli::Decompressor::new(body, 4096).read_to_end(&mut plain).ok().map(|_| plain)
        }
        "zstd" => zstd::decode_all(body).ok(),
        _ => None,
    }
}
