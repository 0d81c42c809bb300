// Does what each request's `x-do` says (script.h): one operation for each function of the host. The property `trace` is what
// came of them.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"
#include "script.h"

// Streams at once.
enum { MOST = 16 };

static sc_stream streams[MOST];

static sc_stream* of(uint32_t id) {
    for (size_t i = 0; i < MOST; i++) if (streams[i].used && streams[i].id == id) return &streams[i];
    return NULL;
}

static pw_text text(sc_text from) { return (pw_text){from.at, from.size}; }
static sc_text found(pw_text from) { return (sc_text){from.at, from.size}; }

static void say_status(sc_stream* stream, pw_status status) {
    sc_say(stream, "/");
    sc_say_number(stream, status);
}

static void say(sc_stream* stream, pw_status status, const char* at, size_t size) {
    say_status(stream, status);
    if (status != PW_OK) return;
    sc_say(stream, ":");
    sc_say_text(stream, (sc_text){at, size});
}

// The path of a property: its parts end with a zero.
static pw_text path(sc_text dotted) {
    char* parts = malloc(dotted.size + 1);
    for (size_t i = 0; i < dotted.size; i++) parts[i] = dotted.at[i] == '.' ? 0 : dotted.at[i];
    return (pw_text){parts, dotted.size};
}

// From the words from `first` on, each `k=v`.
static pw_text packed(const sc_text* words, size_t first, size_t count) {
    pw_pair pairs[SC_WORDS];
    size_t used = 0;
    for (size_t i = first; i < count && used < SC_WORDS; i++) pairs[used++] = (pw_pair){text(sc_key(words[i])), text(sc_value(words[i]))};
    return pw_pack(pairs, used);
}

static void on_fields(sc_stream* stream, const sc_text* words, size_t count) {
    pw_map map = (pw_map)sc_number(words[1]);
    pw_text key = text(words[2]), value = {NULL, 0};
    size_t size = 0;
    if (sc_is(words[0], "get")) {
        pw_status status = proxy_get_header_map_value(map, key.at, key.size, (char**)&value.at, &value.size);
        say(stream, status, value.at, value.size);
    } else if (sc_is(words[0], "add")) {
        say_status(stream, proxy_add_header_map_value(map, key.at, key.size, words[3].at, words[3].size));
    } else if (sc_is(words[0], "replace")) {
        say_status(stream, proxy_replace_header_map_value(map, key.at, key.size, words[3].at, words[3].size));
    } else if (sc_is(words[0], "remove")) {
        say_status(stream, proxy_remove_header_map_value(map, key.at, key.size));
    } else if (sc_is(words[0], "size")) {
        pw_status status = proxy_get_header_map_size(map, &size);
        say_status(stream, status);
        if (status == PW_OK) sc_say_number(stream, size);
    } else if (sc_is(words[0], "pairs")) {
        const pw_pair* pairs = pw_pairs(map, &size);
        sc_say(stream, ":");
        for (size_t i = 0; i < size; i++) sc_say_field(stream, found(pairs[i].key), found(pairs[i].value));
    } else {
        pw_text all = packed(words, 2, count);
        say_status(stream, proxy_set_header_map_pairs(map, all.at, all.size));
    }
}

static void on_bytes(sc_stream* stream, const sc_text* words) {
    pw_buffer buffer = (pw_buffer)sc_number(words[1]);
    size_t start = (size_t)sc_number(words[2]), length = (size_t)sc_number(words[3]), size = 0;
    if (sc_is(words[0], "body")) {
        char* bytes = NULL;
        pw_status status = proxy_get_buffer_bytes(buffer, start, length, &bytes, &size);
        say(stream, status, bytes, size);
    } else if (sc_is(words[0], "setbody")) {
        say_status(stream, proxy_set_buffer_bytes(buffer, start, length, words[4].at, words[4].size));
    } else {
        uint32_t flags = 0;
        pw_status status = proxy_get_buffer_status(buffer, &size, &flags);
        say_status(stream, status);
        if (status == PW_OK) sc_say_number(stream, size);
    }
}

