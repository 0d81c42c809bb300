// Does what its configuration says that plugins must not do; else it marks the request.
#include "proxy_wasm.h"

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    pw_begin();
    pw_text* what = malloc(sizeof(pw_text));
    if (!pw_setting(pw_configuration(size), PW_TEXT("do"), what)) return false;
    pw_configured(root, what);
    return true;
}

PW_EXPORT(proxy_on_request_headers)
pw_action proxy_on_request_headers(uint32_t context, uint32_t count, uint32_t end) {
    pw_begin();
    const pw_text what = *(const pw_text*)pw_settings(context);
    if (pw_equal(what, PW_TEXT("error"))) __builtin_trap();
    volatile bool forever = true;
    if (pw_equal(what, PW_TEXT("loop"))) while (forever) {}
    // Traps when there is no more.
    if (pw_equal(what, PW_TEXT("hoard"))) while (forever) memset(malloc(PW_PAGE), 'x', PW_PAGE);
    pw_replace(PW_REQUEST_HEADERS, PW_TEXT("x-done"), PW_TEXT("yes"));
    return PW_CONTINUE;
}
