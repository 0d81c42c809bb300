// The proxy-wasm ABI 0.2.1 for plugins in C, and the little that one needs where there is no C library.
//
// One file, for one translation unit per module:
//
//     clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry -o plugin.wasm plugin.c
//
// A module runs for several configurations at once: each has a root context, whose settings pw_settings() gives to the
// contexts of its streams. A plugin without settings defines PW_WITHOUT_CONTEXTS before it includes this file, and is
// then not told of contexts.
//
// What a plugin exports it marks with PW_EXPORT(proxy_on_...). The functions `pw_*` below are conveniences; the
// functions `proxy_*` are the host's, as the ABI has them.
#ifndef PROXY_WASM_H
#define PROXY_WASM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PW_IMPORT(name) __attribute__((import_module("env"), import_name(#name))) extern
#define PW_EXPORT(name) __attribute__((export_name(#name), used))

typedef enum {
    PW_OK = 0, PW_NOT_FOUND = 1, PW_BAD_ARGUMENT = 2, PW_SERIALIZATION_FAILURE = 3, PW_PARSE_FAILURE = 4,
    PW_BAD_EXPRESSION = 5, PW_INVALID_MEMORY_ACCESS = 6, PW_EMPTY = 7, PW_CAS_MISMATCH = 8, PW_RESULT_MISMATCH = 9,
    PW_INTERNAL_FAILURE = 10, PW_BROKEN_CONNECTION = 11, PW_UNIMPLEMENTED = 12,
} pw_status;

// What a callback of a stream answers.
typedef enum { PW_CONTINUE = 0, PW_PAUSE = 1 } pw_action;

typedef enum { PW_TRACE, PW_DEBUG, PW_INFO, PW_WARN, PW_ERROR, PW_CRITICAL } pw_level;

typedef enum {
    PW_REQUEST_HEADERS, PW_REQUEST_TRAILERS, PW_RESPONSE_HEADERS, PW_RESPONSE_TRAILERS, PW_GRPC_INITIAL_METADATA,
    PW_GRPC_TRAILING_METADATA, PW_CALL_RESPONSE_HEADERS, PW_CALL_RESPONSE_TRAILERS,
} pw_map;

typedef enum {
    PW_REQUEST_BODY, PW_RESPONSE_BODY, PW_DOWNSTREAM_DATA, PW_UPSTREAM_DATA, PW_CALL_RESPONSE_BODY, PW_GRPC_MESSAGE,
    PW_VM_CONFIGURATION, PW_PLUGIN_CONFIGURATION, PW_CALL_DATA,
} pw_buffer;

typedef enum { PW_REQUEST, PW_RESPONSE, PW_DOWNSTREAM, PW_UPSTREAM } pw_stream;

typedef enum { PW_COUNTER, PW_GAUGE, PW_HISTOGRAM } pw_metric;

// ---- the host's functions ------------------------------------------------------------------------------------------

