// Sees each request, and lets it go on.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    return PW_CONTINUE;
}
