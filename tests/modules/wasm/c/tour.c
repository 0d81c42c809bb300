// Calls every function of the host once, and tells what came of each: `x-tour` of the answer names them in their order.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"

// For the services' answers.
enum { TIMEOUT_MILLISECONDS = 5000, ROOM = 4096 };

// One tour at a time.
static char found[ROOM], queued[64];
static size_t found_size, queued_size;
static uint32_t stream, unary, talk, queue, counter, gauge, histogram;
static pw_text service, grpc;
static bool ticked;

static void say(pw_text text) {
    for (size_t i = 0; i < text.size && found_size < ROOM; i++) found[found_size++] = text.at[i];
}

static void tell(pw_text function, pw_text result) {
    if (found_size > 0) say(PW_TEXT(" "));
    say(function);
    say(PW_TEXT("="));
    say(result);
}

static pw_text truth(bool is_true) { return is_true ? PW_TEXT("true") : PW_TEXT("false"); }

static pw_text ok(pw_status status) { return status == PW_OK ? PW_TEXT("ok") : PW_TEXT("error"); }

static pw_text digit(uint32_t number) {
    static char digits[10][1] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return (pw_text){digits[number % 10], 1};
}

static pw_text buffer(pw_buffer kind) {
    pw_text bytes = PW_TEXT("error");
    proxy_get_buffer_bytes(kind, 0, 100, (char**)&bytes.at, &bytes.size);
    return bytes;
}

static pw_text property(pw_text path) {
    pw_text value = PW_TEXT("error");
    proxy_get_property(path.at, path.size, (char**)&value.at, &value.size);
    return value;
}

PW_EXPORT(proxy_on_configure)
uint32_t proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    pw_text json = buffer(PW_PLUGIN_CONFIGURATION);
    if (!pw_json_text(json, PW_TEXT("service"), &service) || !pw_json_text(json, PW_TEXT("grpc"), &grpc)) return false;
    pw_keep_all();
    proxy_define_metric(PW_COUNTER, "tour_counter", 12, &counter);
    proxy_define_metric(PW_GAUGE, "tour_gauge", 10, &gauge);
    proxy_define_metric(PW_HISTOGRAM, "tour_histogram", 14, &histogram);
    return proxy_register_shared_queue("tour", 4, &queue) == PW_OK && proxy_set_tick_period_milliseconds(10) == PW_OK;
}

PW_EXPORT(proxy_on_tick)
void proxy_on_tick(uint32_t root) { ticked = true; }

PW_EXPORT(proxy_on_queue_ready)
void proxy_on_queue_ready(uint32_t root, uint32_t token) {
    pw_begin();
    pw_text message = PW_TEXT("error");
    proxy_dequeue_shared_queue(token, (char**)&message.at, &message.size);
    for (queued_size = 0; queued_size < message.size && queued_size < sizeof queued; queued_size++) queued[queued_size] = message.at[queued_size];
}

static void values(void) {
    uint32_t level = 0;
    tell(PW_TEXT("get_log_level"), truth(proxy_get_log_level(&level) == PW_OK));
    tell(PW_TEXT("log"), ok(proxy_log(PW_INFO, "a tour", 6)));
    uint64_t now = 0, before = 0, after = 0;
    tell(PW_TEXT("get_current_time_nanoseconds"), truth(proxy_get_current_time_nanoseconds(&now) == PW_OK && now > 1000000000000000000));
    tell(PW_TEXT("get_property"), property(PW_TEXT("plugin_name")));
    tell(PW_TEXT("set_property"), ok(proxy_set_property("toured", 6, "yes", 3)));
    tell(PW_TEXT("done"), digit(proxy_done()));
    char* nothing;
    size_t none;
    tell(PW_TEXT("call_foreign_function"), ok(proxy_call_foreign_function("clear_route_cache", 17, "x", 1, &nothing, &none)));
    proxy_get_metric(counter, &before);
    proxy_increment_metric(counter, 3);
    proxy_increment_metric(gauge, 5);
    proxy_record_metric(histogram, 7);
    proxy_get_metric(counter, &after);
    tell(PW_TEXT("get_metric"), digit((uint32_t)(after - before)));
}