PW_IMPORT(proxy_log) pw_status proxy_log(pw_level level, const char* text, size_t size);
PW_IMPORT(proxy_get_log_level) pw_status proxy_get_log_level(uint32_t* level);
PW_IMPORT(proxy_get_current_time_nanoseconds) pw_status proxy_get_current_time_nanoseconds(uint64_t* now);
PW_IMPORT(proxy_set_tick_period_milliseconds) pw_status proxy_set_tick_period_milliseconds(uint32_t period);
PW_IMPORT(proxy_get_property) pw_status proxy_get_property(const char* path, size_t path_size, char** value, size_t* size);
PW_IMPORT(proxy_set_property) pw_status proxy_set_property(const char* path, size_t path_size, const char* value, size_t size);
PW_IMPORT(proxy_get_header_map_pairs) pw_status proxy_get_header_map_pairs(pw_map map, char** pairs, size_t* size);
PW_IMPORT(proxy_set_header_map_pairs) pw_status proxy_set_header_map_pairs(pw_map map, const char* pairs, size_t size);
PW_IMPORT(proxy_get_header_map_size) pw_status proxy_get_header_map_size(pw_map map, size_t* size);
PW_IMPORT(proxy_get_header_map_value) pw_status proxy_get_header_map_value(pw_map map, const char* key, size_t key_size, char** value, size_t* size);
PW_IMPORT(proxy_add_header_map_value) pw_status proxy_add_header_map_value(pw_map map, const char* key, size_t key_size, const char* value, size_t size);
PW_IMPORT(proxy_replace_header_map_value) pw_status proxy_replace_header_map_value(pw_map map, const char* key, size_t key_size, const char* value, size_t size);
PW_IMPORT(proxy_remove_header_map_value) pw_status proxy_remove_header_map_value(pw_map map, const char* key, size_t key_size);
PW_IMPORT(proxy_get_buffer_status) pw_status proxy_get_buffer_status(pw_buffer buffer, size_t* size, uint32_t* flags);
PW_IMPORT(proxy_get_buffer_bytes) pw_status proxy_get_buffer_bytes(pw_buffer buffer, size_t start, size_t most, char** bytes, size_t* size);
PW_IMPORT(proxy_set_buffer_bytes) pw_status proxy_set_buffer_bytes(pw_buffer buffer, size_t start, size_t length, const char* bytes, size_t size);
PW_IMPORT(proxy_send_local_response) pw_status proxy_send_local_response(uint32_t status, const char* details, size_t details_size, const char* body, size_t body_size, const char* headers, size_t headers_size, int32_t grpc_status);
PW_IMPORT(proxy_continue_stream) pw_status proxy_continue_stream(pw_stream stream);
PW_IMPORT(proxy_close_stream) pw_status proxy_close_stream(pw_stream stream);
PW_IMPORT(proxy_http_call) pw_status proxy_http_call(const char* upstream, size_t upstream_size, const char* headers, size_t headers_size, const char* body, size_t body_size, const char* trailers, size_t trailers_size, uint32_t timeout_milliseconds, uint32_t* call);
PW_IMPORT(proxy_grpc_call) pw_status proxy_grpc_call(const char* upstream, size_t upstream_size, const char* service, size_t service_size, const char* method, size_t method_size, const char* metadata, size_t metadata_size, const char* message, size_t message_size, uint32_t timeout_milliseconds, uint32_t* call);
PW_IMPORT(proxy_grpc_stream) pw_status proxy_grpc_stream(const char* upstream, size_t upstream_size, const char* service, size_t service_size, const char* method, size_t method_size, const char* metadata, size_t metadata_size, uint32_t* call);
PW_IMPORT(proxy_grpc_send) pw_status proxy_grpc_send(uint32_t call, const char* message, size_t size, uint32_t end);
PW_IMPORT(proxy_grpc_cancel) pw_status proxy_grpc_cancel(uint32_t call);
PW_IMPORT(proxy_grpc_close) pw_status proxy_grpc_close(uint32_t call);
PW_IMPORT(proxy_get_status) pw_status proxy_get_status(uint32_t* code, char** message, size_t* size);
PW_IMPORT(proxy_get_shared_data) pw_status proxy_get_shared_data(const char* key, size_t key_size, char** value, size_t* size, uint32_t* cas);
PW_IMPORT(proxy_set_shared_data) pw_status proxy_set_shared_data(const char* key, size_t key_size, const char* value, size_t size, uint32_t cas);
PW_IMPORT(proxy_register_shared_queue) pw_status proxy_register_shared_queue(const char* name, size_t size, uint32_t* queue);
PW_IMPORT(proxy_resolve_shared_queue) pw_status proxy_resolve_shared_queue(const char* vm, size_t vm_size, const char* name, size_t size, uint32_t* queue);
PW_IMPORT(proxy_enqueue_shared_queue) pw_status proxy_enqueue_shared_queue(uint32_t queue, const char* bytes, size_t size);
PW_IMPORT(proxy_dequeue_shared_queue) pw_status proxy_dequeue_shared_queue(uint32_t queue, char** bytes, size_t* size);
PW_IMPORT(proxy_define_metric) pw_status proxy_define_metric(pw_metric kind, const char* name, size_t size, uint32_t* metric);
PW_IMPORT(proxy_increment_metric) pw_status proxy_increment_metric(uint32_t metric, int64_t by);
PW_IMPORT(proxy_record_metric) pw_status proxy_record_metric(uint32_t metric, uint64_t value);
PW_IMPORT(proxy_get_metric) pw_status proxy_get_metric(uint32_t metric, uint64_t* value);
PW_IMPORT(proxy_set_effective_context) pw_status proxy_set_effective_context(uint32_t context);
PW_IMPORT(proxy_done) pw_status proxy_done(void);
PW_IMPORT(proxy_call_foreign_function) pw_status proxy_call_foreign_function(const char* name, size_t name_size, const char* argument, size_t argument_size, char** result, size_t* size);

