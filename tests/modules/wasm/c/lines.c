// Shouts what a client sends and counts it, as a filter of connections; counts records, as an access logger.
#define PW_WITHOUT_CONTEXTS
#include "proxy_wasm.h"

static uint32_t bytes, ends, records;

PW_EXPORT(proxy_on_configure)
bool proxy_on_configure(uint32_t root, size_t size) {
    return proxy_define_metric(PW_COUNTER, "lines.bytes", 11, &bytes) == PW_OK && proxy_define_metric(PW_COUNTER, "lines.ends", 10, &ends) == PW_OK
        && proxy_define_metric(PW_COUNTER, "lines.records", 13, &records) == PW_OK;
}

PW_EXPORT(proxy_on_new_connection)
pw_action proxy_on_new_connection(uint32_t context) { return PW_CONTINUE; }

PW_EXPORT(proxy_on_downstream_data)
pw_action proxy_on_downstream_data(uint32_t context, size_t size, uint32_t end) {
    pw_begin();
    char* data = NULL;
    size_t got = 0;
    if (size == 0 || proxy_get_buffer_bytes(PW_DOWNSTREAM_DATA, 0, size, &data, &got) != PW_OK) return PW_CONTINUE;
    for (size_t i = 0; i < got; i++) if (data[i] >= 'a' && data[i] <= 'z') data[i] -= 'a' - 'A';
    proxy_set_buffer_bytes(PW_DOWNSTREAM_DATA, 0, got, data, got);
    proxy_increment_metric(bytes, (int64_t)got);
    return PW_CONTINUE;
}

PW_EXPORT(proxy_on_downstream_connection_close)
void proxy_on_downstream_connection_close(uint32_t context, uint32_t peer) { proxy_increment_metric(ends, 1); }

PW_EXPORT(proxy_on_log)
void proxy_on_log(uint32_t context) { proxy_increment_metric(records, 1); }