static void fields(void) {
    pw_text value = PW_TEXT("error");
    pw_header(PW_REQUEST_HEADERS, PW_TEXT("x-a"), &value);
    tell(PW_TEXT("get_header_map_value"), value);
    pw_replace(PW_REQUEST_HEADERS, PW_TEXT("x-a"), PW_TEXT("2"));
    pw_add(PW_REQUEST_HEADERS, PW_TEXT("x-added"), PW_TEXT("1"));
    pw_remove(PW_REQUEST_HEADERS, PW_TEXT("x-b"));
    size_t count, size = 0;
    pw_pair* pairs = pw_pairs(PW_REQUEST_HEADERS, &count);
    pw_text names = {NULL, 0};
    for (size_t i = 0; i < count; i++) {
        if (!pw_begins(pairs[i].key, PW_TEXT("x-a")) && !pw_equal(pairs[i].key, PW_TEXT("x-b"))) continue;
        pw_text pair = pw_join(pw_join(pairs[i].key, PW_TEXT(":")), pairs[i].value);
        names = names.size ? pw_join(pw_join(names, PW_TEXT("+")), pair) : pair;
    }
    tell(PW_TEXT("get_header_map_pairs"), names);
    tell(PW_TEXT("get_header_map_size"), truth(proxy_get_header_map_size(PW_REQUEST_HEADERS, &size) == PW_OK && size > 10));
}

static void shared(void) {
    pw_text kept = PW_TEXT("error");
    uint32_t cas = 0, found_queue = 0;
    proxy_get_shared_data("tour", 4, (char**)&kept.at, &kept.size, &cas);
    tell(PW_TEXT("set_shared_data"), ok(proxy_set_shared_data("tour", 4, "kept", 4, cas)));
    proxy_get_shared_data("tour", 4, (char**)&kept.at, &kept.size, &cas);
    tell(PW_TEXT("get_shared_data"), kept);
    pw_text vm = property(PW_TEXT("plugin_vm_id"));
    bool is_known = proxy_resolve_shared_queue(vm.at, vm.size, "tour", 4, &found_queue) == PW_OK;
    tell(PW_TEXT("resolve_shared_queue"), truth(is_known && found_queue == queue));
    tell(PW_TEXT("enqueue_shared_queue"), ok(proxy_enqueue_shared_queue(queue, "message", 7)));
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t id, uint32_t count, uint32_t end) {
    pw_begin();
    pw_text path;
    if (pw_header(PW_REQUEST_HEADERS, PW_TEXT(":path"), &path) && pw_equal(path, PW_TEXT("/answer"))) {
        const pw_pair answered = {PW_TEXT("x-answered"), PW_TEXT("yes")};
        pw_respond(418, &answered, 1, PW_TEXT("teapot"));
        return PW_PAUSE;
    }
    if (pw_equal(path, PW_TEXT("/close"))) {
        proxy_close_stream(PW_REQUEST);
        return PW_PAUSE;
    }
    stream = id;
    found_size = 0;
    values();
    fields();
    shared();
    const pw_pair question[] = {
        {PW_TEXT(":method"), PW_TEXT("GET")}, {PW_TEXT(":path"), PW_TEXT("/asked")}, {PW_TEXT(":authority"), service},
    };
    pw_text headers = pw_pack(question, 3), none = pw_pack(NULL, 0);
    uint32_t call;
    tell(PW_TEXT("http_call"), ok(proxy_http_call(service.at, service.size, headers.at, headers.size, "body", 4, none.at, none.size,
        TIMEOUT_MILLISECONDS, &call)));
    return PW_PAUSE;
}

