//! The modules that plugins may require.

use serde_json::json;

use super::{out, show, v2};

fn check(cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let got = out(&show(expression)).unwrap();
        match expected.strip_prefix("E:") {
            Some(text) => assert!(got.starts_with("E: ") && got.contains(text.trim()), "{expression}: {got}"),
            None => assert_eq!(got, *expected, "{expression}"),
        }
    }
}

#[test]
fn every_module_is_there_and_one_envoy_serves_them_all() {
    for name in [
        "rider",
        "rider.base",
        "rider.config",
        "rider.httpstream",
        "rider.logging",
        "rider.json_validator",
        "rider.v2",
        "rider.v2.config",
        "rider.v2.httpstream",
        "rider.v2.logging",
        "envoy",
        "cjson",
        "cjson.safe",
        "jsonschema",
        "inspect",
        "md5",
        "sha2",
        "base64",
        "bit",
        "ffi",
        "jit",
    ] {
        assert_eq!(out(&show(&format!("type(require('{name}'))"))).as_deref(), Some("table"), "{name}");
    }
    check(&[
        ("require('envoy') == envoy", "true"),
        ("require('rider.config') == require('rider.v2.config')", "true"),
        (
            "require('rider.base').FFI_OK, require('rider.base').FFI_BadContext, require('rider.base').FFI_NotFound",
            "0|-1|-2",
        ),
        ("require('rider.base').FFI_BadArgument, require('rider.base').FFI_Unsupported", "-3|-4"),
        (
            "type(require('rider.base').get_context_handle()), type(require('rider.base').get_string_buf())",
            "cdata|cdata",
        ),
        ("require('rider.config').VALIDATE_OK, require('rider.config').VALIDATE_FAIL", "0|1"),
        ("require('nothing')", "E: module 'nothing' not found"),
    ]);
}

