// Replaces a text wherever it stands in the bodies of requests and responses.
#include "proxy_wasm.h"

typedef struct { pw_text find, replacement; } settings;

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    settings* own = malloc(sizeof(settings));
    pw_text configuration = pw_configuration(size);
    if (!pw_setting(configuration, PW_TEXT("find"), &own->find)) return false;
    if (!pw_setting(configuration, PW_TEXT("replace"), &own->replacement)) return false;
    pw_configured(root, own);
    return true;
}

static pw_action headers(pw_map map, bool end) {
    // The length will be another one.
    if (!end) pw_remove(map, PW_TEXT("content-length"));
    return PW_CONTINUE;
}

static pw_action body(uint32_t context, pw_buffer buffer, size_t size, bool end) {
    // Held until it is whole; then `size` is all of it.
    if (!end) return PW_PAUSE;
    pw_begin();
    const settings* own = pw_settings(context);
    const pw_text find = own->find, replacement = own->replacement;
    pw_text all;
    if (size == 0 || proxy_get_buffer_bytes(buffer, 0, size, (char**)&all.at, &all.size) != PW_OK) return PW_CONTINUE;
    size_t found = 0;
    for (size_t i = 0; i < all.size;) {
        bool is_here = pw_begins(pw_from(all, i), find);
        found += is_here;
        i += is_here ? find.size : 1;
    }
    char* rewritten = malloc(all.size - found * find.size + found * replacement.size);
    char* at = rewritten;
    for (size_t i = 0; i < all.size;) {
        if (pw_begins(pw_from(all, i), find)) {
            memcpy(at, replacement.at, replacement.size);
            at += replacement.size;
            i += find.size;
        } else {
            *at++ = all.at[i++];
        }
    }
    proxy_set_buffer_bytes(buffer, 0, all.size, rewritten, (size_t)(at - rewritten));
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    return headers(PW_REQUEST_HEADERS, end);
}

PW_EXPORT(proxy_on_request_body)
pw_action proxy_on_request_body(uint32_t context, size_t size, uint32_t end) {
    return body(context, PW_REQUEST_BODY, size, end);
}

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t context, uint32_t count, uint32_t end) {
    return headers(PW_RESPONSE_HEADERS, end);
}

PW_EXPORT(proxy_on_response_body)
pw_action proxy_on_response_body(uint32_t context, size_t size, uint32_t end) {
    return body(context, PW_RESPONSE_BODY, size, end);
}
