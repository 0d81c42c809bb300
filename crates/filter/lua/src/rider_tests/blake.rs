//! BLAKE2 and BLAKE3 of the module `sha2`, and answers of any length.

use super::{out, show};

/// Checks expressions, which have the module as `sha`, a text as `fox`, and as `bytes(n)` those from 0 to 250, over and over.
fn check(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let got = out(&show(&format!(
            "local sha, fox = require('sha2'), 'The quick brown fox jumps over the lazy dog'
             local function bytes(n, m)
               local t = {{}}
               for i = 1, n do t[i] = string.char((i - 1) % (m or 251)) end
               return table.concat(t)
             end; {expression}"
        )));
        assert_eq!(got.as_deref(), Some(*expected), "{expression}");
    }
}

/// RFC 7693, appendices A and B, and the first authors' test vectors.
#[test]
fn blake2_answers_as_its_specification_says() {
    check(&[
        (
            "sha.blake2b('abc')",
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d17d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
        ),
        ("sha.blake2s('abc')", "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"),
        (
            "sha.blake2b(bytes(255, 256), bytes(64))",
            "142709d62e28fcccd0af97fad0f8465b971e82201dc51070faa0372aa43e92484be1c1e73ba10906d5d1853db6a4106e0a7bf9800d373d6dee2d46d62ef2a461",
        ),
        ("sha.blake2s(bytes(255, 256), bytes(32))", "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd"),
        (
            "sha.blake2bp(bytes(255, 256), bytes(64))",
            "96fbcbb60bd313b8845033e5bc058a38027438572d7e7957f3684f6268aadd3ad08d21767ed6878685331ba98571487e12470aad669326716e46667f69f8d7e8",
        ),
        (
            "sha.blake2sp(bytes(255, 256), bytes(32))",
            "0c8a36597d7461c63a94732821c941856c668376606c86a52de0ee4104c615db",
        ),
        (
            "sha.blake2b('your message', 'your key')",
            "feee3e3aac7d5a3a4653fb70667ad6fb5fafe5256c78867b421eb0ce4134fc62784002b261056c4ef4222e99a8944826dff6f4845ac0117df128de116b159d75",
        ),
        // A salt that is longer than its field goes on in the next one.
        ("sha.blake2b('abc', 'k', '0123456789abcdefsomeone', 20)", "fd40030c1137cbd895c55aaa0789cea418a454df"),
        ("sha.blake2s('abc', 'k', '01234567someone', 16)", "8184d497e75ccfa091ea550e2dfc9717"),
        ("sha.blake2b('abc', '') == sha.blake2b('abc'), sha.blake2s(5) == sha.blake2s('5')", "true|true"),
    ]);
}

#[test]
fn blake2_has_names_for_shorter_answers() {
    check(&[
        ("sha.blake2b_160('abc')", "384264f676f39536840523f284921cdc68b6846b"),
        ("sha.blake2b_256('abc')", "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"),
        (
            "sha.blake2b_384('abc')",
            "6f56a82c8e7ef526dfe182eb5212f7db9df1317e57815dbda46083fc30f54ee6c66ba83be64b302d7cba6ce15bb556f4",
        ),
        ("sha.blake2s_128('abc')", "aa4938119b1dc7b87cbad0ffd200d0ae"),
        ("sha.blake2s_160('abc')", "5ae3b99be29b01834c3b508521ede60438f8de17"),
        ("sha.blake2s_224('abc')", "0b033fc226df7abde29f67a05d3dc62cf271ef3dfea4d387407fbd55"),
        ("sha.blake2 == sha.blake2b, sha.blake2b_512 == sha.blake2b, sha.blake2s_256 == sha.blake2s", "true|true|true"),
        ("sha.blake2b_256(nil, 'k')('a')('bc')() == sha.blake2b('abc', 'k', nil, 32)", "true"),
    ]);
}

/// The authors' test vectors, and what the published module documents.
#[test]
fn blake2x_answers_as_its_authors_say() {
    check(&[
        (
            "sha.blake2xs(32, bytes(256, 256), bytes(32))",
            "a4fe2bd0f96a215fa7164ae1a405f4030a586c12b0c29806a099d7d7fdd8dd72",
        ),
        ("sha.blake2xs(16, bytes(256, 256), bytes(32))", "19b827f054b67a120f11efb0d690be70"),
        (
            "sha.blake2xb(1, bytes(256, 256), bytes(64)), sha.blake2xb(7, bytes(256, 256), bytes(64))",
            "64|8540ccd083a455",
        ),
        ("#sha.blake2xb(100000, fox), sha.blake2xs(0, fox)", "200000|"),
        ("local whole = sha.blake2xs(65534, fox); #whole, whole:sub(1, 64) == sha.blake2xs(32, fox)", "131068|false"),
        (
            "local next = sha.blake2xb(-16 * 2^20, fox); next(5), next(), next(0), next(3), next('seek', 16 * 2^20 - 5), next(5), next(1)",
            "53e2dcdfe2|1b||21af5b|nil|b2b5312606|",
        ),
        (
            "local next = sha.blake2xb(-16 * 2^20)('The quick brown')(' fox jumps over the lazy dog')(); next(4), next(4)",
            "53e2dcdf|e21b21af",
        ),
        (
            "local next = sha.blake2xb(-1, fox); next(5), next(5), next('seek', 10 * 2^30), next(5), next('seek', 1), next(5)",
            "364e84ca4c|103df29230|nil|eeafce070f|nil|4e84ca4c10",
        ),
        // The blocks are numbered with 32 bits.
        ("local next = sha.blake2xb(-1, fox); next('seek', 256 * 2^30), next(5)", "nil|364e84ca4c"),
    ]);
}

