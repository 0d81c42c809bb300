/* The native module of the bench: a filter that does nothing, and basic authentication by the user and password that are its
 * configuration, `USER:PASSWORD`. */

#include <string.h>
#include <stdlib.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

typedef struct {
  bool asks;
  size_t length;
  char credentials[];
} settings;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

const char *ON(program_init)(void) { return PR_VERSION; }

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  (void)config;
  settings *made = malloc(sizeof(settings) + text.length);
  made->asks = name.length == 10 && !memcmp(name.start, "basic_auth", 10);
  made->length = text.length;
  if (text.length) memcpy(made->credentials, text.start, text.length);
  return made;
}

void ON(http_filter_config_destroy)(const void *own) { free((void *)own); }

/* A stream has nothing of its own: its filter is the configuration. */
const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  (void)stream;
  return own;
}

void ON(http_filter_destroy)(const void *own) { (void)own; }

/* The six bits that a character of base64 stands for; -1 when it is none. */
static int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Whether `encoded` is base64 of what is wanted. */
static bool is_known(const settings *own, const char *encoded, size_t size) {
  char decoded[256];
  size_t length = 0;
  unsigned bits = 0;
  if (size % 4 || size > 300) return false;
  for (int pads = 0; pads < 2 && size && encoded[size - 1] == '='; pads++) size--;
  for (size_t i = 0; i < size; i++) {
    int six = sextet(encoded[i]);
    if (six < 0) return false;
    bits = bits << 6 | (unsigned)six;
    if (i % 4) decoded[length++] = (char)(bits >> (6 - i % 4 * 2));
  }
  return length == own->length && !memcmp(decoded, own->credentials, length);
}

int ON(http_filter_request_headers)(pr_stream stream, const void *filter, bool end) {
  const settings *own = filter;
  pr_bytes field;
  (void)end;
  if (!own->asks) return PR_HEAD_CONTINUE;
  if (CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes("authorization"), &field, 0, NULL) && field.length > 6
      && !memcmp(field.start, "Basic ", 6) && is_known(own, field.start + 6, field.length - 6))
    return PR_HEAD_CONTINUE;
  pr_header challenge = {"www-authenticate", 16, "Basic realm=\"bench\"", 19};
  CALL(http_send_response)(stream, 401, &challenge, 1, bytes("who are you?"), bytes("no_credentials"));
  return PR_HEAD_STOP;
}

/* The others go on; Envoy wants them to be there. */
int ON(http_filter_request_body)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_BODY_CONTINUE;
}
int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
int ON(http_filter_response_headers)(pr_stream stream, const void *own, bool end) {
  (void)stream, (void)own, (void)end;
  return PR_HEAD_CONTINUE;
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
