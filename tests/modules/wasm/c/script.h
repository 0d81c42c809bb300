// Scripts in requests, for modules that do what a test's request says: `x-do: PHASE OPERATION WORD...; ...`.
//
// In words `+` stands for a space and `~` for nothing. Phases are named by the callback: qh, qb, qt for the request's headers,
// body and trailers, ah, ab, at for the answer's, qe and ae for the last piece of a body, and call for an answer to a call.
// What operations find is written down; the module shows it where the access log can see it.
#ifndef SCRIPT_H
#define SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { const char* at; size_t size; } sc_text;

enum { SC_WORDS = 8, SC_PLAN = 2048, SC_FOUND = 6000 };

typedef struct {
    uint32_t id;
    bool used;
    uint64_t call;
    size_t plan_size, found_size;
    char plan[SC_PLAN], found[SC_FOUND];
} sc_stream;

static inline sc_text sc_literal(const char* text) {
    size_t size = 0;
    while (text[size]) size++;
    return (sc_text){text, size};
}

static inline bool sc_is(sc_text text, const char* literal) {
    size_t i = 0;
    while (i < text.size && literal[i] && text.at[i] == literal[i]) i++;
    return i == text.size && !literal[i];
}

static inline int64_t sc_number(sc_text text) {
    bool negative = text.size > 0 && text.at[0] == '-';
    int64_t number = 0;
    for (size_t i = negative; i < text.size && text.at[i] >= '0' && text.at[i] <= '9'; i++) number = number * 10 + (text.at[i] - '0');
    return negative ? -number : number;
}

static inline void sc_begin(sc_stream* stream, uint32_t id, sc_text plan) {
    stream->id = id;
    stream->used = true;
    stream->call = 0;
    stream->found_size = 0;
    stream->plan_size = plan.size < SC_PLAN ? plan.size : SC_PLAN;
    for (size_t i = 0; i < stream->plan_size; i++) stream->plan[i] = plan.at[i];
}

// ---- what is found -------------------------------------------------------------------------------------------------

static inline void sc_byte(sc_stream* stream, char byte) {
    if (stream->found_size < SC_FOUND) stream->found[stream->found_size++] = byte;
}

static inline void sc_say(sc_stream* stream, const char* text) {
    while (*text) sc_byte(stream, *text++);
}

// Bytes; those that no log can show in hexadecimal digits.
static inline void sc_say_text(sc_stream* stream, sc_text text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        if (byte >= ' ' && byte < 0x7f && byte != '%') {
            sc_byte(stream, (char)byte);
        } else {
            sc_byte(stream, '%');
            sc_byte(stream, digits[byte >> 4]);
            sc_byte(stream, digits[byte & 15]);
        }
    }
}

static inline void sc_say_number(sc_stream* stream, uint64_t number) {
    char digits[20];
    size_t count = 0;
    do digits[count++] = (char)('0' + number % 10); while (number /= 10);
    while (count > 0) sc_byte(stream, digits[--count]);
}

// `NAME(first,second)` of a callback and what it was called with.
static inline void sc_enter(sc_stream* stream, const char* phase, uint64_t first, uint64_t second) {
    sc_say(stream, " ");
    sc_say(stream, phase);
    sc_say(stream, "(");
    sc_say_number(stream, first);
    sc_say(stream, ",");
    sc_say_number(stream, second);
    sc_say(stream, ")");
}

// What the proxy answered, and how often the time of another clock: of one field only that it is there.
static inline void sc_say_field(sc_stream* stream, sc_text key, sc_text value) {
    sc_say_text(stream, key);
    sc_say(stream, "=");
    sc_say_text(stream, sc_is(key, "x-envoy-upstream-service-time") ? sc_literal("*") : value);
    sc_say(stream, ",");
}

// ---- statements ----------------------------------------------------------------------------------------------------

// The words of the next statement of `phase` from `*at` on, which moves behind it. 0 when there is none. They are there until
// the next call.
static inline size_t sc_next(const sc_stream* stream, const char* phase, size_t* at, sc_text words[SC_WORDS]) {
    static char plain[SC_PLAN];
    while (*at < stream->plan_size) {
        size_t count = 0, used = 0, start = *at;
        sc_text all[SC_WORDS + 1] = {{NULL, 0}};
        size_t i = start;
        for (; i < stream->plan_size && stream->plan[i] != ';';) {
            if (stream->plan[i] == ' ') { i++; continue; }
            char* word = plain + used;
            for (; i < stream->plan_size && stream->plan[i] != ';' && stream->plan[i] != ' '; i++) {
                char c = stream->plan[i];
                plain[used++] = c == '+' ? ' ' : c;
            }
            size_t size = (size_t)(plain + used - word);
            if (size == 1 && *word == '~') size = 0;
            if (count <= SC_WORDS) all[count++] = (sc_text){word, size};
        }
        *at = i + 1;
        if (count < 2 || !sc_is(all[0], phase)) continue;
        for (size_t word = 0; word < SC_WORDS; word++) words[word] = all[word + 1];
        return count - 1;
    }
    return 0;
}

// Splits `k=v`.
static inline sc_text sc_key(sc_text pair) {
    size_t i = 0;
    while (i < pair.size && pair.at[i] != '=') i++;
    return (sc_text){pair.at, i};
}

static inline sc_text sc_value(sc_text pair) {
    size_t i = sc_key(pair).size + 1;
    return i < pair.size ? (sc_text){pair.at + i, pair.size - i} : (sc_text){pair.at, 0};
}

#endif