/// The authors' test vectors.
#[test]
fn blake3_answers_as_its_authors_say() {
    check(&[
        ("sha.blake3('')", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (
            "sha.blake3(bytes(1023), nil, 131)",
            "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11a182d27a591b05592b15607500e1e8dd56bc6c7fc063715b7a1d737df5bad3339c56778957d870eb9717b57ea3d9fb68d1b55127bba6a906a4a24bbd5acb2d123a37b28f9e9a81bbaae360d58f85e5fc9d75f7c370a0cc09b6522d9c8d822f2f28f485",
        ),
        (
            "sha.blake3(bytes(7169), 'whats the Elvish word for friend')",
            "ed9b1a922c046fdb3d423ae34e143b05ca1bf28b710432857bf738bcedbfa511",
        ),
        (
            "sha.blake3_derive_key(bytes(2049), 'BLAKE3 2019-12-27 16:29:52 test vectors context')",
            "2ea477c5515cc3dd606512ee72bb3e0e758cfae7232826f35fb98ca1bcbdf273",
        ),
        (
            "sha.blake3_derive_key(nil, 'BLAKE3 2019-12-27 16:29:52 test vectors context', 40)(bytes(1023))('')()",
            "74a16c1c3d44368a86e1ca6df64be6a2f64cce8f09220787450722d85725dea59c413264404661e9",
        ),
        ("sha.blake3('m', 'short') == sha.blake3('m', 'short' .. ('\\0'):rep(27))", "true"),
        (
            "local next = sha.blake3(bytes(1), nil, -1); next(2), next(2), next('seek', 30), next(4), next('seek', 0), next()",
            "2d3a|dedf|nil|e213c3a6|nil|2d",
        ),
        ("local next = sha.blake3(bytes(1), nil, -4); next(3), next(3), next(3)", "2d3ade|df|"),
        (
            "local next = sha.blake3('x', nil, -1); next('seek', 2^53 - 3), #next(3), next('seek', 70000), next(2) == sha.blake3('x', nil, 70002):sub(-4)",
            "nil|6|nil|true",
        ),
    ]);
}

#[test]
fn shake_gives_its_answer_in_parts_up_to_64_kib() {
    check(&[
        ("local next = sha.shake128(-1, fox); next(5), next(), next(0), next(4)", "f4202e3c58|52||f9182a04"),
        (
            "local next = sha.shake128(-1)('The quick brown fox')(' jumps over the lazy dog')(); next(5), next(5)",
            "f4202e3c58|52f9182a04",
        ),
        (
            "local next, whole = sha.shake256(-1, fox), sha.shake256(65536, fox) local first, rest = next(65000), next(536); first .. rest == whole, pcall(next)",
            "true|false|there are no more bytes",
        ),
    ]);
}

#[test]
fn blake_says_which_lengths_are_wrong() {
    for (expression, expected) in [
        ("sha.blake2b('m', ('k'):rep(65))", "a key of up to 64 bytes is expected"),
        ("sha.blake2s('m', ('k'):rep(33))", "a key of up to 32 bytes is expected"),
        ("sha.blake2b('m', nil, ('s'):rep(33))", "a salt of up to 32 bytes is expected"),
        ("sha.blake2xs(9, 'm', nil, ('s'):rep(17))", "a salt of up to 16 bytes is expected"),
        ("sha.blake2bp('m', nil, 's')", "a salt of up to 0 bytes is expected"),
        ("sha.blake2b('m', nil, nil, 65)", "a number of bytes from 1 to 64 is expected"),
        ("sha.blake2sp('m', nil, nil, 0)", "a number of bytes from 1 to 32 is expected"),
        ("sha.blake2xs(65535, 'm')", "a number of bytes from -65534 to 65534 is expected"),
        ("sha.blake2xb(1.5, 'm')", "a number of bytes from -4294967294 to 4294967294 is expected"),
        ("sha.blake3('m', ('k'):rep(33))", "a key of up to 32 bytes is expected"),
        ("sha.blake3('m', nil, 'x')", "a number of bytes from -9007199254740992 to 9007199254740992 is expected"),
        ("sha.blake3({})", "a string is expected"),
        ("sha.blake3_derive_key('m')", "a string is expected"),
        ("sha.blake3_derive_key('m', '\\255')", "a context in UTF-8 is expected"),
        ("sha.blake3('m', nil, -1)('seek', -1)", "a number of bytes from 0 to 9007199254740992 is expected"),
        ("sha.hmac(sha.blake2b, 'k', 'm')", "unknown hash function"),
    ] {
        let got = out(&show(&format!("local sha = require('sha2'); {expression}"))).unwrap_or_default();
        // The script's own line is named, not one of the SDK's.
        assert!(got.starts_with("E: ") && got.contains("test") && got.ends_with(expected), "{expression}: {got}");
    }
}
