//! WebAssembly: each function of the proxy-wasm ABI, called in the phases where it is of use and in others.

use crate::scene::{Over, Scene};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_tests::wasm::{module, whole, with_code};
use serde_json::{Value, json};

pub fn scenes() -> Vec<Scene> {
    vec![
        fields(),
        edits(),
        maps(),
        bodies(),
        answer_bodies(),
        trailers(),
        replies(),
        pauses(),
        properties(),
        calls(),
        answer_calls(),
        shared(),
        metrics(),
        foreign(),
        signatures(),
        others(),
        failures("wasm-fails-open", "FAIL_OPEN"),
        failures("wasm-fails-closed", "FAIL_CLOSED"),
        streams(),
    ]
}

fn scene(name: &str) -> Scene {
    with(name, json!({}))
}

/// A machine of its own, so that what one scene shares no other sees.
fn with(name: &str, more: Value) -> Scene {
    let mut own = json!({"name": "plugin", "root_id": "root", "vm_config": {"vm_id": name}});
    postrider_tests::kit::config::overlay(&mut own, more);
    let code = json!({"local": {"filename": module("c", "script")}});
    super::scene(name, with_code(code, &json!({"k": "v"}), own), "%FILTER_STATE(wasm.trace:PLAIN)%")
}

const FIELDS: &str = "x-a: 1\r\nX-Many: one\r\nx-many: two\r\nx-empty:\r\ncookie: a=b\r\ncookie: c=d\r\n";

fn fields() -> Scene {
    scene("wasm-fields")
        .get("/")
        .does(
            "/p?q",
            FIELDS,
            &[
                "qh get 0 :path; qh get 0 :method; qh get 0 :authority; qh get 0 :scheme; qh get 0 host; qh get 0 :status",
                "qh get 0 x-a; qh get 0 X-A; qh get 0 x-many; qh get 0 x-empty; qh get 0 x-none; qh get 0 cookie; qh get 0 ~",
                "qh pairs 0; qh size 0",
                "ah pairs 2; ah get 2 :status; ah get 2 x-origin; ah get 2 content-length; ah get 2 x-none",
                // Of the request while the answer passes.
                "ah get 0 :path; ah get 0 x-a; ah pairs 0",
            ],
        )
        .makes("/", "x-do: ah pairs 2; ah get 2 x-dup\r\n", &["201|X-Dup=1|x-dup=2|x-e=", "204|x-b=1", "404|length=3"])
        .ask("HEAD", "test", "/", "x-do: qh get 0 :method; ah pairs 2\r\n")
        .ask("OPTIONS", "other.test:81", "/x", "x-do: qh get 0 :authority; qh get 0 :path; qh pairs 0\r\n")
        .does("/direct", "", &["qh get 0 :path; ah pairs 2"])
        .does("/nowhere", "", &["ah pairs 2; ah get 2 :status"])
}

fn edits() -> Scene {
    scene("wasm-edits").does(
        "/p?q",
        FIELDS,
        &[
            "qh add 0 x-new 1; qh add 0 x-new 2; qh get 0 x-new; qh pairs 0",
            "qh add 0 x-a 2; qh get 0 x-a; qh add 0 X-Upper 3; qh get 0 x-upper",
            "qh replace 0 x-many one; qh get 0 x-many; qh replace 0 x-new 1; qh replace 0 x-a ~; qh get 0 x-a",
            "qh remove 0 x-many; qh remove 0 x-none; qh remove 0 X-A; qh pairs 0",
            "qh replace 0 :path /other?r=1; qh get 0 :path",
            "qh replace 0 :authority other.test; qh get 0 :authority",
            "qh replace 0 :method POST; qh get 0 :method",
            "qh replace 0 :path /direct; ah get 0 :path",
            "qh replace 0 :path /direct; qh foreign clear_route_cache ~",
            "qh replace 0 host again.test; qh get 0 :authority; qh get 0 host",
            "ah add 2 x-new 1; ah add 2 x-new 2; ah replace 2 x-origin other; ah remove 2 content-type; ah pairs 2",
            "ah replace 2 :status 202; ah get 2 :status",
            "ah remove 2 x-origin; ah remove 2 x-none; ah replace 2 x-made 1",
            "ah setpairs 2 :status=203 x-only=1 content-length=6; ah pairs 2",
            "ah replace 0 x-a late; ah get 0 x-a; ah add 0 x-late 1",
            "ah replace 2 content-length 6; ah add 2 server mine; ah add 2 date never",
            "qh add 0 x-value with+spaces+inside; qh get 0 x-value",
        ],
    )
}

