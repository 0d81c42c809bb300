// Looks at one stream, or one connection, from another one: whatever waits is looked at, changed and let go on by whoever asks
// for it. Each answer of the host is a line of the log.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"

// The stream or connection that waits, and what holds it; 0 for none.
static uint32_t waiting, is_held;
static bool ticks;

enum { HEAD = 1, BODY, ANSWER, ANSWER_BODY, BYTES };

// A line under way.
static char line[1024];
static size_t used;

static void put(pw_text text) {
    for (size_t i = 0; i < text.size && used < sizeof(line); i++) line[used++] = text.at[i];
}

static void put_number(uint64_t number) {
    char digits[20];
    size_t count = 0;
    do digits[count++] = (char)('0' + number % 10); while (number /= 10);
    put(PW_TEXT(" "));
    while (count > 0 && used < sizeof(line)) line[used++] = digits[--count];
}

static void begin(const char* what) {
    used = 0;
    put(PW_TEXT("neighbour: "));
    for (; *what; what++) put((pw_text){what, 1});
}

static void end(void) { proxy_log(PW_ERROR, line, used); }

static void status(const char* what, pw_status status) {
    begin(what);
    put_number(status);
    end();
}

static void value(const char* what, pw_status status, pw_text text) {
    begin(what);
    put_number(status);
    put(PW_TEXT(" "));
    if (status == PW_OK) put(text);
    end();
}

static void look_field(const char* what, pw_map map, pw_text name) {
    pw_text text = {NULL, 0};
    pw_status status = proxy_get_header_map_value(map, name.at, name.size, (char**)&text.at, &text.size);
    value(what, status, text);
}

static void look_map(const char* what, pw_map map) {
    size_t count = 0;
    pw_pair* pairs = pw_pairs(map, &count);
    begin(what);
    for (size_t i = 0; i < count; i++) {
        // What differs between proxies and runs is no part of it.
        if (pw_begins(pairs[i].key, PW_TEXT("x-")) || pairs[i].key.at[0] == ':') {
            const pw_text key = pairs[i].key;
            if (pw_begins(key, PW_TEXT("x-forwarded")) || pw_begins(key, PW_TEXT("x-request")) || pw_begins(key, PW_TEXT("x-envoy"))) continue;
            put(PW_TEXT(" "));
            put(pairs[i].key);
            put(PW_TEXT("="));
            put(pairs[i].value);
        }
    }
    end();
}

static void look_property(const char* what, pw_text path) {
    pw_text text = {NULL, 0};
    pw_status status = proxy_get_property(path.at, path.size, (char**)&text.at, &text.size);
    value(what, status, text);
}

static void look_buffer(const char* what, pw_buffer buffer) {
    pw_text text = {NULL, 0};
    pw_status status = proxy_get_buffer_bytes(buffer, 0, 100, (char**)&text.at, &text.size);
    value(what, status, text);
}

static void fields(pw_map map) {
    look_map("map", map);
    look_field("field", map, PW_TEXT("x-own"));
    look_field("no field", map, PW_TEXT("x-none"));
    status("add", proxy_add_header_map_value(map, "x-added", 7, "1", 1));
    status("replace", proxy_replace_header_map_value(map, "x-own", 5, "new", 3));
    status("remove", proxy_remove_header_map_value(map, "x-gone", 6));
    // Not all at once: a field that was replaced has another place in other proxies.
    look_field("added", map, PW_TEXT("x-added"));
    look_field("replaced", map, PW_TEXT("x-own"));
    look_field("removed", map, PW_TEXT("x-gone"));
}

static void properties(uint32_t held) {
    // Later some proxies know no more of the request.
    if (held == HEAD) {
        look_property("path", PW_TEXT("request\0path"));
        look_property("header", PW_TEXT("request\0headers\0x-own"));
        look_property("method", PW_TEXT("request\0method"));
    }
    look_property("unset", PW_TEXT("mark"));
    status("set", proxy_set_property("mark", 4, "noted", 5));
    look_property("mark", PW_TEXT("mark"));
}

static void body(pw_buffer buffer) {
    look_buffer("bytes", buffer);
    status("prepend", proxy_set_buffer_bytes(buffer, 0, 0, "<", 1));
    status("append", proxy_set_buffer_bytes(buffer, 1000, 0, ">", 1));
    look_buffer("bytes changed", buffer);
}

