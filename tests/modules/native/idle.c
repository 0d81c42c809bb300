/* An HTTP filter of which most functions do nothing, as Envoy wants them to be there. It stops the heads of messages that say so, and
 * has no way to let them go on but by what its functions for bodies and trailers answer. */

#include <string.h>

#include "postrider_module.h"

#define ON(name) envoy_dynamic_module_on_##name

static int stops(pr_stream stream, int map, bool end) {
  pr_bytes name = {"x-stop", 6}, value;
  bool asked = envoy_dynamic_module_callback_http_get_header(stream, map, name, &value, 0, NULL);
  return asked && !end ? PR_HEAD_STOP : PR_HEAD_CONTINUE;
}

const char *ON(program_init)(void) { return PR_VERSION; }
const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  (void)config, (void)name, (void)text;
  return "idle";
}
void ON(http_filter_config_destroy)(const void *own) { (void)own; }
const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  (void)stream;
  return own;
}
void ON(http_filter_destroy)(const void *own) { (void)own; }

int ON(http_filter_request_headers)(pr_stream stream, const void *own, bool end) {
  (void)own;
  return stops(stream, PR_REQUEST_HEADERS, end);
}
#ifdef RESPONSES
int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  (void)own;
  return stops(stream, PR_RESPONSE_HEADERS, end);
}
#else
int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_HEAD_CONTINUE;
}
#endif

int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_response_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
void ON(http_filter_stream_complete)(pr_stream stream, const void *own) { (void)stream, (void)own; }
void ON(http_filter_scheduled)(pr_stream stream, const void *own, uint64_t event) { (void)stream, (void)own, (void)event; }
void ON(http_filter_http_callout_done)(pr_stream stream, const void *own, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  (void)stream, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
int ON(http_filter_local_reply)(pr_stream stream, const void *own, uint32_t status, pr_bytes details, bool reset) {
  (void)stream, (void)own, (void)status, (void)details, (void)reset;
  return 0;
}
void ON(http_filter_http_stream_headers)(pr_stream stream, const void *own, uint64_t id, const pr_header *headers, size_t count,
                                         bool end) {
  (void)stream, (void)own, (void)id, (void)headers, (void)count, (void)end;
}
void ON(http_filter_http_stream_data)(pr_stream stream, const void *own, uint64_t id, const pr_bytes *chunks, size_t count,
                                      bool end) {
  (void)stream, (void)own, (void)id, (void)chunks, (void)count, (void)end;
}
void ON(http_filter_http_stream_trailers)(pr_stream stream, const void *own, uint64_t id, const pr_header *trailers,
                                          size_t count) {
  (void)stream, (void)own, (void)id, (void)trailers, (void)count;
}
void ON(http_filter_http_stream_complete)(pr_stream stream, const void *own, uint64_t id) { (void)stream, (void)own, (void)id; }
void ON(http_filter_http_stream_reset)(pr_stream stream, const void *own, uint64_t id, int reason) {
  (void)stream, (void)own, (void)id, (void)reason;
}
void ON(http_filter_config_scheduled)(pr_config config, const void *own, uint64_t event) {
  (void)config, (void)own, (void)event;
}
void ON(http_filter_config_http_callout_done)(pr_config config, const void *own, uint64_t id, int result,
                                              const pr_header *headers, size_t header_count, const pr_bytes *chunks,
                                              size_t chunk_count) {
  (void)config, (void)own, (void)id, (void)result, (void)headers, (void)header_count, (void)chunks, (void)chunk_count;
}
const void *ON(http_filter_per_route_config_new)(pr_bytes name, pr_bytes text) {
  (void)name, (void)text;
  return "no route has one";
}
void ON(http_filter_per_route_config_destroy)(const void *own) { (void)own; }
void ON(http_filter_downstream_above_write_buffer_high_watermark)(pr_stream stream, const void *own) { (void)stream, (void)own; }
void ON(http_filter_downstream_below_write_buffer_low_watermark)(pr_stream stream, const void *own) { (void)stream, (void)own; }
