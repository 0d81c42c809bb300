//! Native modules: each function of the binary interface, called in the phases where it is of use and in others.

use crate::scene::{Over, Scene};
use postrider_tests::kit::config::extension;
use postrider_tests::modules::script;
use serde_json::json;

const NAME: &str = "envoy.filters.http.dynamic_modules";
const KIND: &str = "filters.http.dynamic_modules.v3.DynamicModuleFilter";

pub fn scenes() -> Vec<Scene> {
    vec![
        fields(),
        edits(),
        bodies(),
        answer_bodies(),
        trailers(),
        replies(),
        pieces(),
        holds(),
        facts(),
        notes(),
        calls(),
        metrics(),
        others(),
        streams(),
        upstream(),
        upstream_bodies(),
        upstream_replies(),
    ]
}

fn scene(name: &str) -> Scene {
    let module = json!({"module": {"local": {"filename": script()}}});
    let filter = extension(NAME, KIND, json!({"dynamic_module_config": module, "filter_name": "script"}));
    super::scene(name, filter, "%DYNAMIC_METADATA(module:trace)%")
}

const FIELDS: &str = "x-a: 1\r\nX-Many: one\r\nx-many: two\r\nx-empty:\r\ncookie: a=b\r\ncookie: c=d\r\n";

fn fields() -> Scene {
    scene("native-fields")
        .get("/")
        .does(
            "/p?q",
            FIELDS,
            &[
                "qh get 0 :path; qh get 0 :method; qh get 0 :authority; qh get 0 :scheme; qh get 0 host; qh get 0 :status",
                "qh get 0 x-a 0; qh get 0 X-A 0; qh get 0 x-many 0; qh get 0 x-many 1; qh get 0 x-many 2; qh get 0 x-empty; qh get 0 x-none; qh get 0 cookie 1",
                "qh pairs 0; qh count 0; qh count 1; qh count 2; qh count 3",
                "ah pairs 2; ah count 2; ah get 2 :status; ah get 2 x-none; ah get 0 :path; ah pairs 0",
                "qh get 2 :status; qh get 1 x; qh get 3 x; qh pairs 2; qh pairs 1",
            ],
        )
        .makes("/", "x-do: ah pairs 2; ah get 2 x-dup 1\r\n", &["201|X-Dup=1|x-dup=2|x-e=", "204|x-b=1", "404|length=3"])
        .ask("HEAD", "test", "/", "x-do: qh get 0 :method; ah pairs 2\r\n")
        .does("/", "x-make: 204|x-b=1\r\n", &["ah set 2 :status 202", "ah set 2 :status 304"])
        .does("/direct", "", &["qh get 0 :path; ah pairs 2"])
        .does("/nowhere", "", &["ah pairs 2"])
}

fn edits() -> Scene {
    scene("native-edits").does(
        "/p?q",
        FIELDS,
        &[
            "qh add 0 x-new 1; qh add 0 x-new 2; qh get 0 x-new 1; qh pairs 0",
            "qh add 0 x-a 2; qh add 0 X-Upper 3; qh get 0 x-upper 0; qh get 0 x-a 1",
            "qh set 0 x-many one; qh get 0 x-many; qh set 0 x-new 1",
            "qh remove 0 x-many; qh remove 0 x-none; qh remove 0 X-A; qh pairs 0",
            "qh set 0 :path /other?r=1; qh get 0 :path",
            "qh set 0 :authority other.test; qh get 0 :authority",
            "qh set 0 :method POST",
            "qh set 0 :path /direct",
            "qh set 0 :path /direct; qh reroute ~",
            "ah add 2 x-new 1; ah add 2 x-new 2; ah set 2 x-origin other; ah remove 2 content-type; ah pairs 2",
            "ah set 2 :status 202; ah get 2 :status",
            "ah set 0 x-a late; ah get 0 x-a; ah add 0 x-late 1",
            "qh add 2 x-early 1; qh set 2 x-early 1; qh add 1 x-t 1; qh set 3 x-t 1",
            "qh add 0 x-value with+spaces+inside; qh get 0 x-value",
        ],
    )
}