/// Maps that are not there, or not yet.
fn maps() -> Scene {
    scene("wasm-maps").does(
        "/",
        "x-a: 1\r\n",
        &[
            "qh get 2 :status; qh size 2; qh add 2 x-early 1; qh pairs 2",
            "qh get 1 x-a; qh size 1; qh add 1 x-t 1; qh pairs 1",
            "qh get 3 x-a; qh size 3; qh add 3 x-t 1",
            "qh get 9 x; qh size 9; qh add 9 x y; qh replace 9 x y; qh remove 9 x; qh setpairs 9 a=b",
            "ah get 3 x; ah size 3; ah add 3 x-t 1; ah get 1 x; ah size 1",
            "ah body 1 0 10; ah bstat 1; ah body 0 0 10",
        ],
    )
}

/// Gathered: how a body falls into pieces is no matter of the ABI.
fn bodies() -> Scene {
    scene("wasm-bodies")
        .sends(
            "/",
            "",
            "hello world",
            &[
                "qb pause; qe body 0 0 100",
                "qb pause; qe body 0 0 5; qe body 0 6 100; qe bstat 0",
                "qh remove 0 content-length; qb pause; qe setbody 0 0 100 gathered",
                "qh remove 0 content-length; qb pause; qe setbody 0 0 0 front-",
                "qh remove 0 content-length; qb pause; qe setbody 0 100 0 -behind",
            ],
        )
        .sends_chunks("/trailers", &["qt body 0 0 100; qt bstat 0"])
}

fn answer_bodies() -> Scene {
    let scripts = [
        "ab pause; ae body 1 0 20; ae bstat 1",
        "ah remove 2 content-length; ab pause; ae setbody 1 0 100000 whole; ae body 1 0 20",
        "ah remove 2 content-length; ab pause; ae setbody 1 0 0 front-; ae bstat 1",
        "ah remove 2 content-length; ab pause; ae setbody 1 100000 0 -behind; ae bstat 1",
        "ah remove 2 content-length; ab pause; ae setbody 1 1 2 --; ae body 1 0 20",
        "ah remove 2 content-length; ab pause; ae setbody 1 0 100000 ~",
        "ab pause; ae replace 2 x-late 1; ae get 2 :status",
    ];
    scripts.iter().fold(scene("wasm-answer-bodies"), |scene, script| {
        let fields = format!("x-do: {script}\r\n");
        scene
            .get_with("/", &fields)
            .makes("/", &fields, &["200|body=some text", "200|length=5|chunked=1", "200|length=0", "204"])
            .answers_with("/", &fields, &["chunked", "until-close"])
    })
}

fn trailers() -> Scene {
    scene("wasm-trailers")
        .sends_chunks(
            "/trailers",
            &[
                "qt pairs 1; qt size 1; qt get 1 x-last; qt get 1 X-Also; qt get 1 x-none",
                "qt add 1 x-new 1; qt replace 1 x-last 2; qt remove 1 x-also; qt pairs 1",
                "qt setpairs 1 x-only=1; qt pairs 1",
                "qt get 0 :path; qt get 0 x-do; qt add 0 x-late 1",
                "qb pause; qt body 0 0 100; qt bstat 0",
                "qb pause; qt setbody 0 0 100 new; qt body 0 0 100",
                "qt respond 418 teapot trailers ~",
                "qt pause; qt resume 0",
            ],
        )
        .answers_with(
            "/trailers",
            "x-do: at pairs 3; at size 3; at get 3 x-end; at get 3 X-More; at get 3 x-none\r\n",
            &["trailers"],
        )
        .answers_with(
            "/trailers",
            "x-do: at add 3 x-new 1; at replace 3 x-end 2; at remove 3 x-more; at pairs 3\r\n",
            &["trailers"],
        )
        .answers_with("/trailers", "x-do: at setpairs 3 x-only=1\r\n", &["trailers"])
        .answers_with("/trailers", "x-do: ab pause; at body 1 0 10; at bstat 1; at get 2 :status\r\n", &["trailers"])
        .answers_with("/trailers", "x-do: ab pause; at setbody 1 0 100 new\r\n", &["trailers"])
        .answers_with("/trailers", "x-do: at pause; at resume 1; at get 0 :path\r\n", &["trailers"])
}