static void on_shared(sc_stream* stream, const sc_text* words) {
    char* bytes = NULL;
    size_t size = 0;
    uint32_t number = 0;
    if (sc_is(words[0], "sget")) {
        pw_status status = proxy_get_shared_data(words[1].at, words[1].size, &bytes, &size, &number);
        say(stream, status, bytes, size);
        if (status == PW_OK) sc_say_number(stream, number);
    } else if (sc_is(words[0], "sset")) {
        say_status(stream, proxy_set_shared_data(words[1].at, words[1].size, words[2].at, words[2].size, (uint32_t)sc_number(words[3])));
    } else if (sc_is(words[0], "qput")) {
        say_status(stream, proxy_register_shared_queue(words[1].at, words[1].size, &number));
        say_status(stream, proxy_enqueue_shared_queue(number, words[2].at, words[2].size));
    } else if (sc_is(words[0], "qtake")) {
        say_status(stream, proxy_register_shared_queue(words[1].at, words[1].size, &number));
        pw_status status = proxy_dequeue_shared_queue(number, &bytes, &size);
        say(stream, status, bytes, size);
    } else if (sc_is(words[0], "qfind")) {
        say_status(stream, proxy_resolve_shared_queue(words[1].at, words[1].size, words[2].at, words[2].size, &number));
    } else {
        // A queue of another name, by its number.
        pw_status status = proxy_dequeue_shared_queue((uint32_t)sc_number(words[1]), &bytes, &size);
        say(stream, status, bytes, size);
    }
}

static void on_metric(sc_stream* stream, const sc_text* words) {
    uint32_t metric = 0;
    uint64_t value = 0;
    say_status(stream, proxy_define_metric((pw_metric)sc_number(words[1]), words[2].at, words[2].size, &metric));
    int64_t by = sc_number(words[3]);
    if (sc_is(words[0], "increment")) say_status(stream, proxy_increment_metric(metric, by));
    if (sc_is(words[0], "record")) say_status(stream, proxy_record_metric(metric, (uint64_t)by));
    pw_status status = proxy_get_metric(metric, &value);
    say_status(stream, status);
    if (status == PW_OK) sc_say_number(stream, value);
}

static void on_call(sc_stream* stream, const sc_text* words, size_t count) {
    uint32_t call = 0;
    const sc_text cluster = words[1], body = words[3];
    pw_text headers = packed(words, 5, count), none = pw_pack(NULL, 0);
    if (count <= 5) {
        const pw_pair usual[] = {
            {PW_TEXT(":method"), body.size ? PW_TEXT("POST") : PW_TEXT("GET")}, {PW_TEXT(":path"), text(words[2])},
            {PW_TEXT(":authority"), PW_TEXT("called.test")}, {PW_TEXT("x-called"), PW_TEXT("yes")},
        };
        headers = pw_pack(usual, 4);
    }
    pw_status status = proxy_http_call(cluster.at, cluster.size, headers.at, headers.size, body.at, body.size, none.at, none.size,
        (uint32_t)sc_number(words[4]), &call);
    say_status(stream, status);
    if (status == PW_OK) stream->call = call;
}

