/* The plugins that are written for every runtime, as a native module in C: ../README.md says what each does. The
 * configuration's filter_name chooses. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postrider_module.h"

#define CALL(name) envoy_dynamic_module_callback_##name
#define ON(name) envoy_dynamic_module_on_##name

typedef struct {
  char name[32];
  pr_bytes json;
} settings;

typedef struct {
  const settings *settings;
  size_t counted;
} filter;

static pr_bytes bytes(const char *text) { return (pr_bytes){text, strlen(text)}; }

static bool same(pr_bytes a, pr_bytes b) { return a.length == b.length && !memcmp(a.start, b.start, a.length); }

static bool begins(pr_bytes text, pr_bytes with) {
  return text.length >= with.length && !memcmp(text.start, with.start, with.length);
}

static bool is(const void *own, const char *name) { return !strcmp(((const filter *)own)->settings->name, name); }

static void set(pr_stream stream, int map, const char *name, pr_bytes value) {
  CALL(http_set_header)(stream, map, bytes(name), value);
}

static void answer(pr_stream stream, unsigned status, const pr_header *headers, size_t count, pr_bytes text) {
  CALL(http_send_response)(stream, status, headers, count, text, bytes("plugin"));
}

/* The text of a field of the configuration, an object of texts without escapes; empty when there is none. */
static pr_bytes setting(const filter *of, const char *key) {
  pr_bytes json = of->settings->json, word[2] = {{NULL, 0}, {NULL, 0}};
  int words = 0;
  const char *end = json.start + json.length, *at = json.start;
  while (at < end && (at = memchr(at, '"', (size_t)(end - at)))) {
    at++;
    const char *close = memchr(at, '"', (size_t)(end - at));
    if (!close) break;
    word[words++ % 2] = (pr_bytes){at, (size_t)(close - at)};
    at = close + 1;
    if (words % 2 == 0 && same(word[0], bytes(key))) return word[1];
  }
  return (pr_bytes){"", 0};
}

/* ---- lives ---- */

const char *ON(program_init)(void) { return PR_VERSION; }

const void *ON(http_filter_config_new)(pr_config config, pr_bytes name, pr_bytes text) {
  (void)config;
  settings *made = calloc(1, sizeof(settings) + text.length);
  char *copy = (char *)(made + 1);
  if (text.length) memcpy(copy, text.start, text.length);
  made->json = (pr_bytes){copy, text.length};
  snprintf(made->name, sizeof made->name, "%.*s", (int)name.length, name.length ? name.start : "");
  return made;
}

void ON(http_filter_config_destroy)(const void *own) { free((void *)own); }

const void *ON(http_filter_new)(const void *own, pr_stream stream) {
  (void)stream;
  filter *made = calloc(1, sizeof(filter));
  made->settings = own;
  if (is(made, "villain") && same(setting(made, "do"), bytes("error"))) {
    free(made);
    return NULL;
  }
  return made;
}

void ON(http_filter_destroy)(const void *own) { free((void *)own); }

/* ---- basic_auth ---- */

static size_t encode(char *to, const char *from, size_t length) {
  static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *at = to;
  for (size_t i = 0; i < length; i += 3) {
    unsigned group = (unsigned)(unsigned char)from[i] << 16;
    if (i + 1 < length) group |= (unsigned)(unsigned char)from[i + 1] << 8;
    if (i + 2 < length) group |= (unsigned)(unsigned char)from[i + 2];
    *at++ = alphabet[group >> 18];
    *at++ = alphabet[group >> 12 & 63];
    *at++ = i + 1 < length ? alphabet[group >> 6 & 63] : '=';
    *at++ = i + 2 < length ? alphabet[group & 63] : '=';
  }
  return (size_t)(at - to);
}

static int basic_auth(pr_stream stream, const filter *own) {
  pr_bytes user = setting(own, "username"), password = setting(own, "password"), given;
  char plain[256], known[512] = "Basic ";
  int length = snprintf(plain, sizeof plain, "%.*s:%.*s", (int)user.length, user.start, (int)password.length, password.start);
  size_t size = 6 + encode(known + 6, plain, (size_t)length);
  bool has = CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes("authorization"), &given, 0, NULL);
  if (!has || !same(given, (pr_bytes){known, size})) {
    pr_header challenge = {"www-authenticate", 16, "Basic realm=\"postrider\"", 23};
    answer(stream, 401, &challenge, 1, bytes("unauthorized\n"));
    return PR_HEAD_STOP;
  }
  set(stream, PR_REQUEST_HEADERS, "x-auth-user", user);
  return PR_HEAD_CONTINUE;
}