fn replies() -> Scene {
    scene("wasm-replies")
        .does(
            "/",
            "",
            &[
                "qh respond 418 teapot short+and+stout -1 x-a=1 x-b=2",
                "qh respond 200 ~ ~ -1",
                "qh respond 200 ~ ok -1 content-type=text/html",
                "qh respond 301 moved ~ -1 location=http://else.test/",
                "qh respond 503 down down 14",
                "qh respond 200 ok ok 0 x-a=1",
                "qh respond 204 none ~ -1",
                "qh respond 500 own own -1 content-length=3 server=mine",
                "qh respond 418 teapot body -1; ah add 2 x-seen yes; ah pairs 2",
                "qh respond 418 teapot body -1; qh pause",
                "qh pause; qh respond 418 teapot body -1",
                "qh respond 418 teapot body -1; qh resume 0",
                "ah respond 418 late body -1 x-a=1; ah pause",
                "ah respond 418 late body -1",
                "ah respond 200 late ~ -1; ah add 2 x-late 1",
            ],
        )
        // Not from the body's function: whether the upstream had a connection then is a matter of time.
        .sends("/", "", "hello", &["qh respond 418 early no -1"])
        .ask("HEAD", "test", "/", "x-do: qh respond 418 teapot body -1\r\n")
        .get_with("/", "content-type: application/grpc\r\nx-do: qh respond 403 no no 7\r\n")
        .get_with("/", "content-type: application/grpc\r\nx-do: qh respond 403 no no -1\r\n")
        .does("/direct", "", &["ah respond 418 instead body -1; ah pause"])
}

/// Not those that resume a message within the hook about its head: Envoy 1.40 sends the request twice then, or half an answer.
fn pauses() -> Scene {
    scene("wasm-pauses").does("/", "", &["qh close 0", "qh pause; qh close 0"]).sends(
        "/",
        "",
        "hello",
        &["qb resume 0", "qb pause; qe resume 0", "qb close 0"],
    )
}

fn properties() -> Scene {
    const REQUEST: &[&str] = &[
        "request.path request.url_path request.query request.host request.scheme request.method request.protocol request.referer",
        "request.useragent request.id request.headers.x-a request.headers.x-none request.size",
        "plugin_name plugin_root_id plugin_vm_id nothing request.none",
        "connection.mtls connection.requested_server_name connection.tls_version connection.subject_local_certificate",
        "connection.uri_san_peer_certificate connection.sha256_peer_certificate_digest",
        "xds.route_metadata.filter_metadata.module.text xds.route_metadata.filter_metadata.none.text",
        "xds.cluster_name upstream.request_attempt_count upstream.num_endpoints xds.cluster_metadata upstream.locality",
        "connection.peer_certificate upstream.peer_certificate upstream_filter_state response.headers_bytes",
        "filter_state.none wasm.none",
    ];
    const ANSWER: &[&str] = &[
        "response.code response.flags response.code_details request.protocol",
        "connection.mtls connection.requested_server_name connection.tls_version",
        "upstream.locality upstream.peer_certificate xds.cluster_name upstream.num_endpoints",
        "xds.route_metadata.filter_metadata.module.text xds.route_metadata.filter_metadata.module.number",
    ];
    let mut scene = scene("wasm-properties");
    for (phase, all) in [("qh", REQUEST), ("ah", ANSWER)] {
        for names in all {
            let script: Vec<String> = names.split(' ').map(|name| format!("{phase} prop {name}")).collect();
            let fields = format!("x-a: 1\r\nreferer: r\r\nuser-agent: u\r\nx-do: {}\r\n", script.join("; "));
            scene = scene.get_with("/named/p?q=1", &fields);
        }
    }
    scene
}

/// What calls find: the origin `authz` answers as their path says.
fn calls() -> Scene {
    let told = |order: &str| {
        format!("qh call authz {order}; qh pause; call get 6 :status; call body 4 0 20; call bstat 4; call resume 0")
    };
    let mut scene = scene("wasm-calls");
    for order in [
        "/ok ~ 5000",
        "/x?answer=403 ~ 5000",
        "/x?answer=503 ~ 5000",
        "/x?answer=204 ~ 5000",
        "/x?answer=chunked ~ 5000",
        "/post a+body 5000",
        "/fields ~ 5000 :method=PUT :path=/own?answer=409 :authority=own.test x-a=1 x-a=2",
    ] {
        scene = scene.get_with("/", &format!("x-do: {}\r\n", told(order)));
    }
    scene
        .does(
            "/",
            "",
            &[
                "qh call nowhere /x ~ 1000",
                "qh call ~ /x ~ 1000",
                "qh call authz ~ ~ 1000 :method=GET :path=/x",
                "qh call authz ~ ~ 1000 :path=/x :authority=a",
                "qh call authz ~ ~ 1000 :method=GET :authority=a",
                "qh call authz /x ~ 5000; qh pause; call add 0 x-added 1; call get 0 :path; call resume 0",
                "qh call authz /x ~ 5000; qh pause; call respond 401 asked no -1 x-a=1",
                "qh call authz /x ~ 5000; qh pause; call pairs 0; call remove 0 x-do; call resume 0",
            ],
        )
        .sends("/", "", "hello", &["qh call authz /x ~ 5000; qh pause; call resume 0"])
}