/// Gathered: how a body falls into pieces is no matter of the interface.
fn bodies() -> Scene {
    let gathered = [
        "qh remove 0 content-length; qh answer 1; qb answer 1; qe answer 0; qe append 0 -end",
        "qh answer 1; qb answer 1; qe answer 0",
    ];
    scene("native-bodies").sends("/", "", "hello world", &gathered)
}

fn answer_bodies() -> Scene {
    let script = "x-do: ah remove 2 content-length; ah answer 1; ab answer 1; ae answer 0; ae append 2 -end\r\n";
    scene("native-answer-bodies")
        .get_with("/", script)
        .makes("/", script, &["200|body=some text", "200|length=5|chunked=1"])
        .answers_with("/", script, &["chunked"])
}

fn trailers() -> Scene {
    let answers = |script: &str| format!("x-do: {script}\r\n");
    scene("native-trailers")
        .sends_chunks(
            "/trailers",
            &[
                "qt pairs 1; qt count 1; qt get 1 x-last; qt get 1 X-Also; qt get 1 x-none",
                "qt add 1 x-new 1; qt set 1 x-last 2; qt remove 1 x-also; qt pairs 1",
                "qt get 0 :path; qt set 0 x-late 1",
                "qt respond 418 teapot trailers",
            ],
        )
        .answers_with("/trailers", &answers("at pairs 3; at count 3; at get 3 X-End"), &["trailers"])
        .answers_with("/trailers", &answers("at add 3 x-new 1; at set 3 x-end 2; at remove 3 x-more"), &["trailers"])
        .answers_with("/trailers", &answers("at get 2 :status; at get 0 :path"), &["trailers"])
}

fn replies() -> Scene {
    scene("native-replies")
        .does(
            "/",
            "",
            &[
                "qh respond 418 teapot short+and+stout x-a=1 x-b=2; qh answer 1",
                "qh respond 301 moved ~ location=http://else.test/; qh answer 1",
                "qh respond 204 none ~; qh answer 1",
                "qh reset 0; qh answer 1",
            ],
        )
        .sends("/", "", "hello", &["qh respond 418 early no; qh answer 1"])
        .ask("HEAD", "test", "/", "x-do: qh respond 418 teapot body; qh answer 1\r\n")
}

/// Answers that are sent piece by piece, at once and by another thread.
fn pieces() -> Scene {
    scene("native-pieces").does(
        "/",
        "",
        &[
            "qh head 1 :status=204 x-a=1; qh answer 3",
            "qh head 0 :status=200 x-a=1; qh data 0 one; qh data 1 two; qh answer 3",
            "qh head 0 :status=202; qh data 0 one; qh trailers x-t=1; qh answer 3",
            "qh events 3; qh answer 3; event1 head 0 :status=202 x-a=1; event2 data 0 one; event3 data 1 two",
            "qh events 1; qh answer 3; event1 respond 418 event body",
        ],
    )
}

fn holds() -> Scene {
    scene("native-holds")
        .does(
            "/",
            "",
            &[
                "qh events 1; qh answer 1; event1 resume q",
                "qh events 1; qh answer 3; event1 set 0 x-event 1; event1 resume q",
                "qh events 1; qh answer 4; event1 resume q",
                "ah events 1; ah answer 3; event1 set 2 x-event 1; event1 resume a",
            ],
        )
        .sends("/", "", "hello", &["qh events 1; qh answer 3; event1 set 0 x-event 1; event1 resume q"])
}

/// Ids, times, addresses and sizes are each side's own.
fn facts() -> Scene {
    let all = |phase: &str, from: usize, to: usize| {
        (from..to).map(|which| format!("{phase} text {which}")).collect::<Vec<_>>().join("; ")
    };
    let mut scene = scene("native-facts");
    for phase in ["qh", "ah", "ae"] {
        for (from, to) in [(0, 9), (10, 13), (15, 24), (30, 41)] {
            let fields = format!("referer: r\r\nuser-agent: u\r\nx-do: {}\r\n", all(phase, from, to));
            scene = scene.get_with("/named/p?q=1", &fields);
        }
    }
    let placed = "text 57; qh text 61; qh text 63; qh truth 67";
    scene = scene.does("/named", "", &[&format!("qh {placed}"), "ah text 57; ah text 61; ah text 63; ah truth 67"]);
    scene.does("/named", "", &["qh cluster ~; ah cluster ~", "qh worker ~", "qh route ~"]).does(
        "/direct",
        "",
        &["ah text 16; ah number 15; ah text 61; ah text 57"],
    )
}