// ---- what every module exports -------------------------------------------------------------------------------------

PW_EXPORT(proxy_abi_version_0_2_1) void proxy_abi_version_0_2_1(void) {}

// ---- memory --------------------------------------------------------------------------------------------------------

extern unsigned char __heap_base;

enum { PW_PAGE = 65536 };

// Memory is taken from the front and given back all at once: when a callback begins, what earlier ones took is of no
// use to anybody, but for what came before pw_keep_all().
static size_t pw_kept, pw_next;

// The host calls it too, for what it hands over.
PW_EXPORT(malloc) void* malloc(size_t size) {
    if (pw_next == 0) pw_next = pw_kept = ((size_t)&__heap_base + 15) & ~(size_t)15;
    size_t start = pw_next, end = start + ((size + 15) & ~(size_t)15);
    size_t have = __builtin_wasm_memory_size(0) * PW_PAGE;
    if (end < start) __builtin_trap();
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + PW_PAGE - 1) / PW_PAGE) == (size_t)-1) __builtin_trap();
    pw_next = end;
    return (void*)start;
}

// What is there now stays for good: what a configuration was read into.
static inline void pw_keep_all(void) { pw_kept = pw_next; }

// A callback begins.
static inline void pw_begin(void) { pw_next = pw_kept; }

void* memcpy(void* to, const void* from, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char*)to)[i] = ((const unsigned char*)from)[i];
    return to;
}

void* memset(void* at, int byte, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char*)at)[i] = (unsigned char)byte;
    return at;
}

// ---- contexts ------------------------------------------------------------------------------------------------------

#ifndef PW_WITHOUT_CONTEXTS

typedef struct pw_context {
    uint32_t id;
    // Of a root context, what its configuration was read into; of a stream's, the same as its root's.
    void* settings;
    struct pw_context* next;
} pw_context;

enum { PW_BUCKETS = 256 };

static pw_context *pw_contexts[PW_BUCKETS], *pw_unused;

static inline pw_context* pw_find(uint32_t id) {
    pw_context* context = pw_contexts[id % PW_BUCKETS];
    while (context && context->id != id) context = context->next;
    return context;
}

// The settings that the root context `id`, or that of the stream `id`, was configured with.
static inline void* pw_settings(uint32_t id) {
    pw_context* context = pw_find(id);
    return context ? context->settings : NULL;
}

// The settings of the root context are these from now on; they stay in memory.
static inline void pw_configured(uint32_t root, void* settings) {
    pw_keep_all();
    pw_context* context = pw_find(root);
    if (context) context->settings = settings;
}

PW_EXPORT(proxy_on_context_create)
void proxy_on_context_create(uint32_t id, uint32_t parent) {
    pw_context* context = pw_unused;
    if (context) {
        pw_unused = context->next;
    } else {
        pw_begin();
        context = malloc(sizeof(pw_context));
        pw_keep_all();
    }
    *context = (pw_context){id, parent ? pw_settings(parent) : NULL, pw_contexts[id % PW_BUCKETS]};
    pw_contexts[id % PW_BUCKETS] = context;
}