#[test]
fn hashes() {
    check(&[
        ("require('md5').sumhexa('')", "d41d8cd98f00b204e9800998ecf8427e"),
        ("require('md5').sumhexa('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        ("require('md5').tohex(require('md5').sum('abc'))", "900150983cd24fb0d6963f7d28e17f72"),
        (
            "require('md5').tohex(require('md5').new():update('a'):update('bc'):finish())",
            "900150983cd24fb0d6963f7d28e17f72",
        ),
        ("require('md5').sum(nil)", "E: a string is expected"),
        ("require('sha2').md5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
        ("require('sha2').sha1('abc')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("require('sha2').sha224('abc')", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
        ("require('sha2').sha256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("require('sha2').sha256()('a')('bc')()", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "require('sha2').sha384('abc')",
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            "require('sha2').sha512('abc')",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        ("require('sha2').sha512_256('abc')", "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23"),
        // RFC 4231, case 2, and a key longer than a block.
        (
            "require('sha2').hmac(require('sha2').sha256, 'Jefe', 'what do ya want for nothing?')",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            "require('sha2').hmac(require('sha2').sha256, 'Jefe')('what do ya want ')('for nothing?')()",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            "require('sha2').hmac(require('sha2').sha512, ('\\170'):rep(131), 'Test Using Larger Than Block-Size Key - Hash Key First')",
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        ),
        (
            "require('sha2').hmac(require('sha2').md5, 'Jefe', 'what do ya want for nothing?')",
            "750c783e6ab0b503eaa86e310a5db738",
        ),
        ("require('sha2').sha3_224('abc')", "e642824c3f8cf24ad09234ee7d3c766fc9a3a5168d0c94ad73b46fdf"),
        ("require('sha2').sha3_256('abc')", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"),
        ("require('sha2').sha3_256()('a')('bc')()", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"),
        (
            "require('sha2').sha3_384('abc')",
            "ec01498288516fc926459f58e2c6ad8df9b473cb0fc08c2596da7cf0e49be4b298d88cea927ac7f539f1edf228376d25",
        ),
        (
            "require('sha2').sha3_512('abc')",
            "b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e10e116e9192af3c91a7ec57647e3934057340b4cf408d5a56592f8274eec53f0",
        ),
        ("require('sha2').shake128(20, 'abc')", "5881092dd818bf5cf8a3ddb793fbcba74097d5c5"),
        ("require('sha2').shake256(20)('a')('bc')()", "483366601360a8771c6863080cc4114d8db44530"),
        ("#require('sha2').shake128(1000, 'abc')", "2000"),
        ("require('sha2').shake128(0, 'abc')", "(empty)"),
        ("require('sha2').shake128(65537, 'abc')", "E: to 65536 is expected"),
        (
            "require('sha2').hmac(require('sha2').sha3_256, 'Jefe', 'what do ya want for nothing?')",
            "c7d4072e788877ae3596bbb0da73b887c9171f93095b294ae857fbe2645e1ba5",
        ),
        (
            "require('sha2').hmac(require('sha2').sha3_224, ('k'):rep(200), 'm')",
            "a19a55e0b70549c721ffd53c01a520f8eaa4666489e977aa765c78c3",
        ),
        ("require('sha2').hmac('sha256', 'k', 'm')", "E: unknown hash function"),
        ("require('sha2').bin_to_hex(require('sha2').hex_to_bin('00ff10'))", "00ff10"),
    ]);
}

#[test]
fn base64() {
    check(&[
        ("require('base64').encode('')", "(empty)"),
        ("require('base64').encode('fooname:validpassword')", "Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk"),
        ("require('base64').encode('a'), require('base64').encode('ab')", "YQ==|YWI="),
        ("require('base64').encode('\\255\\254\\253')", "//79"),
        ("require('base64').encode('\\255\\254\\253', require('base64').makeencoder('-', '_'))", "__79"),
        ("require('base64').decode('Zm9vbmFtZTp2YWxpZHBhc3N3b3Jk')", "fooname:validpassword"),
        (
            "require('base64').decode('YQ=='), require('base64').decode('YQ'), require('base64').decode('Y Q\\n=')",
            "a|a|a",
        ),
        ("require('base64').decode('__79') == '\\255\\254\\253'", "true"),
        ("require('base64').decode('__79', require('base64').makedecoder('-', '_')) == '\\255\\254\\253'", "true"),
        ("require('base64').decode('A')", "nil"),
        ("require('base64').decode(nil)", "E: a string is expected"),
        ("require('base64').encode_url('\\255\\254')", "__4"),
    ]);
}

#[test]
fn json_is_read_as_by_lua_cjson() {
    check(&[
        (
            "require('cjson').decode('5'), require('cjson').decode('-0.5e1'), require('cjson').decode(' true ')",
            "5|-5|true",
        ),
        ("require('cjson').decode('12345678901234567890')", "1.2345678901235e+19"),
        (
            "require('cjson').decode('\"a\\\\u00e9\\\\u20ac\\\\ud83d\\\\ude00\\\\n\\\\/\"') == 'a\\195\\169\\226\\130\\172\\240\\159\\152\\128\\n/'",
            "true",
        ),
        ("require('cjson').decode('\"\"') == ''", "true"),
        ("require('cjson').decode('[1,2,[3,{\"a\":4}]]')[3][2].a", "4"),
        ("#require('cjson').decode('[ ]'), next(require('cjson').decode('{ }'))", "0|nil"),
        ("require('cjson').decode('null') == require('cjson').null, type(require('cjson').null)", "true|userdata"),
        ("tostring(require('cjson').null)", "userdata: NULL"),
        ("require('cjson').decode('{\"a\":null}').a == require('cjson').null", "true"),
        ("require('cjson').decode(('['):rep(1000) .. (']'):rep(1000)) ~= nil", "true"),
        (
            "require('cjson').decode(('['):rep(1001) .. (']'):rep(1001))",
            "E: Found too many nested data structures (1001) at character 1001",
        ),
        ("require('cjson').decode('')", "E: Expected value but found T_END at character 1"),
        ("require('cjson').decode('{')", "E: Expected object key string but found T_END at character 2"),
        ("require('cjson').decode('[1,]')", "E: Expected value but found T_ARR_END at character 4"),
        ("require('cjson').decode('[1 2]')", "E: Expected comma or array end but found T_NUMBER at character 4"),
        ("require('cjson').decode('{\"a\" 1}')", "E: Expected colon but found T_NUMBER at character 6"),
        ("require('cjson').decode('1 x')", "E: Expected the end but found invalid token at character 3"),
        ("require('cjson').decode('nul')", "E: Expected value but found invalid token at character 1"),
        ("require('cjson').decode('1e')", "E: invalid number"),
        ("require('cjson').decode('--1')", "E: invalid number"),
        ("require('cjson').decode('\"a')", "E: unexpected end of string"),
        ("require('cjson').decode('\"\\\\x\"')", "E: invalid escape code"),
        ("require('cjson').decode('\"\\\\ud83d\"')", "E: invalid unicode escape code"),
        ("require('cjson').decode('\"\\\\u12g4\"')", "E: invalid unicode escape code"),
        ("require('cjson').decode('\"a\\nb\"')", "E: invalid token"),
        ("require('cjson').decode('\"a\\0b\"')", "E: invalid token"),
        ("require('cjson').decode(nil)", "E: string expected, got nil"),
        ("require('cjson.safe').decode('{')", "nil|Expected object key string but found T_END at character 2"),
        ("require('cjson.safe').decode('7')", "7"),
    ]);
}

#[test]
fn json_is_written_as_by_lua_cjson() {
    check(&[
        ("require('cjson').encode({ 1, 2, 'x', true, require('cjson').null })", "[1,2,\"x\",true,null]"),
        ("require('cjson').encode({ a = { b = 1.5 } })", "{\"a\":{\"b\":1.5}}"),
        ("require('cjson').encode({})", "{}"),
        (
            "require('cjson').encode(require('cjson').empty_array), require('cjson').encode(require('cjson').decode('[]'))",
            "[]|[]",
        ),
        ("require('cjson').encode({ [1] = 'a', x = 'b' }) ~= nil", "true"),
        ("require('cjson').encode('a\"b\\\\c/d\\n\\t\\1\\127é')", "\"a\\\"b\\\\c\\/d\\n\\t\\u0001\\u007fé\""),
        ("require('cjson').encode({ ['k\\n'] = 1 })", "{\"k\\n\":1}"),
        ("require('cjson').encode({ [5] = 'x' })", "[null,null,null,null,\"x\"]"),
        ("require('cjson').encode({ [50] = 'x' })", "E: excessively sparse array"),
        ("require('cjson').encode(0/0)", "E: must not be NaN or Infinity"),
        ("require('cjson').encode({ print })", "E: Cannot serialise function: type not supported"),
        ("require('cjson').encode({ [true] = 1 })", "E: table key must be a number or string"),
        ("local t = {} t.t = t; require('cjson').encode(t)", "E: excessive depth (1001)"),
        ("require('cjson.safe').encode(print)", "nil|Cannot serialise function: type not supported"),
        ("require('cjson').encode(1e15), require('cjson').encode(3), require('cjson').encode(nil)", "1e+15|3|null"),
    ]);
}

#[test]
fn json_is_written_and_read_as_its_settings_say() {
    check(&[
        ("local c = require('cjson').new(); c.encode({}), c.encode_sparse_array()", "{}|false|2|10"),
        ("local c = require('cjson').new() c.encode_empty_table_as_object(false); c.encode({ a = {} })", "{\"a\":[]}"),
        ("local c = require('cjson').new() c.encode_empty_table_as_object('off'); c.encode({ a = {} })", "{\"a\":[]}"),
        ("local c = require('cjson').new() c.encode_sparse_array(true); c.encode({ [50] = 'x' })", "{\"50\":\"x\"}"),
        ("local c = require('cjson').new(); c.encode_sparse_array(true, 3, 20)", "true|3|20"),
        ("local c = require('cjson').new() c.encode_sparse_array(false, 0); #c.encode({ [50] = 'x' })", "250"),
        (
            "local c = require('cjson').new() c.encode_number_precision(3); c.encode(1/3), c.encode_number_precision()",
            "0.333|3",
        ),
        ("local c = require('cjson').new() c.encode_number_precision(16); c.encode(0.1)", "0.1"),
        (
            "require('cjson').encode_number_precision(17)",
            "E: bad argument #1 to 'encode_number_precision' (expected integer between 1 and 16)",
        ),
        (
            "local c = require('cjson').new() c.encode_max_depth(2); c.encode({ {} }), pcall(c.encode, { { {} } })",
            "[{}]|false|Cannot serialise, excessive depth (3)",
        ),
        (
            "local c = require('cjson').new() c.decode_max_depth(1); #c.decode('[1]'), pcall(c.decode, '[[1]]')",
            "1|false|Found too many nested data structures (2) at character 2",
        ),
        (
            "local c = require('cjson').new() c.decode_array_with_array_mt(true); getmetatable(c.decode('[1]')) == c.array_mt",
            "true",
        ),
        (
            "local c = require('cjson').new(); getmetatable(c.decode('[1]')), getmetatable(c.decode('[]')) == c.empty_array_mt",
            "nil|true",
        ),
        ("local c = require('cjson').new() c.encode_invalid_numbers('null'); c.encode({ 0/0 })", "[null]"),
        (
            "local c = require('cjson').new() c.encode_invalid_numbers(true); c.encode({ 0/0, 1/0, -1/0 })",
            "[NaN,Infinity,-Infinity]",
        ),
        ("require('cjson').decode_invalid_numbers(true)", "E: what is no JSON is not read here"),
        (
            "local c = require('cjson').new(); c.decode_invalid_numbers(), c.decode_invalid_numbers(false), c.encode_keep_buffer()",
            "false|false|true",
        ),
        // Settings are an instance's own.
        ("require('cjson').new().encode_empty_table_as_object(false); require('cjson').encode({})", "{}"),
        (
            "local c = require('cjson.safe').new() c.encode_max_depth(1); c.encode({ {} })",
            "nil|Cannot serialise, excessive depth (2)",
        ),
        ("local c = require('cjson'); c.encode(setmetatable({ x = 1, 2 }, c.array_mt))", "[2]"),
        ("local c = require('cjson'); c.encode(setmetatable({ x = 1 }, c.empty_array_mt))", "{\"x\":1}"),
    ]);
    // What a plugin sets changes nothing of how its configuration is read.
    let script = v2(&[("request_header", "req.set_header('x-out', tostring(envoy.get_base_config().a.b.c))")]);
    let script = script.replace("local h =", "require('cjson').decode_max_depth(1) local h =");
    let base = json!({ "a": { "b": { "c": 1 } } });
    let mut trial = super::Trial::rider_with(&script, base, json!({ "name": "test" })).unwrap();
    trial.request(&[]);
    assert_eq!(trial.request_header("x-out").as_deref(), Some("1"));
}

#[test]
fn json_survives_a_round_trip() {
    check(&[(
        "local c = require('cjson') local t = '{\"list\":[1,2.5,\"x\",[],{}],\"text\":\"a\\\\nb\"}'; c.encode(c.decode(t).list), c.decode(t).text == 'a\\nb'",
        "[1,2.5,\"x\",[],{}]|true",
    )]);
}

#[test]
fn inspect_shows_values_to_people() {
    check(&[
        ("require('inspect')(1), require('inspect')('a\\n'), require('inspect')(nil)", "1|\"a\\n\"|nil"),
        ("require('inspect')({}), require('inspect')({ 1, 'b' })", "{}|{ 1, \"b\" }"),
        ("require('inspect').inspect({ a = 1, [2] = 3 }, { newline = ' ', indent = '' })", "{ [2] = 3, a = 1 }"),
        ("require('inspect')({ a = { b = {} } }, { depth = 1, newline = ' ', indent = '' })", "{ a = {...} }"),
        (
            "local t = { n = 1 } t.t = t; require('inspect')(t, { newline = ' ', indent = '' })",
            "{ n = 1, t = <table 1> }",
        ),
        (
            "local i = require('inspect') local function quiet(item, path) if path[#path] ~= i.METATABLE then return item end end local t = setmetatable({ 1 }, { x = 1 }); i(t, { newline = ' ', indent = '' }), i(t, { newline = ' ', indent = '', process = quiet })",
            "{ 1, <metatable> = { x = 1 } }|{ 1 }",
        ),
        (
            "local i = require('inspect') local function hide(item, path) if path[#path] == 'secret' then return '***' end return item end local t = { secret = 'x', { secret = 'y' } }; i(t, { newline = ' ', indent = '', process = hide }), t.secret",
            "{ { secret = \"***\" }, secret = \"***\" }|x",
        ),
    ]);
}
