// Logs whatever it is told of, as a filter of connections, an access logger and a service; shouts what clients send.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"

static uint32_t calls, bytes, records, waits;
static bool ticked;

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

static void begin(pw_text what) {
    pw_begin();
    used = 0;
    put(PW_TEXT("witness: "));
    put(what);
}

static void end(void) {
    proxy_log(PW_ERROR, line, used);
    proxy_increment_metric(calls, 1);
}

// A property by its path, whose parts end with a zero: numbers have eight bytes.
static void put_property(pw_text path, bool is_number) {
    char* value = NULL;
    size_t size = 0;
    pw_status status = proxy_get_property(path.at, path.size, &value, &size);
    put(PW_TEXT(" "));
    if (status != PW_OK) put(PW_TEXT("-"));
    else if (is_number && size == 8) put_number(pw_read32(value));
    else put((pw_text){value, size});
}

static void put_header(pw_map map, pw_text name) {
    pw_text value = PW_TEXT("-");
    put(PW_TEXT(" "));
    if (!pw_header(map, name, &value)) value = PW_TEXT("-");
    put(value);
}

PW_EXPORT(proxy_on_vm_start)
bool proxy_on_vm_start(uint32_t root, size_t size) {
    return proxy_define_metric(PW_COUNTER, "witness.calls", 13, &calls) == PW_OK
        && proxy_define_metric(PW_COUNTER, "witness.bytes", 13, &bytes) == PW_OK
        && proxy_define_metric(PW_COUNTER, "witness.records", 15, &records) == PW_OK
        && proxy_define_metric(PW_GAUGE, "witness.waits", 13, &waits) == PW_OK;
}

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    // Who is to serve by itself is told so.
    if (pw_equal(pw_configuration(size), PW_TEXT("service"))) proxy_set_tick_period_milliseconds(10);
    return true;
}

PW_EXPORT(proxy_on_new_connection)
pw_action proxy_on_new_connection(uint32_t context) {
    begin(PW_TEXT("begins"));
    put_property(PW_TEXT("connection\0requested_server_name"), false);
    end();
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_downstream_data)
pw_action proxy_on_downstream_data(uint32_t context, size_t size, uint32_t last) {
    begin(PW_TEXT("received"));
    put_number(size);
    put_number(last);
    end();
    char* data = NULL;
    size_t got = 0;
    if (size == 0 || proxy_get_buffer_bytes(PW_DOWNSTREAM_DATA, 0, size, &data, &got) != PW_OK) return PW_CONTINUE;
    proxy_increment_metric(bytes, (int64_t)got);
    pw_text text = {data, got};
    if (pw_begins(text, PW_TEXT("close"))) {
        proxy_close_stream(PW_DOWNSTREAM);
        return PW_PAUSE;
    }
    if (pw_begins(text, PW_TEXT("drop"))) {
        proxy_set_buffer_bytes(PW_DOWNSTREAM_DATA, 0, got, "dropped", 7);
        return PW_CONTINUE;
    }
    // A word that ends with a dot waits for more.
    if (data[got - 1] == '.') return PW_PAUSE;
    for (size_t i = 0; i < got; i++) if (data[i] >= 'a' && data[i] <= 'z') data[i] -= 'a' - 'A';
    proxy_set_buffer_bytes(PW_DOWNSTREAM_DATA, 0, got, data, got);
    proxy_set_buffer_bytes(PW_DOWNSTREAM_DATA, 0, 0, "<", 1);
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_upstream_data)
pw_action proxy_on_upstream_data(uint32_t context, size_t size, uint32_t last) {
    begin(PW_TEXT("sent"));
    put_number(size);
    put_number(last);
    end();
    if (size > 0) proxy_set_buffer_bytes(PW_UPSTREAM_DATA, size, 0, ">", 1);
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_downstream_connection_close)
void proxy_on_downstream_connection_close(uint32_t context, uint32_t peer) {
    begin(PW_TEXT("closed"));
    put_number(peer);
    end();
}

PW_EXPORT(proxy_on_upstream_connection_close)
void proxy_on_upstream_connection_close(uint32_t context, uint32_t peer) {
    begin(PW_TEXT("closed behind"));
    put_number(peer);
    end();
}

PW_EXPORT(proxy_on_log)
void proxy_on_log(uint32_t context) {
    begin(PW_TEXT("record"));
    put_property(PW_TEXT("request\0path"), false);
    put_property(PW_TEXT("request\0method"), false);
    put_property(PW_TEXT("request\0host"), false);
    put_property(PW_TEXT("response\0code"), true);
    put_property(PW_TEXT("response\0code_details"), false);
    put_property(PW_TEXT("response\0flags"), true);
    put_property(PW_TEXT("xds\0cluster_name"), false);
    put_property(PW_TEXT("xds\0route_name"), false);
    put_header(PW_REQUEST_HEADERS, PW_TEXT("x-a"));
    put_header(PW_RESPONSE_HEADERS, PW_TEXT(":status"));
    put_header(PW_RESPONSE_HEADERS, PW_TEXT("x-origin"));
    end();
    proxy_increment_metric(records, 1);
}

PW_EXPORT(proxy_on_done)
bool proxy_on_done(uint32_t context) {
    begin(PW_TEXT("done"));
    end();
    return true;
}

PW_EXPORT(proxy_on_delete)
void proxy_on_delete(uint32_t context) {
    begin(PW_TEXT("deleted"));
    end();
}

PW_EXPORT(proxy_on_tick)
void proxy_on_tick(uint32_t root) {
    if (ticked) return;
    ticked = true;
    proxy_set_tick_period_milliseconds(0);
    begin(PW_TEXT("ticks"));
    const pw_pair fields[] = {
        {PW_TEXT(":path"), PW_TEXT("/tick")}, {PW_TEXT(":method"), PW_TEXT("POST")}, {PW_TEXT(":authority"), PW_TEXT("test")},
        {PW_TEXT("x-a"), PW_TEXT("1")},
    };
    pw_text packed = pw_pack(fields, 4);
    uint32_t call = 0;
    put_number(proxy_http_call("nobody", 6, packed.at, packed.size, NULL, 0, NULL, 0, 5000, &call));
    put_number(proxy_http_call("a", 1, packed.at, packed.size, "body", 4, NULL, 0, 5000, &call));
    proxy_record_metric(waits, 1);
    end();
}

PW_EXPORT(proxy_on_http_call_response)
void proxy_on_http_call_response(uint32_t root, uint32_t call, uint32_t fields, uint32_t size, uint32_t trailers) {
    begin(PW_TEXT("answered"));
    put_header(PW_CALL_RESPONSE_HEADERS, PW_TEXT(":status"));
    put_header(PW_CALL_RESPONSE_HEADERS, PW_TEXT("x-origin"));
    char* body = NULL;
    size_t got = 0;
    put_number(size);
    put_number(trailers);
    if (proxy_get_buffer_bytes(PW_CALL_RESPONSE_BODY, 0, size, &body, &got) == PW_OK) {
        put(PW_TEXT(" "));
        for (size_t i = 0; i < got; i++) if (body[i] == '\n' || body[i] == '\r') body[i] = '|';
        put((pw_text){body, got});
    }
    proxy_record_metric(waits, 0);
    end();
}