// Does all of it with what waits, and lets it go on.
static void visit(uint32_t self) {
    begin("visit");
    put_number(is_held);
    end();
    uint32_t held = is_held;
    is_held = 0;
    if (held == 0) return;
    status("turn", proxy_set_effective_context(waiting));
    if (held == BYTES) {
        body(PW_DOWNSTREAM_DATA);
        look_buffer("other way", PW_UPSTREAM_DATA);
        status("continue", proxy_continue_stream(PW_DOWNSTREAM));
        if (self) status("back", proxy_set_effective_context(self));
        return;
    }
    properties(held);
    fields(PW_REQUEST_HEADERS);
    fields(PW_RESPONSE_HEADERS);
    body(PW_REQUEST_BODY);
    body(PW_RESPONSE_BODY);
    status("continue", proxy_continue_stream(held <= BODY ? PW_REQUEST : PW_RESPONSE));
    look_field("field let go", held <= BODY ? PW_REQUEST_HEADERS : PW_RESPONSE_HEADERS, PW_TEXT("x-own"));
    look_buffer("bytes let go", held <= BODY ? PW_REQUEST_BODY : PW_RESPONSE_BODY);
    if (self) {
        status("back", proxy_set_effective_context(self));
        look_field("own", PW_REQUEST_HEADERS, PW_TEXT("x-own"));
    }
}

static pw_action hold(uint32_t context, uint32_t what) {
    waiting = context;
    is_held = what;
    begin("held");
    put_number(what);
    end();
    return PW_PAUSE;
}

// Whether that stream or the answer to it says that it waits there.
static bool waits(pw_map map, pw_text where) {
    pw_text wish;
    return pw_header(map, PW_TEXT("x-wait"), &wish) && pw_equal(wish, where);
}

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    proxy_set_tick_period_milliseconds(10);
    return true;
}

PW_EXPORT(proxy_on_tick)
void proxy_on_tick(uint32_t root) {
    pw_begin();
    if (!ticks) return;
    ticks = false;
    visit(0);
}

// Where each stream waits, by the low bits of its number.
static uint32_t places[64];

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t id, uint32_t count, uint32_t last) {
    pw_begin();
    places[id % 64] = waits(PW_REQUEST_HEADERS, PW_TEXT("body")) ? BODY
        : waits(PW_REQUEST_HEADERS, PW_TEXT("answer")) ? ANSWER
        : waits(PW_REQUEST_HEADERS, PW_TEXT("answer body")) ? ANSWER_BODY : 0;
    if (waits(PW_REQUEST_HEADERS, PW_TEXT("head"))) return hold(id, HEAD);
    pw_text wish;
    if (pw_header(PW_REQUEST_HEADERS, PW_TEXT("x-visit"), &wish)) {
        if (pw_equal(wish, PW_TEXT("tick"))) ticks = true;
        else visit(id);
    }
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_request_body)
pw_action proxy_on_request_body(uint32_t id, uint32_t size, uint32_t last) {
    if (places[id % 64] != BODY) return PW_CONTINUE;
    return is_held || !last ? PW_PAUSE : hold(id, BODY);
}

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t id, uint32_t count, uint32_t last) {
    return places[id % 64] == ANSWER ? hold(id, ANSWER) : PW_CONTINUE;
}

PW_EXPORT(proxy_on_response_body)
pw_action proxy_on_response_body(uint32_t id, uint32_t size, uint32_t last) {
    if (places[id % 64] != ANSWER_BODY) return PW_CONTINUE;
    return is_held || !last ? PW_PAUSE : hold(id, ANSWER_BODY);
}

PW_EXPORT(proxy_on_downstream_data)
pw_action proxy_on_downstream_data(uint32_t id, size_t size, uint32_t last) {
    pw_begin();
    pw_text text = {NULL, 0};
    if (size == 0 || proxy_get_buffer_bytes(PW_DOWNSTREAM_DATA, 0, size, (char**)&text.at, &text.size) != PW_OK) return PW_CONTINUE;
    if (pw_begins(text, PW_TEXT("visit"))) visit(id);
    if (pw_begins(text, PW_TEXT("tick"))) ticks = true;
    // A word that ends with a dot waits to be let go on.
    return text.at[text.size - 1] == '.' ? hold(id, BYTES) : PW_CONTINUE;
}

PW_EXPORT(proxy_on_upstream_data)
pw_action proxy_on_upstream_data(uint32_t id, size_t size, uint32_t last) {
    pw_begin();
    if (is_held != BYTES || waiting != id || size == 0) return PW_CONTINUE;
    begin("answer meanwhile");
    end();
    look_buffer("other way", PW_DOWNSTREAM_DATA);
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_downstream_connection_close)
void proxy_on_downstream_connection_close(uint32_t id, uint32_t by) {
    pw_begin();
    if (is_held != BYTES || waiting != id) return;
    look_buffer("at the end", PW_DOWNSTREAM_DATA);
    is_held = 0;
}