static inline void pw_forget(uint32_t id) {
    pw_context** link = &pw_contexts[id % PW_BUCKETS];
    while (*link && (*link)->id != id) link = &(*link)->next;
    pw_context* context = *link;
    if (!context) return;
    *link = context->next;
    context->next = pw_unused;
    pw_unused = context;
}

// A plugin that has more to forget defines PW_OWN_DELETE, exports this itself and calls pw_forget().
#ifndef PW_OWN_DELETE
PW_EXPORT(proxy_on_delete)
void proxy_on_delete(uint32_t id) { pw_forget(id); }
#endif

#endif

// ---- texts ---------------------------------------------------------------------------------------------------------

typedef struct { const char* at; size_t size; } pw_text;

#define PW_TEXT(literal) ((pw_text){literal, sizeof(literal) - 1})

static inline bool pw_begins(pw_text text, pw_text with) {
    if (text.size < with.size) return false;
    for (size_t i = 0; i < with.size; i++) if (text.at[i] != with.at[i]) return false;
    return true;
}

static inline bool pw_equal(pw_text a, pw_text b) { return a.size == b.size && pw_begins(a, b); }

static inline pw_text pw_from(pw_text text, size_t start) { return (pw_text){text.at + start, text.size - start}; }

static inline pw_text pw_join(pw_text a, pw_text b) {
    char* all = malloc(a.size + b.size);
    memcpy(all, a.at, a.size);
    memcpy(all + a.size, b.at, b.size);
    return (pw_text){all, a.size + b.size};
}

static inline void pw_log(pw_level level, pw_text text) { proxy_log(level, text.at, text.size); }

// ---- headers -------------------------------------------------------------------------------------------------------

typedef struct { pw_text key, value; } pw_pair;

