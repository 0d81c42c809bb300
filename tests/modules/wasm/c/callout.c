// Asks a service about each request: what it answers with 200 goes on, everything else is denied.
#define PW_OWN_DELETE
#include "proxy_wasm.h"

// For the service's answer.
enum { TIMEOUT_MILLISECONDS = 5000 };

// Requests that wait at once; more are denied.
enum { MOST_WAITING = 1024 };

typedef struct { pw_text cluster, path; } settings;

static struct { uint32_t call, context; } waiting[MOST_WAITING];
static size_t waiting_count;

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    settings* own = malloc(sizeof(settings));
    pw_text configuration = pw_configuration(size);
    if (!pw_setting(configuration, PW_TEXT("cluster"), &own->cluster)) return false;
    if (!pw_setting(configuration, PW_TEXT("path"), &own->path)) return false;
    pw_configured(root, own);
    return true;
}

static void deny(uint32_t status, pw_text text) { pw_respond(status, NULL, 0, text); }

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    pw_begin();
    const settings* own = pw_settings(context);
    const pw_text cluster = own->cluster;
    pw_text original = {NULL, 0};
    pw_header(PW_REQUEST_HEADERS, PW_TEXT(":path"), &original);
    const pw_pair question[] = {
        {PW_TEXT(":method"), PW_TEXT("GET")}, {PW_TEXT(":path"), own->path}, {PW_TEXT(":authority"), cluster},
        {PW_TEXT("x-original-path"), original},
    };
    pw_text packed = pw_pack(question, 4), none = pw_pack(NULL, 0);
    uint32_t call;
    if (waiting_count == MOST_WAITING
        || proxy_http_call(cluster.at, cluster.size, packed.at, packed.size, NULL, 0, none.at, none.size, TIMEOUT_MILLISECONDS, &call) != PW_OK) {
        deny(500, PW_TEXT("no call\n"));
        return PW_PAUSE;
    }
    waiting[waiting_count].call = call;
    waiting[waiting_count++].context = context;
    return PW_PAUSE;
}

PW_EXPORT(proxy_on_http_call_response)
void proxy_on_http_call_response(uint32_t root, uint32_t call, uint32_t headers, size_t body_size, uint32_t trailers) {
    pw_begin();
    size_t i = 0;
    while (i < waiting_count && waiting[i].call != call) i++;
    if (i == waiting_count) return;
    uint32_t context = waiting[i].context;
    waiting[i] = waiting[--waiting_count];
    pw_text status = PW_TEXT("no answer"), body = {NULL, 0};
    pw_header(PW_CALL_RESPONSE_HEADERS, PW_TEXT(":status"), &status);
    if (body_size > 0) proxy_get_buffer_bytes(PW_CALL_RESPONSE_BODY, 0, body_size, (char**)&body.at, &body.size);
    // From here on it is about the request, if that is there still.
    if (proxy_set_effective_context(context) != PW_OK) return;
    if (!pw_equal(status, PW_TEXT("200"))) {
        deny(403, pw_join(pw_join(PW_TEXT("denied by "), status), PW_TEXT("\n")));
        return;
    }
    if (body.size > 0) pw_replace(PW_REQUEST_HEADERS, PW_TEXT("x-callout"), body);
    proxy_continue_stream(PW_REQUEST);
}

PW_EXPORT(proxy_on_delete)
void proxy_on_delete(uint32_t context) {
    pw_forget(context);
    for (size_t i = waiting_count; i-- > 0;) if (waiting[i].context == context) waiting[i] = waiting[--waiting_count];
}
