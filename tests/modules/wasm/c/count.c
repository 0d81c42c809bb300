// Counts the bytes of bodies as they pass, and tells the request's on the answer.
#define PW_OWN_DELETE
#include "proxy_wasm.h"

// Streams at once; what is beyond is not counted.
enum { MOST_COUNTED = 1024 };

static struct { uint32_t context; uint64_t bytes; } counted[MOST_COUNTED];
static size_t counted_count;

static uint64_t* bytes_of(uint32_t context) {
    for (size_t i = 0; i < counted_count; i++) if (counted[i].context == context) return &counted[i].bytes;
    if (counted_count == MOST_COUNTED) return NULL;
    counted[counted_count].context = context;
    counted[counted_count].bytes = 0;
    return &counted[counted_count++].bytes;
}

PW_EXPORT(proxy_on_request_body)
pw_action proxy_on_request_body(uint32_t context, size_t size, uint32_t end) {
    uint64_t* bytes = bytes_of(context);
    if (bytes) *bytes += size;
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_response_headers)
pw_action proxy_on_response_headers(uint32_t context, uint32_t count, uint32_t end) {
    pw_begin();
    const uint64_t* bytes = bytes_of(context);
    char digits[20], *first = digits + sizeof digits;
    uint64_t rest = bytes ? *bytes : 0;
    do *--first = (char)('0' + rest % 10); while (rest /= 10);
    pw_replace(PW_RESPONSE_HEADERS, PW_TEXT("x-request-bytes"), (pw_text){first, (size_t)(digits + sizeof digits - first)});
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_response_body)
pw_action proxy_on_response_body(uint32_t context, size_t size, uint32_t end) { return PW_CONTINUE; }

PW_EXPORT(proxy_on_delete)
void proxy_on_delete(uint32_t context) {
    pw_forget(context);
    for (size_t i = counted_count; i-- > 0;) if (counted[i].context == context) counted[i] = counted[--counted_count];
}