fn answer_calls() -> Scene {
    let scripts = [
        "ah call authz /x ~ 5000; ah pause; call get 6 :status; call resume 1",
        "ah call authz /x ~ 5000; ah pause; call add 2 x-added 1; call get 2 :status; call resume 1",
        "ah call authz /x?answer=503 ~ 5000; ah pause; call respond 502 asked no -1",
    ];
    scripts.iter().fold(scene("wasm-answer-calls"), |scene, script| {
        let fields = format!("x-do: {script}\r\n");
        scene
            .get_with("/", &fields)
            .makes("/", &fields, &["200|length=0", "404|length=7|chunked=1"])
            .get_with("/direct", &fields)
    })
}

fn shared() -> Scene {
    scene("wasm-shared").does(
        "/",
        "",
        &[
            "qh sget none; qh sset one first 0; qh sget one; qh sset one second 0; qh sget one",
            "qh sget one; qh sset one third 1; qh sset one third 2; qh sget one; qh sset one fourth 99; qh sget one",
            "qh sset two a 5; qh sget two; qh sset empty ~ 0; qh sget empty; qh sset ~ nameless 0; qh sget ~",
            "ah sget one; ah sset one late 0; ah sget one",
            "qh qtake queue; qh qput queue a; qh qput queue b; qh qtake queue; qh qtake queue; qh qtake queue",
            "qh qput queue ~; qh qtake queue; qh qfind wasm-shared queue; qh qfind none queue; qh qfind wasm-shared none; qh qnumber 99",
            "qh sset one 1 0; qh sset one ~ 0; qh sget one",
        ],
    )
}

fn metrics() -> Scene {
    scene("wasm-metrics").does(
        "/",
        "",
        &[
            "qh metric 0 a_counter; qh increment 0 a_counter 3; qh increment 0 a_counter 2; qh record 0 a_counter 100",
            "qh increment 0 a_counter -1; qh increment 0 a_counter 0",
            "qh increment 1 a_gauge 5; qh record 1 a_gauge 9; qh increment 1 a_gauge -4; qh increment 1 a_gauge -100",
            "qh record 2 a_histogram 5; qh increment 2 a_histogram 5",
            "ah increment 0 late_counter 1; ae increment 0 late_counter 1",
            "qh metric 1 a_counter; qh increment 0 with.dots.and_more 1; qh record 1 level.now 7",
        ],
    )
}

fn foreign() -> Scene {
    scene("wasm-foreign").does(
        "/named",
        "",
        &[
            "qh foreign none ~; qh foreign none argument; qh foreign ~ ~",
            "qh foreign uncompress not+compressed; qh foreign uncompress ~",
            "qh foreign clear_route_cache ~; ah foreign clear_route_cache ~",
            "qh foreign expr_evaluate ~; qh foreign expr_delete ~; qh foreign expr_delete abcd; qh foreign expr_create ((",
            "qh foreign expr_create request.path; qh foreign expr_create 1+==",
        ],
    )
}