PW_EXPORT(proxy_on_http_call_response)
void proxy_on_http_call_response(uint32_t root, uint32_t call, uint32_t headers, size_t size, uint32_t trailers) {
    pw_begin();
    tell(PW_TEXT("get_buffer_bytes"), buffer(PW_CALL_RESPONSE_BODY));
    pw_text none = pw_pack(NULL, 0);
    tell(PW_TEXT("grpc_call"), digit(proxy_grpc_call(grpc.at, grpc.size, "echo", 4, "Say", 3, none.at, none.size, "hello", 5,
        TIMEOUT_MILLISECONDS, &unary)));
}

static pw_status open(uint32_t* token) {
    pw_text none = pw_pack(NULL, 0);
    return proxy_grpc_stream(grpc.at, grpc.size, "echo", 4, "Talk", 4, none.at, none.size, token);
}

PW_EXPORT(proxy_on_grpc_receive)
void proxy_on_grpc_receive(uint32_t root, uint32_t token, size_t size) {
    pw_begin();
    tell(PW_TEXT("on_grpc_receive"), buffer(PW_GRPC_MESSAGE));
    if (token == unary) {
        tell(PW_TEXT("grpc_stream"), digit(open(&talk)));
        tell(PW_TEXT("grpc_send"), digit(proxy_grpc_send(talk, "again", 5, false)));
        return;
    }
    uint32_t other = 0;
    open(&other);
    tell(PW_TEXT("grpc_cancel"), digit(proxy_grpc_cancel(other)));
    tell(PW_TEXT("grpc_close"), digit(proxy_grpc_close(talk)));
}

PW_EXPORT(proxy_on_grpc_close)
void proxy_on_grpc_close(uint32_t root, uint32_t token, uint32_t status) {
    pw_begin();
    if (token != talk) return;
    uint32_t code = 99;
    char* message;
    size_t size;
    pw_status known = proxy_get_status(&code, &message, &size);
    tell(PW_TEXT("get_status"), pw_join(pw_join(digit(known), PW_TEXT(" ")), truth(code == status)));
    tell(PW_TEXT("set_effective_context"), ok(proxy_set_effective_context(stream)));
    tell(PW_TEXT("continue_stream"), ok(proxy_continue_stream(PW_REQUEST)));
}

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t id, uint32_t count, uint32_t end) {
    pw_begin();
    pw_remove(PW_RESPONSE_HEADERS, PW_TEXT("content-length"));
    tell(PW_TEXT("set_tick_period_milliseconds"), ticked ? PW_TEXT("ticked") : PW_TEXT(""));
    tell(PW_TEXT("dequeue_shared_queue"), (pw_text){queued, queued_size});
    size_t have;
    pw_pair* pairs = pw_pairs(PW_RESPONSE_HEADERS, &have);
    pw_pair* all = malloc((have + 1) * sizeof(pw_pair));
    memcpy(all, pairs, have * sizeof(pw_pair));
    all[have] = (pw_pair){PW_TEXT("x-set"), PW_TEXT("3")};
    pw_text packed = pw_pack(all, have + 1);
    tell(PW_TEXT("set_header_map_pairs"), ok(proxy_set_header_map_pairs(PW_RESPONSE_HEADERS, packed.at, packed.size)));
    pw_replace(PW_RESPONSE_HEADERS, PW_TEXT("x-tour"), (pw_text){found, found_size});
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_response_body)
pw_action proxy_on_response_body(uint32_t id, uint32_t size, uint32_t end) {
    pw_begin();
    if (!end) return PW_PAUSE;
    size_t length = 0;
    uint32_t flags = 0;
    pw_status known = proxy_get_buffer_status(PW_RESPONSE_BODY, &length, &flags);
    pw_text told = pw_join(pw_join(PW_TEXT("get_buffer_status="), digit(known)), pw_join(PW_TEXT(" "), truth(length > 0)));
    proxy_set_buffer_bytes(PW_RESPONSE_BODY, 0, size, told.at, told.size);
    return PW_CONTINUE;
}
