// Renames the header fields that begin in some way, of requests and of responses.
#include "proxy_wasm.h"

typedef struct { pw_text from, to; } settings;

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    settings* own = malloc(sizeof(settings));
    pw_text configuration = pw_configuration(size);
    if (!pw_setting(configuration, PW_TEXT("from"), &own->from)) return false;
    if (!pw_setting(configuration, PW_TEXT("to"), &own->to)) return false;
    pw_configured(root, own);
    return true;
}

static pw_action rename_fields(uint32_t context, pw_map map) {
    pw_begin();
    const settings* own = pw_settings(context);
    size_t count;
    const pw_pair* pairs = pw_pairs(map, &count);
    for (size_t i = 0; i < count; i++) {
        if (!pw_begins(pairs[i].key, own->from)) continue;
        pw_remove(map, pairs[i].key);
        pw_add(map, pw_join(own->to, pw_from(pairs[i].key, own->from.size)), pairs[i].value);
    }
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    return rename_fields(context, PW_REQUEST_HEADERS);
}

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t context, uint32_t count, uint32_t end) {
    return rename_fields(context, PW_RESPONSE_HEADERS);
}