fn notes() -> Scene {
    let own = json!({"filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "for this route"},
        "dynamic_module_config": {"module": {"local": {"filename": script()}}}, "filter_name": "script"});
    let mut typed = own;
    typed["@type"] = json!(format!("type.googleapis.com/envoy.extensions.{KIND}PerRoute"));
    let scene = scene("native-notes");
    let mut routes = scene.manager["route_config"]["virtual_hosts"][0]["routes"].clone();
    let route =
        json!({"match": {"prefix": "/own"}, "route": {"cluster": "a"}, "typed_per_filter_config": {NAME: typed}});
    if let Some(all) = routes.as_array_mut() {
        all.insert(0, route);
    }
    scene
        .with(json!({"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]}}))
        .logging(json!({"own": "%DYNAMIC_METADATA(own)%", "state": "%FILTER_STATE(own:PLAIN)%"}))
        .does("/own", "", &["qh route ~; ah route ~"])
        .does(
            "/named",
            "",
            &[
                "qh note own text value; qh noted 0 own text; ah noted 0 own text",
                "qh notenumber own number 10; qh noted 0 own number; qh notenumber own number -3; qh noted 0 own number",
                "qh notetruth own truth 1; qh noted 0 own truth; qh notetruth own truth 0; qh noted 0 own truth",
                "qh note own text a; qh notenumber own text 4; qh noted 0 own text",
                "qh noted 1 module text; qh noted 1 module number; qh noted 1 module truth; qh noted 1 module none; qh noted 1 none text",
                "qh noted 0 none none; qh noted 2 module text; qh noted 3 module text; qh noted 9 module text",
                "qh note own ~ empty; qh note own text ~; qh noted 0 own text; qh note own a.b c; qh noted 0 own a.b",
                "qh setstate own kept; qh state own; ah state own; qh state none; qh setstate own again; qh state own",
                "qh setstate empty ~; qh state empty; qh route ~",
                "ae note own late value",
            ],
        )
}

/// What calls find: the origin `authz` answers as their path says.
fn calls() -> Scene {
    let mut scene = scene("native-calls");
    for order in [
        "/ok ~ 5000",
        "/x?answer=403 ~ 5000",
        "/x?answer=503 ~ 5000",
        "/x?answer=204 ~ 5000",
        "/x?answer=chunked ~ 5000",
        "/post a+body 5000",
        "/fields ~ 5000 :method=PUT :path=/own?answer=409 :authority=own.test",
    ] {
        scene = scene.get_with("/", &format!("x-do: qh call authz {order}; qh answer 3; call resume q\r\n"));
    }
    scene.does(
        "/",
        "",
        &[
            "qh call nowhere /x ~ 1000",
            "qh call authz ~ ~ 1000 :method=GET :path=/x",
            "qh call authz ~ ~ 1000 :path=/x :authority=a",
            "qh call authz /x ~ 5000; qh answer 1; call set 0 x-added 1; call get 0 :path; call resume q",
            "qh call authz /x ~ 5000; qh answer 3; call note own text 1; call resume q",
            "ah call authz /x ~ 5000; ah answer 3; call set 2 x-added 1; call resume a",
        ],
    )
}

fn metrics() -> Scene {
    scene("native-metrics").does(
        "/",
        "",
        &[
            "qh counter 3; qh counter 0; ah counter 1",
            "qh labelled 2 one; qh labelled 3 two; qh labelled 1 one",
            "qh gauge 5; qh lower 2; qh setgauge 9; qh lower 1",
            "qh histogram 7; qh unknown 1",
        ],
    )
}

fn others() -> Scene {
    scene("native-others").does(
        "/",
        "",
        &["qh log 0 text; qh log 5 text", "qh unknown-operation ~", "qh limit 0; qh setlimit 100; qh limit 0"],
    )
}

/// Between the router and the host.
fn upstream_of(name: &str) -> Scene {
    let module = json!({"module": {"local": {"filename": script()}}});
    let script = extension(NAME, KIND, json!({"dynamic_module_config": module, "filter_name": "script"}));
    let codec = extension("codec", "filters.http.upstream_codec.v3.UpstreamCodec", json!({}));
    let router = json!({"upstream_http_filters": [script, codec]});
    let router = extension("envoy.filters.http.router", "filters.http.router.v3.Router", router);
    super::scene(name, router.clone(), "%DYNAMIC_METADATA(module:trace)%").with(json!({"http_filters": [router]}))
}

/// Answers have no body: one that passes a module there has no length any more.
fn upstream() -> Scene {
    upstream_of("native-upstream").does(
        "/p?q",
        &format!("{FIELDS}x-make: 204|x-b=1\r\n"),
        &[
            "qh get 0 :path; qh get 0 :method; qh get 0 :authority; qh get 0 x-many 1; qh get 0 x-none",
            "qh add 0 x-new 1; qh add 0 x-new 2; qh set 0 x-many one; qh remove 0 x-empty",
            "qh set 0 :path /other?r=1; qh set 0 :method POST",
            "ah add 2 x-new 1; ah set 2 x-origin other; ah remove 2 content-type; ah get 2 :status",
            "ah set 2 :status 202",
            "qh events 1; qh answer 3; event1 set 0 x-event 1; event1 resume q",
            "qh note own text value; qh noted 0 own text; ah noted 0 own text; qh setstate own kept; ah state own",
            "qh noted 1 module text; qh noted 1 none text; qh noted 2 none text; qh noted 3 none text",
            "qh text 0; qh text 2; qh text 16; ah text 16; qh text 57; qh text 61",
            "qh call authz /ok ~ 5000; qh answer 3; call set 0 x-added 1; call resume q",
            "qh call nowhere /x ~ 1000",
            "qh counter 3; qh labelled 2 one; qh gauge 5; qh lower 2; qh histogram 7; qh unknown 1",
            "qh limit 0; qh worker ~; qh cluster ~; qh route ~",
        ],
    )
}

fn upstream_bodies() -> Scene {
    let gathered = [
        "qh remove 0 content-length; qh answer 1; qb answer 1; qe answer 0; qe append 0 -end",
        "qh answer 1; qb answer 1; qe answer 0",
    ];
    let script = "x-do: ah remove 2 content-length; ah answer 1; ab answer 1; ae answer 0; ae append 2 -end\r\n";
    upstream_of("native-upstream-bodies")
        .sends("/", "", "hello world", &gathered)
        .makes("/", script, &["200|body=some text", "200|length=5|chunked=1"])
        .sends_chunks(
            "/trailers",
            &["qt pairs 1; qt get 1 x-last", "qt add 1 x-new 1; qt set 1 x-last 2; qt remove 1 x-also"],
        )
        .answers_with("/trailers", "x-do: at pairs 3; at add 3 x-new 1; at set 3 x-end 2\r\n", &["trailers"])
}

fn upstream_replies() -> Scene {
    upstream_of("native-upstream-replies")
        .does(
            "/",
            "",
            &[
                "qh respond 418 teapot short+and+stout x-a=1 x-b=2; qh answer 1",
                "qh respond 301 moved ~ location=http://else.test/; qh answer 1",
                "qh respond 204 none ~; qh answer 1",
                "qh events 1; qh answer 3; event1 respond 418 event body",
                "ah respond 418 late body; ah answer 1",
            ],
        )
        .sends("/", "", "hello", &["qh respond 418 early no; qh answer 1"])
        .ask("HEAD", "test", "/", "x-do: qh respond 418 teapot body; qh answer 1\r\n")
        .does("/direct", "", &["qh get 0 :path; ah pairs 2"])
}

fn streams() -> Scene {
    scene("native-streams")
        .over(Over::Http2)
        .does(
            "/p?q",
            "x-a: 1\r\nx-many: one\r\nx-many: two\r\n",
            &[
                "qh pairs 0; ah pairs 2",
                "qh set 0 :path /other; qh add 0 x-new 1; ah set 2 :status 202",
                "qh respond 418 teapot body x-a=1; qh answer 1",
                "qh call authz /x ~ 5000; qh answer 3; call set 0 x-added 1; call resume q",
                "qh text 10; qh text 0; qh text 3",
            ],
        )
        .sends("/", "", "hello", &["qh answer 1; qb answer 1; qe answer 0"])
}
