/* The native module of the bench, for the yardstick of what scripts cost: a filter that does nothing, basic authentication by
 * the user and password that are its configuration (`USER:PASSWORD`), and what `lua/simple.lua`, `normal.lua`, `complex.lua`
 * and `body100.lua` do. */

#include <string.h>
#include <stdlib.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

typedef struct {
  bool asks;
  /* Fields test1 to testN that are set and removed again, fields that are read, and times that the body is. */
  int set, get, bodies;
  size_t length;
  char credentials[];
} settings;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

static bool is(pr_bytes name, const char *wanted) {
  return name.length == strlen(wanted) && !memcmp(name.start, wanted, name.length);
}

const char *ON(program_init)(void) { return PR_VERSION; }

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  (void)config;
  settings *made = malloc(sizeof(settings) + text.length);
  made->asks = is(name, "basic_auth");
  made->set = is(name, "normal") || is(name, "complex") ? 20 : 0;
  made->get = made->set || is(name, "simple") ? 10 : 0;
  made->bodies = is(name, "complex") ? 30 : is(name, "body100") ? 100 : 0;
  made->length = text.length;
  if (text.length) memcpy(made->credentials, text.start, text.length);
  return made;
}

void ON(http_filter_config_destroy)(const void *own) { free((void *)own); }

/* Basic authentication looks at the heads of requests and says so, the others see all there is. Only Postrider asks. */
uint32_t postrider_module_on_http_filter_hooks(const void *own) {
  const uint32_t request_headers = 1, all = 63;
  return ((const settings *)own)->asks ? request_headers : all;
}

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

/* The name of a field, made each time as a script makes it; `room` holds eight bytes. */
static pr_bytes numbered(char *room, int number) {
  size_t length = 4;
  memcpy(room, "test", 4);
  if (number >= 10) room[length++] = (char)('0' + number / 10);
  room[length++] = (char)('0' + number % 10);
  return (pr_bytes){room, length};
}

static void edit(const settings *own, pr_stream stream) {
  char room[8];
  pr_bytes value, none = {NULL, 0};
  for (int i = 1; i <= own->set; i++)
    CALL(http_set_header)(stream, PR_REQUEST_HEADERS, numbered(room, i), bytes("value"));
  for (int i = 1; i <= own->get; i++)
    CALL(http_get_header)(stream, PR_REQUEST_HEADERS, numbered(room, i), &value, 0, NULL);
  for (int i = 1; i <= own->set; i++) CALL(http_set_header)(stream, PR_REQUEST_HEADERS, numbered(room, i), none);
}

/* Copies the body out, as a script gets it: first what was kept, then the piece that ended it. */
static void read_body(pr_stream stream) {
  static const int parts[] = {PR_REQUEST_KEPT, PR_REQUEST_RECEIVED};
  char copy[4096];
  pr_bytes chunks[16];
  size_t length = 0;
  for (int part = 0; part < 2; part++) {
    size_t count = CALL(http_get_body_chunks_size)(stream, parts[part]);
    if (count > 16 || (count && !CALL(http_get_body_chunks)(stream, parts[part], chunks))) abort();
    for (size_t i = 0; i < count; i++) {
      if (chunks[i].length > sizeof copy - length) abort();
      memcpy(copy + length, chunks[i].start, chunks[i].length);
      length += chunks[i].length;
    }
  }
  /* So that the copy is made. */
  __asm__ volatile("" : : "r"(copy) : "memory");
}

int ON(http_filter_request_headers)(pr_stream stream, const void *filter, bool end) {
  const settings *own = filter;
  pr_bytes field;
  if (own->get) edit(own, stream);
  if (own->bodies && !end) return PR_HEAD_STOP;
  if (!own->asks) return PR_HEAD_CONTINUE;
  if (CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes("authorization"), &field, 0, NULL) && field.length > 6
      && !memcmp(field.start, "Basic ", 6) && is_known(own, field.start + 6, field.length - 6))
    return PR_HEAD_CONTINUE;
  pr_header challenge = {"www-authenticate", 16, "Basic realm=\"bench\"", 19};
  CALL(http_send_response)(stream, 401, &challenge, 1, bytes("who are you?"), bytes("no_credentials"));
  return PR_HEAD_STOP;
}

/* The others go on; Envoy wants them to be there. */
int ON(http_filter_request_body)(pr_stream stream, const void *filter, bool end) {
  const settings *own = filter;
  if (own->bodies && !end) return PR_BODY_STOP_AND_BUFFER;
  for (int i = 0; i < own->bodies; i++) read_body(stream);
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