/* ---- headers ---- */

static void *copied(const char *from, size_t length) {
  char *to = malloc(length + 1);
  if (length) memcpy(to, from, length);
  return to;
}

static void rename_fields(pr_stream stream, const filter *own, int map) {
  pr_bytes from = setting(own, "from"), to = setting(own, "to");
  size_t count = CALL(http_get_headers_size)(stream, map), found = 0;
  pr_header *all = calloc(count + 1, sizeof(pr_header));
  if (!CALL(http_get_headers)(stream, map, all)) count = 0;
  /* What is lent goes with the first change. */
  for (size_t i = 0; i < count; i++) {
    if (!begins((pr_bytes){all[i].name, all[i].name_length}, from)) continue;
    pr_header field = all[i];
    field.name = copied(field.name, field.name_length);
    field.value = copied(field.value, field.value_length);
    all[found++] = field;
  }
  for (size_t i = 0; i < found; i++) {
    CALL(http_set_header)(stream, map, (pr_bytes){all[i].name, all[i].name_length}, (pr_bytes){NULL, 0});
  }
  for (size_t i = 0; i < found; i++) {
    char name[256];
    int length = snprintf(name, sizeof name, "%.*s%.*s", (int)to.length, to.start, (int)(all[i].name_length - from.length),
                          all[i].name + from.length);
    CALL(http_add_header)(stream, map, (pr_bytes){name, (size_t)length}, (pr_bytes){all[i].value, all[i].value_length});
    free((char *)all[i].name);
    free((char *)all[i].value);
  }
  free(all);
}

/* ---- body ---- */

static size_t gather(pr_stream stream, int body, char *to) {
  size_t count = CALL(http_get_body_chunks_size)(stream, body), at = 0;
  pr_bytes *chunks = calloc(count + 1, sizeof(pr_bytes));
  if (CALL(http_get_body_chunks)(stream, body, chunks))
    for (size_t i = 0; i < count; i++) {
      if (chunks[i].length) memcpy(to + at, chunks[i].start, chunks[i].length);
      at += chunks[i].length;
    }
  free(chunks);
  return at;
}

/* Rewrites a body that is whole: what was kept of it, and what came last, which may be part of that. */
static int rewrite(pr_stream stream, const filter *own, int received, int kept, bool end) {
  if (!end) return PR_BODY_STOP_AND_BUFFER;
  pr_bytes find = setting(own, "find"), replace = setting(own, "replace");
  size_t first = CALL(http_get_body_size)(stream, kept), last = CALL(http_get_body_size)(stream, received);
  char *text = malloc(first + last + 1);
  size_t length = gather(stream, kept, text);
  CALL(http_drain_body)(stream, kept, first);
  length += gather(stream, received, text + length);
  CALL(http_drain_body)(stream, received, CALL(http_get_body_size)(stream, received));
  size_t found = 0;
  for (size_t i = 0; i < length;) {
    bool here = begins((pr_bytes){text + i, length - i}, find);
    found += here;
    i += here ? find.length : 1;
  }
  char *out = malloc(length - found * find.length + found * replace.length + 1), *at = out;
  for (size_t i = 0; i < length;) {
    if (begins((pr_bytes){text + i, length - i}, find)) {
      memcpy(at, replace.start, replace.length);
      at += replace.length;
      i += find.length;
    } else {
      *at++ = text[i++];
    }
  }
  if (at > out) CALL(http_append_body)(stream, received, (pr_bytes){out, (size_t)(at - out)});
  free(out);
  free(text);
  return PR_BODY_CONTINUE;
}

/* ---- callout ---- */