static inline uint32_t pw_read32(const char* at) {
    const unsigned char* bytes = (const unsigned char*)at;
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline char* pw_write32(char* at, uint32_t value) {
    for (int i = 0; i < 4; i++) *at++ = (char)(value >> 8 * i);
    return at;
}

// The pairs of a map as the ABI writes them: how many, the sizes, then each key and value with a zero after it.
static inline pw_text pw_pack(const pw_pair* pairs, size_t count) {
    size_t size = 4;
    for (size_t i = 0; i < count; i++) size += 8 + pairs[i].key.size + 1 + pairs[i].value.size + 1;
    char* all = malloc(size);
    char* at = pw_write32(all, count);
    for (size_t i = 0; i < count; i++) at = pw_write32(pw_write32(at, pairs[i].key.size), pairs[i].value.size);
    for (size_t i = 0; i < count; i++) {
        const pw_text parts[2] = {pairs[i].key, pairs[i].value};
        for (int part = 0; part < 2; part++) {
            memcpy(at, parts[part].at, parts[part].size);
            at += parts[part].size;
            *at++ = 0;
        }
    }
    return (pw_text){all, size};
}

static inline pw_pair* pw_pairs(pw_map map, size_t* count) {
    char* all = NULL;
    size_t size = 0;
    *count = 0;
    if (proxy_get_header_map_pairs(map, &all, &size) != PW_OK || size < 4) return NULL;
    *count = pw_read32(all);
    pw_pair* pairs = malloc(*count * sizeof(pw_pair));
    const char* at = all + 4 + 8 * *count;
    for (size_t i = 0; i < *count; i++) {
        pw_text* parts[2] = {&pairs[i].key, &pairs[i].value};
        for (int part = 0; part < 2; part++) {
            *parts[part] = (pw_text){at, pw_read32(all + 4 + 8 * i + 4 * part)};
            at += parts[part]->size + 1;
        }
    }
    return pairs;
}

static inline bool pw_header(pw_map map, pw_text key, pw_text* value) {
    return proxy_get_header_map_value(map, key.at, key.size, (char**)&value->at, &value->size) == PW_OK;
}

static inline void pw_add(pw_map map, pw_text key, pw_text value) { proxy_add_header_map_value(map, key.at, key.size, value.at, value.size); }

static inline void pw_replace(pw_map map, pw_text key, pw_text value) { proxy_replace_header_map_value(map, key.at, key.size, value.at, value.size); }

static inline void pw_remove(pw_map map, pw_text key) { proxy_remove_header_map_value(map, key.at, key.size); }

static inline void pw_respond(uint32_t status, const pw_pair* headers, size_t count, pw_text body) {
    pw_text packed = pw_pack(headers, count);
    proxy_send_local_response(status, NULL, 0, body.at, body.size, packed.at, packed.size, -1);
}

// ---- configuration -------------------------------------------------------------------------------------------------

static inline bool pw_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Reads the JSON string that begins at `*at`, a quote, and leaves `*at` behind it. False when it ends in its middle.
static inline bool pw_json_read(pw_text json, size_t* at, pw_text* value) {
    char* out = malloc(json.size - *at);
    size_t size = 0;
    for (size_t i = *at + 1; i < json.size; i++) {
        char c = json.at[i];
        if (c == '"') {
            *at = i + 1;
            *value = (pw_text){out, size};
            return true;
        }
        if (c != '\\') { out[size++] = c; continue; }
        if (++i >= json.size) return false;
        c = json.at[i];
        if (c == 'u') {
            uint32_t code = 0;
            for (int digit = 0; digit < 4; digit++) {
                if (++i >= json.size) return false;
                char h = json.at[i];
                code = code << 4 | (uint32_t)(h <= '9' ? h - '0' : (h | 32) - 'a' + 10);
            }
            // A pair of halves is not put together: configurations are texts that people write.
            if (code < 0x80) out[size++] = (char)code;
            else if (code < 0x800) { out[size++] = (char)(0xc0 | code >> 6); out[size++] = (char)(0x80 | (code & 63)); }
            else { out[size++] = (char)(0xe0 | code >> 12); out[size++] = (char)(0x80 | (code >> 6 & 63)); out[size++] = (char)(0x80 | (code & 63)); }
            continue;
        }
        out[size++] = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
    }
    return false;
}

// The text that the object's own field `key` has. False when there is none, or another kind of value.
static inline bool pw_json_text(pw_text json, pw_text key, pw_text* value) {
    int depth = 0;
    for (size_t i = 0; i < json.size;) {
        char c = json.at[i];
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (c != '"') { i++; continue; }
        pw_text word;
        if (!pw_json_read(json, &i, &word)) return false;
        while (i < json.size && pw_is_space(json.at[i])) i++;
        if (depth != 1 || i >= json.size || json.at[i] != ':') continue;
        for (i++; i < json.size && pw_is_space(json.at[i]);) i++;
        if (pw_equal(word, key)) return i < json.size && json.at[i] == '"' && pw_json_read(json, &i, value) && value->size > 0;
        // The value of another field: not to be taken for a field's name.
        if (i < json.size && json.at[i] == '"' && !pw_json_read(json, &i, &word)) return false;
    }
    return false;
}

// The plugin's configuration.
static inline pw_text pw_configuration(size_t size) {
    pw_text text = {NULL, 0};
    if (size > 0) proxy_get_buffer_bytes(PW_PLUGIN_CONFIGURATION, 0, size, (char**)&text.at, &text.size);
    return text;
}

// The text of a field of the configuration; without it, the reason is logged.
static inline bool pw_setting(pw_text configuration, pw_text key, pw_text* value) {
    if (pw_json_text(configuration, key, value)) return true;
    pw_log(PW_CRITICAL, pw_join(PW_TEXT("the configuration lacks "), key));
    return false;
}

#endif
