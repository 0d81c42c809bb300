//! Odd calls by chance: methods of every handle with arguments that nobody means, called as nobody should, in Envoy 1.40 and in
//! Postrider. Each call stands in a `pcall`, and what came of it is compared: values, or the words of the error.
//!
//! Left out is what Envoy does not survive or what is undefined in it (lengths beyond the text of a key), and what
//! `docs/filters/lua.md` lists: edits that no message can carry, and what objects are made of.
//!
//! `POSTRIDER_DIFFERENTIAL_SEED` and `POSTRIDER_DIFFERENTIAL_COUNT` make it other scripts, or more of them.

use postrider_tests::chance::Chance;
use postrider_tests::kit::config::router;
use postrider_tests::kit::proxy::Launch;
use postrider_tests::kit::{Config, Origin, Proxy, RawClient};
use postrider_tests::postrider_only;
use serde_json::{Value, json};

use crate::scripts::plain;
use crate::site::{PER_ROUTE, beside, lua};

/// Calls of each script.
const CALLS: usize = 40;

/// Scripts of each kind, unless more are asked for.
const SCRIPTS: u64 = 10;

/// What each script begins with: `try` notes what came of a call.
const PRELUDE: &str = r##"
local out
local function shown(value, depth)
  local kind = type(value)
  if kind == "string" then return '"' .. value:gsub("[^%g ]", function(c) return ("\\%02x"):format(c:byte()) end) .. '"' end
  if kind == "number" then return value ~= value and "nan" or ("%.17g"):format(value) end
  if kind == "function" then return "callable" end
  local meta = (kind == "table" or kind == "userdata") and getmetatable(value)
  if meta then return meta.__call and "callable" or "object" end
  if kind ~= "table" then return tostring(value) end
  if depth > 5 then return "deep" end
  local parts = {}
  for key, inner in pairs(value) do parts[#parts + 1] = shown(key, depth + 1) .. "=" .. shown(inner, depth + 1) end
  table.sort(parts)
  return "{" .. table.concat(parts, " ") .. "}"
end
local function line(ok, ...)
  local parts = {}
  for i = 1, select("#", ...) do parts[i] = shown((select(i, ...)), 0) end
  return (ok and "ok " or "error ") .. table.concat(parts, " ")
end
local function try(call) out[#out + 1] = line(pcall(call)) end
local function all(object)
  local parts = {}
  for key, value in pairs(object) do
    -- How long it took is none of this.
    if key ~= "x-envoy-upstream-service-time" then parts[#parts + 1] = shown(key, 0) .. "=" .. shown(value, 0) end
  end
  table.sort(parts)
  return table.concat(parts, " ")
end
"##;

/// Values that are none of what a method wants, most of the time.
const VALUES: &[&str] = &[
    "nil",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.5",
    "200.9",
    "2^31",
    "-2^31 - 1",
    "2^53",
    "2^63",
    "1e300",
    "-1e300",
    "0/0",
    "1/0",
    "-1/0",
    "''",
    "'a'",
    "'x-a'",
    "'X-MULTI'",
    "':path'",
    "'no such'",
    r"'\255\254'",
    r"'a\nb'",
    "' a '",
    "'1'",
    "' 12 '",
    "'0x10'",
    "'1e3'",
    "'1.5'",
    "'ms'",
    "'origin'",
    "'10.0.0.1:80'",
    "('y'):rep(300)",
    "{}",
    "{1, 2}",
    "{a = 1}",
    "{{}}",
    "print",
    "function() end",
    "h",
    "h:headers()",
    "coroutine.create(print)",
    "io.stdout",
];

/// Names that a message may have and that nothing depends on.
const NAMES: &[&str] = &["'x-a'", "'X-B'", "'x-multi'", "'x-empty'", "1", "2.5", "'none'"];

/// What such a field may hold.
const CONTENTS: &[&str] = &["'v'", "''", "12", "1.5", "1e300", r"'\255\254'", "'a, b'", "('z'):rep(300)"];

/// Types that are no text; a message is not changed by them.
const NO_TEXT: &[&str] = &["nil", "true", "{}", "print", "h", "coroutine.create(print)"];

/// Objects, with their methods and how many arguments these take.
const OBJECTS: &[(&str, &[(&str, usize)])] = &[
    (
        "h",
        &[
            ("headers", 0),
            ("metadata", 1),
            ("streamInfo", 0),
            ("connection", 0),
            ("connectionStreamInfo", 0),
            ("base64Escape", 1),
            ("base64Decode", 1),
            ("clearRouteCache", 0),
            ("filterContext", 0),
            ("virtualHost", 0),
            ("route", 0),
            ("stats", 0),
            ("requestHeaders", 0),
            ("body", 1),
            ("logInfo", 1),
            ("logCritical", 1),
            ("noSuchMethod", 0),
        ],
    ),
    ("h:headers()", &[("get", 1), ("getAtIndex", 2), ("getNumValues", 1), ("logTrace", 1)]),
    ("h:requestHeaders()", &[("get", 1), ("getAtIndex", 2), ("getNumValues", 1)]),
    ("h:metadata()", &[("get", 1), ("logDebug", 1), ("set", 2)]),
    ("h:filterContext()", &[("get", 1)]),
    ("h:metadata('other')", &[("get", 1)]),
    ("h:route()", &[("metadata", 1), ("logWarn", 1)]),
    ("h:route():metadata('other')", &[("get", 1)]),
    ("h:virtualHost()", &[("metadata", 0)]),
    ("h:virtualHost():metadata()", &[("get", 1)]),
    ("h:connection()", &[("ssl", 0)]),
    ("h:connectionStreamInfo()", &[("dynamicMetadata", 0), ("dynamicTypedMetadata", 1)]),
    ("h:connectionStreamInfo():dynamicMetadata()", &[("get", 1), ("set", 3)]),
    (
        "h:streamInfo()",
        &[
            ("protocol", 0),
            ("routeName", 0),
            ("virtualClusterName", 0),
            ("requestedServerName", 0),
            ("downstreamSslConnection", 0),
            ("dynamicMetadata", 0),
            ("dynamicTypedMetadata", 1),
            ("filterState", 0),
            ("drainConnectionUponCompletion", 0),
        ],
    ),
    ("h:streamInfo():dynamicMetadata()", &[("get", 1), ("get", 1)]),
    ("h:streamInfo():filterState()", &[("get", 2), ("set", 3)]),
    ("h:stats()", &[("noSuchMethod", 1)]),
    ("h:stats():counter('c')", &[("inc", 0), ("add", 1), ("add", 1), ("value", 0)]),
    ("h:stats():gauge('g')", &[("set", 1), ("value", 0)]),
    ("h:stats():histogram('o')", &[("recordValue", 1), ("recordValue", 1)]),
];

/// What a script does with an object itself.
const ON_OBJECTS: &[&str] = &[
    "return O.nothing",
    "O.nothing = 1",
    "O.get = nil",
    "O['x y'] = {}",
    "return #O",
    "return O()",
    "return O + 1",
    "return O .. 'x'",
    "return O < O",
    "return O == O",
    "return O == {}",
    "return all(O)",
    "return -O",
    "return type(O.logInfo)",
    "return O.nothing.more",
    "return O:nothing()",
    "for k in O do end",
    "return rawequal(O, O)",
    "return tostring(O) == tostring(O)",
    "return string.format('%d', O)",
    "return tonumber(O)",
    "return math.floor(O)",
    "return table.concat({O})",
    "return select('#', unpack({O}))",
    "return pcall(O)",
    "return (string.rep('x', O))",
];

fn value(chance: &mut Chance) -> String {
    chance.pick(VALUES).to_owned()
}

/// One that is no object.
fn plain_value(chance: &mut Chance) -> String {
    loop {
        let value = value(chance);
        if !value.starts_with('h') {
            return value;
        }
    }
}

/// One that metadata can hold in both: it is text and finite numbers here.
fn noted(chance: &mut Chance) -> String {
    loop {
        let value = value(chance);
        if !value.contains("255") && !value.contains("/0") {
            return value;
        }
    }
}

/// A number that fits into 32 bits, or anything else: of larger ones Envoy takes what is left of them.
fn small(chance: &mut Chance) -> String {
    loop {
        let value = value(chance);
        if !["^", "/0", "1e300"].iter().any(|large| value.contains(large)) {
            return value;
        }
    }
}

/// A time that is long enough for an answer, or anything else.
fn timeout(chance: &mut Chance) -> String {
    loop {
        let value = small(chance);
        if !["1", "1.5", "'1'", "'1.5'", "' 12 '", "'0x10'"].contains(&value.as_str()) {
            return value;
        }
    }
}

fn arguments(chance: &mut Chance, wanted: usize) -> Vec<String> {
    let count = match chance.below(10) {
        0 => wanted + 1,
        1 | 2 => chance.below(wanted + 1),
        _ => wanted,
    };
    (0..count).map(|_| value(chance)).collect()
}

/// The method of an object with these arguments, as it should be called or not.
fn called(chance: &mut Chance, object: &str, method: &str, arguments: &[String]) -> String {
    let arguments = arguments.join(", ");
    if chance.percent(85) {
        return format!("return {object}:{method}({arguments})");
    }
    let own = match chance.percent(30) {
        true => chance.pick(&["nil", "{}", "'text'", "setmetatable({}, {})", "1"]).to_owned(),
        false => plain_value(chance),
    };
    let all = if arguments.is_empty() { own } else { format!("{own}, {arguments}") };
    // Of a method that is not there the error has the place of its name in it.
    format!("local object = {object} local method = object.{method} return method({all})")
}

/// One thing that a script tries.
fn attempt(chance: &mut Chance) -> String {
    match chance.below(22) {
        20 => {
            let host = chance.pick(&[
                "'1.2.3.4'",
                "'1.2.3.4:80'",
                "'[::1]:80'",
                "'a.b'",
                "'1.2.3.4:x'",
                "12",
                "{}",
                "nil",
                "''",
            ]);
            let strict = chance.pick(&["", ", true", ", false", ", true, 1"]);
            let odd = format!("'1.2.3.4', {}", value(chance));
            let all = if chance.percent(60) { format!("{host}{strict}") } else { odd };
            format!("return h:setUpstreamOverrideHost({all})")
        }
        21 => {
            // A name with spaces is none here.
            let name = chance.pick(&["'n'", "'x-a'", "1", "2.5", "true", "{}", "h", "print"]);
            let unit = chance.pick(&[
                "",
                ", nil",
                ", 'ms'",
                ", 'bytes'",
                ", 'x'",
                ", 12",
                ", true",
                ", {}",
                ", 'MS'",
                ", 'unspecified', 1",
            ]);
            let kind = chance.pick(&["counter", "gauge", "histogram"]);
            format!("return h:stats():{kind}({name}{unit})")
        }
        0..=2 => {
            let object = OBJECTS[chance.below(OBJECTS.len())].0;
            format!("local O = {object} {}", chance.pick(ON_OBJECTS))
        }
        3 => edit(chance),
        4 => http_call(chance),
        5 => {
            let known = chance.pick(&["timestamp", "timestampString"]);
            let arguments = arguments(chance, 1).join(", ");
            format!("return type(h:{known}({arguments}))")
        }
        6 => {
            let (index, length) = (small(chance), small(chance));
            match chance.below(3) {
                0 => format!("local b = h:body(true) return b:getBytes({index}, {length})"),
                1 => {
                    // Of anything but a text, Envoy forgets the body before it complains.
                    let bytes = chance.pick(&["'new'", "''", "12", "2.5", r"'\255\0\254'", "('y'):rep(300)"]);
                    format!("local b = h:body(true) return b:setBytes({bytes}), b:length(), b:getBytes(0, b:length())")
                }
                _ => format!("return h:body(true):length({length})"),
            }
        }
        7 => {
            let key = arguments(chance, 6).join(", ");
            format!("return h:verifySignature({key})")
        }
        8 => {
            let (space, key, new) =
                (chance.pick(&["'ns'", "'other'", "1", "''"]), chance.pick(&["'k'", "2", "''"]), noted(chance));
            format!("local m = h:streamInfo():dynamicMetadata() m:set({space}, {key}, {new}) return m:get({space})")
        }
        9 => {
            let amount = value(chance);
            let method = chance.pick(&["add", "sub", "set"]);
            format!("local g = h:stats():gauge('g') g:set(2^53) g:{method}({amount}) return g:value()")
        }
        _ => {
            let (object, methods) = OBJECTS[chance.below(OBJECTS.len())];
            let (method, wanted) = methods[chance.below(methods.len())];
            let arguments = arguments(chance, wanted);
            called(chance, object, method, &arguments)
        }
    }
}

/// An edit of the head, and what the head is then.
fn edit(chance: &mut Chance) -> String {
    let name = if chance.percent(85) { chance.pick(NAMES) } else { chance.pick(NO_TEXT) };
    let content = if chance.percent(85) { chance.pick(CONTENTS) } else { chance.pick(NO_TEXT) };
    let edit = match chance.below(5) {
        0 | 1 => format!("add({name}, {content})"),
        2 => format!("replace({name}, {content})"),
        3 => format!("remove({name})"),
        _ => format!("setHttp1ReasonPhrase({})", chance.pick(NO_TEXT)),
    };
    format!("local H = h:headers() H:{edit} return H:get({name}), H:getNumValues({name})")
}

fn http_call(chance: &mut Chance) -> String {
    let heads = [
        "{[':method'] = 'GET', [':path'] = '/', [':authority'] = 'x'}",
        "{[':method'] = 'GET', [':path'] = '/', [':authority'] = {'x'}, ['x-l'] = {1, 'two', 3.5}}",
        "{[':method'] = 'GET', [':path'] = '/'}",
        "{[':method'] = 'GET', [':path'] = '/', [':authority'] = 'x', ['x-bad'] = true}",
        "{[':method'] = 'GET', [':path'] = '/', [':authority'] = 'x', ['x-bad'] = {{}}}",
        "{[':method'] = {}, [':path'] = '/', [':authority'] = 'x'}",
    ];
    // Of an odd cluster and an odd head, each tells of another one first.
    let (cluster, head) = match chance.below(10) {
        0 | 1 => (value(chance), heads[0].to_owned()),
        2 => ("'origin'".to_owned(), value(chance)),
        _ => ("'origin'".to_owned(), chance.pick(&heads).to_owned()),
    };
    let head = without_numbers(head);
    let is_odd = cluster != "'origin'" || chance.percent(70);
    let body = if is_odd { chance.pick(&["nil", "''", "'body'", "12"]).to_owned() } else { value(chance) };
    let last = match chance.below(4) {
        0 => format!(", {}", timeout(chance)),
        1 => format!(", 1000, {}", value(chance)),
        2 => {
            let option = chance.pick(&[
                "timeout_ms",
                "asynchronous",
                "trace_sampled",
                "return_duplicate_headers",
                "send_xff",
                "none",
            ]);
            format!(", {{{option} = {}}}", timeout(chance))
        }
        _ => ", 1000".to_owned(),
    };
    format!(
        "local head, body = h:httpCall({cluster}, {head}, {body}{last}) return type(head), head and head[':status'], type(body)"
    )
}

/// Of keys that are numbers, Envoy changes the table that it goes through.
fn without_numbers(head: String) -> String {
    if ["{1, 2}", "{{}}"].contains(&head.as_str()) { "{}".to_owned() } else { head }
}

/// An answer of a script's own: each is a script, since it is the last thing that happens.
fn respond(chance: &mut Chance) -> String {
    let status = match chance.below(3) {
        0 => value(chance),
        1 => chance
            .pick(&[
                "'200'",
                "201",
                "'404'",
                "200.9",
                "199",
                "600",
                "599",
                "'0200'",
                "' 200'",
                "'200x'",
                "'+200'",
                "{'201', '202'}",
                "'2e2'",
            ])
            .to_owned(),
        _ => "'200'".to_owned(),
    };
    let more = match chance.below(3) {
        0 => format!(
            ", ['x-r'] = {}",
            chance.pick(&["1", "1.5", "{1, 'b'}", "{}", "true", "{{}}", "print", "h", "{true}", "{a = 'b'}"])
        ),
        1 => format!(", [{}] = 'v'", chance.pick(&["'x-r'", "'X-R'", "true", "print", "h"])),
        _ => String::new(),
    };
    let head = if chance.percent(85) { format!("{{[':status'] = {status}{more}}}") } else { value(chance) };
    let head = without_numbers(head);
    let arguments = match chance.below(4) {
        0 => String::new(),
        1 => format!(", {}", value(chance)),
        _ => ", 'body'".to_owned(),
    };
    let own = if chance.percent(90) { "h:respond(" } else { "h.respond(" };
    format!("return {own}{head}{arguments})")
}

/// What a script is, and what is asked of it.
struct Odd {
    name: String,
    script: String,
    calls: Vec<String>,
    posts: bool,
}

fn on_request(seed: u64) -> Odd {
    let mut chance = Chance::new(seed);
    let posts = chance.percent(50);
    let calls: Vec<String> = (0..CALLS).map(|_| attempt(&mut chance)).collect();
    let tries: String = calls.iter().map(|call| format!("  try(function() {call} end)\n")).collect();
    let first = if posts { "h:body()" } else { "" };
    let script = format!(
        "{PRELUDE}function envoy_on_request(h)\n  out = {{}} {first}\n{tries}  h:respond({{[':status'] = '200'}}, table.concat(out, '\\n'))\nend"
    );
    Odd { name: format!("request-{seed}"), script, calls, posts }
}

fn on_response(seed: u64) -> Odd {
    let mut chance = Chance::new(!seed);
    let calls: Vec<String> = (0..CALLS).map(|_| attempt(&mut chance)).collect();
    let tries: String = calls.iter().map(|call| format!("  try(function() {call} end)\n")).collect();
    let script = format!(
        "{PRELUDE}function envoy_on_response(h)\n  out = {{}} h:body()\n{tries}  h:body(true):setBytes(table.concat(out, '\\n'))\nend"
    );
    Odd { name: format!("response-{seed}"), script, calls, posts: false }
}

fn on_answer(seed: u64) -> Odd {
    let mut chance = Chance::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let call = respond(&mut chance);
    let script = format!(
        "{PRELUDE}function envoy_on_request(h)\n  out = {{}}\n  try(function() {call} end)\n  h:headers():replace('x-out', out[1])\nend"
    );
    Odd { name: format!("answer-{seed}"), script, calls: vec![call], posts: false }
}

/// Words that mean the same in both: see `docs/filters/lua.md` for how errors and objects differ.
fn in_common(line: &str) -> String {
    let mut line = plain(line).replace("envoy.filters.http.lua:", "lua:");
    for use_of in ["index", "get length of"] {
        line = line.replace(
            &format!("attempt to {use_of} a table value"),
            &format!("attempt to {use_of} a value (a table value)"),
        );
    }
    // A method that got anything else in place of its object.
    if let Some((head, _)) = line.split_once("postrider.envoy").filter(|(_, rest)| rest.contains("index local 'self'"))
    {
        line = format!("{head}bad argument (OBJECT expected)\"");
    }
    if let Some((head, rest)) = line.split_once("bad argument (")
        && rest.starts_with(|c: char| c.is_ascii_uppercase())
        && let Some((_, rest)) = rest.split_once(" expected")
    {
        line = format!("{head}bad argument (OBJECT expected{rest}");
    }
    // Which variable was used so.
    for (before, behind) in [(" local '", "'"), (" field '", "'"), (" upvalue '", "'")] {
        if let Some((head, rest)) = line.split_once(before)
            && let Some((_, rest)) = rest.split_once(behind)
        {
            line = format!("{head} a value{rest}");
        }
    }
    line
}

/// What came of each call of each script.
fn run(launch: Launch, scripts: &[Odd]) -> Vec<Vec<String>> {
    let origin = Origin::echo("a");
    let routes: Vec<Value> = scripts
        .iter()
        .map(|odd| {
            json!({
                "name": "the-route",
                "match": {"path": format!("/{}", odd.name)},
                "route": {"cluster": "origin"},
                "metadata": {"filter_metadata": {"envoy.filters.http.lua": {"a": "text", "1": [1, {"k": true}]}, "other": {"a": true}}},
                "typed_per_filter_config": {"envoy.filters.http.lua": {
                    "@type": PER_ROUTE, "source_code": {"inline_string": odd.script}, "filter_context": {"a": {"b": 1}},
                }},
            })
        })
        .collect();
    let host = json!({"name": "all", "domains": ["*"], "routes": routes});
    let config = Config::new()
        .http(json!({
            "http_filters": [lua(json!({})), router()],
            "route_config": {"name": "table", "virtual_hosts": [host]},
        }))
        .cluster("origin", &[origin.address]);
    let proxy = Proxy::start_with(&config, launch);
    scripts
        .iter()
        .map(|odd| {
            let mut client = RawClient::connect(proxy.address("http"));
            let (method, length) = if odd.posts { ("POST", "content-length: 5\r\n") } else { ("GET", "") };
            let body = if odd.posts { "hello" } else { "" };
            let fields = "x-multi: a\r\nx-multi: b\r\nx-empty:\r\nx-a: 1\r\n";
            client.send(format!("{method} /{} HTTP/1.1\r\nhost: test\r\n{fields}{length}\r\n{body}", odd.name));
            let answer = client.response(method);
            let Ok(answer) = answer else { return vec![format!("no answer: {answer:?}")] };
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if odd.name.starts_with("answer") {
                let fields: Vec<String> = answer
                    .headers
                    .0
                    .iter()
                    .filter(|(name, _)| name.starts_with("x-r") || name == "content-type")
                    .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
                    .collect();
                // Where the script went on, the answer is the origin's, which says what it heard.
                let went_on = text.lines().find_map(|line| line.strip_prefix("x-out: "));
                let what = went_on.unwrap_or(&text);
                return vec![in_common(&format!("{} {fields:?} {what}", answer.status))];
            }
            text.lines().map(in_common).collect()
        })
        .collect()
}

#[test]
fn odd_calls_end_as_in_envoy() {
    if !postrider_only() {
        return;
    }
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
    };
    let seed = number("POSTRIDER_DIFFERENTIAL_SEED", 1);
    let count = number("POSTRIDER_DIFFERENTIAL_COUNT", SCRIPTS);
    let mut report = String::new();
    let seeds: Vec<u64> = (seed..seed + count).collect();
    // So many scripts to one pair of processes.
    for seeds in seeds.chunks(10) {
        let scripts: Vec<Odd> = seeds
            .iter()
            .flat_map(|seed| {
                let answers = (0..4).map(move |nth| on_answer(seed * 4 + nth));
                [on_request(*seed), on_response(*seed)].into_iter().chain(answers)
            })
            .collect();
        let [theirs, ours] = beside().map(|launch| run(launch, &scripts));
        for (odd, (theirs, ours)) in scripts.iter().zip(theirs.iter().zip(&ours)) {
            if theirs.len() != odd.calls.len() || ours.len() != odd.calls.len() {
                report += &format!("{}: Envoy {theirs:?}\nhere {ours:?}\n{}\n", odd.name, odd.script);
                continue;
            }
            for (call, (theirs, ours)) in odd.calls.iter().zip(theirs.iter().zip(ours)) {
                if theirs != ours {
                    report += &format!("{}: {call}\n    Envoy {theirs}\n    here  {ours}\n", odd.name);
                }
            }
        }
    }
    assert!(report.is_empty(), "the number behind the name is the POSTRIDER_DIFFERENTIAL_SEED\n{report}");
}