static int callout(pr_stream stream, const filter *own) {
  uint64_t id;
  pr_bytes path = {"", 0}, cluster = setting(own, "cluster"), asked = setting(own, "path");
  CALL(http_get_header)(stream, PR_REQUEST_HEADERS, bytes(":path"), &path, 0, NULL);
  pr_header headers[] = {
      {":method", 7, "GET", 3},
      {":path", 5, asked.start, asked.length},
      {":authority", 10, cluster.start, cluster.length},
      {"x-original-path", 15, path.start, path.length},
  };
  if (CALL(http_filter_http_callout)(stream, &id, cluster, headers, 4, (pr_bytes){NULL, 0}, 5000) != PR_CALL_STARTED)
    answer(stream, 500, NULL, 0, bytes("no call\n"));
  /* The body waits with the head, and its sender when that is much. */
  return PR_HEAD_STOP_ALL_AND_WATERMARK;
}

void ON(http_filter_http_callout_done)(pr_stream stream, const void *of, uint64_t id, int result, const pr_header *headers,
                                       size_t header_count, const pr_bytes *chunks, size_t chunk_count) {
  pr_bytes status = bytes("503");
  char text[512];
  size_t size = 0;
  (void)of, (void)id;
  for (size_t i = 0; result == PR_CALL_ANSWERED && i < header_count; i++)
    if (same((pr_bytes){headers[i].name, headers[i].name_length}, bytes(":status")))
      status = (pr_bytes){headers[i].value, headers[i].value_length};
  if (!same(status, bytes("200"))) {
    size = (size_t)snprintf(text, sizeof text, "denied by %.*s\n", (int)status.length, status.start);
    answer(stream, 403, NULL, 0, (pr_bytes){text, size});
    return;
  }
  for (size_t i = 0; i < chunk_count && size + chunks[i].length <= sizeof text; i++) {
    if (chunks[i].length) memcpy(text + size, chunks[i].start, chunks[i].length);
    size += chunks[i].length;
  }
  if (size) set(stream, PR_REQUEST_HEADERS, "x-callout", (pr_bytes){text, size});
  CALL(http_filter_continue_decoding)(stream);
}

/* ---- the hooks ---- */

int ON(http_filter_request_headers)(pr_stream stream, const void *of, bool end) {
  const filter *own = of;
  if (is(own, "basic_auth")) return basic_auth(stream, own);
  if (is(own, "headers")) rename_fields(stream, own, PR_REQUEST_HEADERS);
  if (is(own, "body") && !end) set(stream, PR_REQUEST_HEADERS, "content-length", (pr_bytes){NULL, 0});
  if (is(own, "callout")) return callout(stream, own);
  if (is(own, "villain")) set(stream, PR_REQUEST_HEADERS, "x-done", bytes("yes"));
  return PR_HEAD_CONTINUE;
}

int ON(http_filter_request_body)(pr_stream stream, const void *of, bool end) {
  filter *own = (filter *)of;
  if (is(own, "body")) return rewrite(stream, own, PR_REQUEST_RECEIVED, PR_REQUEST_KEPT, end);
  if (is(own, "count")) own->counted += CALL(http_get_body_size)(stream, PR_REQUEST_RECEIVED);
  return PR_BODY_CONTINUE;
}

int ON(http_filter_request_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}

int ON(http_filter_response_headers)(pr_stream stream, const void *of, bool end) {
  const filter *own = of;
  if (is(own, "headers")) rename_fields(stream, own, PR_RESPONSE_HEADERS);
  if (is(own, "body") && !end) set(stream, PR_RESPONSE_HEADERS, "content-length", (pr_bytes){NULL, 0});
  if (is(own, "count")) {
    char text[32];
    snprintf(text, sizeof text, "%zu", own->counted);
    set(stream, PR_RESPONSE_HEADERS, "x-request-bytes", bytes(text));
  }
  return PR_HEAD_CONTINUE;
}

int ON(http_filter_response_body)(pr_stream stream, const void *own, bool end) {
  if (is(own, "body")) return rewrite(stream, own, PR_RESPONSE_RECEIVED, PR_RESPONSE_KEPT, end);
  return PR_BODY_CONTINUE;
}

int ON(http_filter_response_trailers)(pr_stream stream, const void *own) {
  (void)stream, (void)own;
  return PR_TRAILERS_CONTINUE;
}