// Runs the statements of a phase; whether the stream shall go on.
static pw_action run(sc_stream* stream, const char* phase) {
    pw_action action = PW_CONTINUE;
    sc_text words[SC_WORDS];
    size_t at = 0, count;
    while ((count = sc_next(stream, phase, &at, words)) > 0) {
        const sc_text what = words[0];
        sc_say(stream, " ");
        sc_say_text(stream, what);
        if (sc_is(what, "pause")) {
            action = PW_PAUSE;
        } else if (sc_is(what, "get") || sc_is(what, "add") || sc_is(what, "replace") || sc_is(what, "remove") || sc_is(what, "size")
                   || sc_is(what, "pairs") || sc_is(what, "setpairs")) {
            on_fields(stream, words, count);
        } else if (sc_is(what, "body") || sc_is(what, "setbody") || sc_is(what, "bstat")) {
            on_bytes(stream, words);
        } else if (sc_is(what, "prop")) {
            pw_text name = path(words[1]), value = {NULL, 0};
            pw_status status = proxy_get_property(name.at, name.size, (char**)&value.at, &value.size);
            say(stream, status, value.at, value.size);
        } else if (sc_is(what, "setprop")) {
            say_status(stream, proxy_set_property(words[1].at, words[1].size, words[2].at, words[2].size));
        } else if (sc_is(what, "respond")) {
            pw_text headers = packed(words, 5, count);
            say_status(stream, proxy_send_local_response((uint32_t)sc_number(words[1]), words[2].at, words[2].size, words[3].at,
                words[3].size, headers.at, headers.size, (int32_t)sc_number(words[4])));
        } else if (sc_is(what, "resume")) {
            say_status(stream, proxy_continue_stream((pw_stream)sc_number(words[1])));
        } else if (sc_is(what, "close")) {
            say_status(stream, proxy_close_stream((pw_stream)sc_number(words[1])));
        } else if (sc_is(what, "call")) {
            on_call(stream, words, count);
        } else if (sc_is(what, "increment") || sc_is(what, "record") || sc_is(what, "metric")) {
            on_metric(stream, words);
        } else if (sc_is(what, "log")) {
            say_status(stream, proxy_log((pw_level)sc_number(words[1]), words[2].at, words[2].size));
        } else if (sc_is(what, "effective")) {
            say_status(stream, proxy_set_effective_context((uint32_t)sc_number(words[1])));
        } else if (sc_is(what, "foreign")) {
            char* bytes = NULL;
            size_t size = 0;
            pw_status status = proxy_call_foreign_function(words[1].at, words[1].size, words[2].at, words[2].size, &bytes, &size);
            say(stream, status, bytes, size);
        } else if (sc_is(what, "status")) {
            uint32_t code = 0;
            char* message = NULL;
            size_t size = 0;
            pw_status status = proxy_get_status(&code, &message, &size);
            say(stream, status, message, size);
            sc_say_number(stream, code);
        } else if (sc_is(what, "metricby")) {
            say_status(stream, proxy_increment_metric((uint32_t)sc_number(words[1]), sc_number(words[2])));
        } else if (sc_is(what, "time")) {
            uint64_t now = 0;
            say_status(stream, proxy_get_current_time_nanoseconds(&now));
        } else if (sc_is(what, "trap")) {
            __builtin_trap();
        } else {
            on_shared(stream, words);
        }
    }
    proxy_set_property("trace", 5, stream->found, stream->found_size);
    return action;
}

static pw_action phase(uint32_t id, const char* name, const char* last, uint32_t size, uint32_t end) {
    pw_begin();
    sc_stream* stream = of(id);
    if (!stream) return PW_CONTINUE;
    sc_enter(stream, name, size, end);
    pw_action action = run(stream, name);
    // What a body's statements say of its end has the last word.
    return last && end ? run(stream, last) : action;
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t id, uint32_t count, uint32_t end) {
    pw_begin();
    pw_text plan;
    for (size_t i = 0; i < MOST && pw_header(PW_REQUEST_HEADERS, PW_TEXT("x-do"), &plan); i++) {
        if (streams[i].used) continue;
        sc_begin(&streams[i], id, found(plan));
        break;
    }
    return phase(id, "qh", NULL, count, end);
}

PW_EXPORT(proxy_on_request_body)
pw_action proxy_on_request_body(uint32_t id, uint32_t size, uint32_t end) { return phase(id, "qb", "qe", size, end); }

PW_EXPORT(proxy_on_request_trailers)
pw_action proxy_on_request_trailers(uint32_t id, uint32_t count) { return phase(id, "qt", NULL, count, 1); }

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t id, uint32_t count, uint32_t end) { return phase(id, "ah", NULL, count, end); }

PW_EXPORT(proxy_on_response_body)
pw_action proxy_on_response_body(uint32_t id, uint32_t size, uint32_t end) { return phase(id, "ab", "ae", size, end); }

PW_EXPORT(proxy_on_response_trailers)
pw_action proxy_on_response_trailers(uint32_t id, uint32_t count) { return phase(id, "at", NULL, count, 1); }

PW_EXPORT(proxy_on_http_call_response)
void proxy_on_http_call_response(uint32_t root, uint32_t call, uint32_t headers, size_t body_size, uint32_t trailers) {
    for (size_t i = 0; i < MOST; i++) {
        if (!streams[i].used || streams[i].call != call) continue;
        streams[i].call = 0;
        if (proxy_set_effective_context(streams[i].id) != PW_OK) return;
        phase(streams[i].id, "call", NULL, headers, (uint32_t)body_size);
        return;
    }
}

PW_EXPORT(proxy_on_delete)
void proxy_on_delete(uint32_t id) {
    sc_stream* stream = of(id);
    if (stream) stream->used = false;
}
