// A plugin of the ABI's first version, 0.1.0: heads are told without their end, and what waits goes on by functions of its own.
#include <stddef.h>
#include <stdint.h>

#define IMPORT(name) __attribute__((import_module("env"), import_name(#name))) extern
#define EXPORT(name) __attribute__((export_name(#name), used))

IMPORT(proxy_get_configuration) uint32_t proxy_get_configuration(char** at, size_t* size);
IMPORT(proxy_continue_request) uint32_t proxy_continue_request(void);
IMPORT(proxy_continue_response) uint32_t proxy_continue_response(void);
IMPORT(proxy_clear_route_cache) uint32_t proxy_clear_route_cache(void);
IMPORT(proxy_set_effective_context) uint32_t proxy_set_effective_context(uint32_t context);
IMPORT(proxy_add_header_map_value) uint32_t proxy_add_header_map_value(uint32_t map, const char* key, size_t key_size, const char* value, size_t size);
IMPORT(proxy_replace_header_map_value) uint32_t proxy_replace_header_map_value(uint32_t map, const char* key, size_t key_size, const char* value, size_t size);
IMPORT(proxy_http_call) uint32_t proxy_http_call(const char* cluster, size_t cluster_size, const char* head, size_t head_size, const char* body,
    size_t body_size, const char* trailers, size_t trailers_size, uint32_t timeout, uint32_t* call);

enum { REQUEST = 0, RESPONSE = 2 };

static char heap[65536];
static size_t used;
static char configuration[64];
static size_t configured;
// Who waits for the answer to the call, and with which message.
static uint32_t waiting, waits_with;

EXPORT(proxy_abi_version_0_1_0) void abi(void) {}

EXPORT(malloc) void* allocate(size_t size) {
    if (used + size > sizeof heap) used = 0;
    void* at = heap + used;
    used += (size + 7) & ~(size_t)7;
    return at;
}

EXPORT(proxy_on_configure) uint32_t on_configure(uint32_t root, size_t size) {
    (void)root;
    (void)size;
    char* at = NULL;
    if (proxy_get_configuration(&at, &configured)) return 0;
    for (size_t i = 0; i < configured && i < sizeof configuration; i++) configuration[i] = at[i];
    return 1;
}

// Asks the cluster `service`; the message waits until it has answered.
static uint32_t ask(uint32_t context, uint32_t with) {
    static const char head[] = "\3\0\0\0\5\0\0\0\1\0\0\0\7\0\0\0\3\0\0\0\12\0\0\0\1\0\0\0:path\0/\0:method\0GET\0:authority\0a";
    static const char none[] = "\0\0\0";
    uint32_t call = 0;
    waiting = context;
    waits_with = with;
    return proxy_http_call("service", 7, head, sizeof head, NULL, 0, none, sizeof none, 5000, &call) == 0;
}

EXPORT(proxy_on_request_headers) uint32_t on_request_headers(uint32_t context, uint32_t count) {
    (void)count;
    proxy_add_header_map_value(REQUEST, "x-configured", 12, configuration, configured);
    proxy_replace_header_map_value(REQUEST, ":path", 5, "/moved", 6);
    proxy_clear_route_cache();
    return ask(context, REQUEST);
}

EXPORT(proxy_on_response_headers) uint32_t on_response_headers(uint32_t context, uint32_t count) {
    (void)count;
    return ask(context, RESPONSE);
}

EXPORT(proxy_on_http_call_response) void on_http_call_response(uint32_t root, uint32_t call, uint32_t headers, uint32_t body, uint32_t trailers) {
    (void)root;
    (void)call;
    (void)body;
    (void)trailers;
    proxy_set_effective_context(waiting);
    proxy_add_header_map_value(waits_with, "x-asked", 7, headers ? "yes" : "no", headers ? 3 : 2);
    if (waits_with == REQUEST) proxy_continue_request(); else proxy_continue_response();
}