/// Signatures of every kind of key and hash. Each answer is told by its status and its first byte: 8 is a result, which is
/// always true, 18 and 26 are errors.
fn signatures() -> Scene {
    const TEXT: &[u8] = b"text";
    let field = |tag: u8, bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).expect("a short field");
        let mut all = vec![tag << 3 | 2, (length & 127) as u8 | 128, (length >> 7) as u8];
        all.extend(bytes);
        all
    };
    let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>();
    let rsa = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
    let curve = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    let random = SystemRandom::new();
    let mut of_rsa = vec![0; rsa.public_modulus_len()];
    rsa.sign(&RSA_PKCS1_SHA256, &random, TEXT, &mut of_rsa).expect("a signature");
    let of_curve = curve.sign(&random, TEXT).expect("a signature");
    let keys = [
        (
            AsDer::<Pkcs8V1Der<'_>>::as_der(&rsa).expect("a key").as_ref().to_vec(),
            AsDer::<PublicKeyX509Der<'_>>::as_der(rsa.public_key()).expect("a key").as_ref().to_vec(),
            of_rsa,
        ),
        (
            curve.to_pkcs8v1().expect("a key").as_ref().to_vec(),
            AsDer::<PublicKeyX509Der<'_>>::as_der(curve.public_key()).expect("a key").as_ref().to_vec(),
            of_curve.as_ref().to_vec(),
        ),
    ];
    let mut calls = String::new();
    let mut call = |function: &str, fields: &[Vec<u8>]| {
        calls += &format!("(call $tell $\"{function}\" $\"{}\")\n", escaped(&fields.concat()));
    };
    for (private, public, signature) in &keys {
        for hash in ["sha1", "sha224", "sha256", "sha384", "sha512", "SHA256", "md5", ""] {
            call("sign", &[field(1, hash.as_bytes()), field(2, private), field(3, TEXT)]);
            // Good for one of them, and the error for the others.
            let hash = field(1, hash.as_bytes());
            call("verify_signature", &[hash, field(2, public), field(3, signature), field(4, TEXT)]);
        }
        call("sign", &[field(1, b"sha256"), field(2, public), field(3, TEXT)]);
        call("verify_signature", &[field(1, b"sha256"), field(2, private), field(3, signature), field(4, TEXT)]);
    }
    for function in ["sign", "verify_signature"] {
        call(function, &[field(1, b"sha256"), field(2, b"no key")]);
        call(function, &[field(1, b"sha256")]);
        call(function, &[]);
    }
    // A letter for the status, and one for the first byte.
    let module = format!(
        r#"(import "env" "proxy_call_foreign_function" (func $foreign (param i32 i32 i32 i32 i32 i32) (result i32)))
        (import "env" "proxy_set_property" (func $set_property (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 8)
        (global $next (mut i32) (i32.const 131072))
        (global $told (mut i32) (i32.const 64))
        (func (export "proxy_abi_version_0_2_1"))
        (func (export "proxy_on_memory_allocate") (param i32) (result i32)
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 0) (i32.const 15)) (i32.const -8)))))
        (func $letter (param i32)
            (i32.store8 (global.get $told) (i32.add (local.get 0) (i32.const 65)))
            (global.set $told (i32.add (global.get $told) (i32.const 1))))
        (func $tell (param i32 i32 i32 i32)
            (i32.store (i32.const 16) (i32.const 0))
            (i32.store (i32.const 20) (i32.const 0))
            (call $letter (call $foreign (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 16) (i32.const 20)))
            (if (i32.load (i32.const 20)) (then (call $letter (i32.load8_u (i32.load (i32.const 16)))))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (global.set $told (i32.const 64))
            (global.set $next (i32.const 131072))
            {calls}
            (drop (call $set_property $"trace" (i32.const 64) (i32.sub (global.get $told) (i32.const 64))))
            (i32.const 0))"#
    );
    own("wasm-signatures", &module).get("/")
}

/// A module of its own, with texts as `wasm::texts` takes them.
fn own(name: &str, module: &str) -> Scene {
    let code = json!({"local": {"inline_bytes": STANDARD.encode(whole(module))}});
    let own = json!({"name": "plugin", "root_id": "root", "vm_config": {"vm_id": name}});
    super::scene(name, with_code(code, &json!({}), own), "%FILTER_STATE(wasm.trace:PLAIN)%")
}

fn others() -> Scene {
    scene("wasm-others").does(
        "/",
        "",
        &[
            "qh log 0 text; qh log 2 text; qh log 5 text; qh log 6 text; qh log 99 text; qh log -1 text",
            "qh time ~; qh status ~; ah status ~",
            "unknown get 0 :path",
        ],
    )
}

/// A trap ends the machine, and what becomes of later requests is the policy's.
fn failures(name: &str, policy: &str) -> Scene {
    with(name, json!({"failure_policy": policy}))
        .does("/", "", &["qh add 0 x-fine 1"])
        .does("/", "", &["ah trap 0"])
        .does("/", "", &["qh add 0 x-after 1"])
        .get("/direct")
        .sends("/", "", "hello", &["qb add 0 x-after 1"])
}

fn streams() -> Scene {
    scene("wasm-streams")
        .over(Over::Http2)
        .does(
            "/p?q",
            "x-a: 1\r\nx-many: one\r\nx-many: two\r\n",
            &[
                "qh pairs 0; ah pairs 2",
                "qh get 0 :scheme; qh get 0 x-many; qh prop request.protocol; qh prop request.path; qh size 0",
                "qh replace 0 :path /other; qh add 0 x-new 1; ah replace 2 :status 202",
                "qh respond 418 teapot body -1 x-a=1",
                "qh call authz /x ~ 5000; qh pause; call add 0 x-added 1; call resume 0",
                "ah remove 2 content-length; ab pause; ae setbody 1 0 100 whole",
            ],
        )
        .sends(
            "/",
            "",
            "hello",
            &["qb pause; qe body 0 0 100", "qh remove 0 content-length; qb pause; qe setbody 0 0 100 whole"],
        )
}
