/* JSON as it stands in a quoted CSV field, where each quote is written twice: read in place, without a copy.

   Only what RFC 8259 allows is read. Whoever meets anything else gets NULL and leaves the row to Python. */

#ifndef EVALQ_JSON_H
#define EVALQ_JSON_H

#include "csv.h"

#define MAX_NESTED 200 /* below MAX_DEPTH of record.py, and little of any stack */

typedef struct {
    Text raw;    /* between its quotes, as it stands */
    int escaped; /* whether a backslash is in it */
} String;

/* Set where JSON that is right so far ends too early: what no reader of JSON takes, however lenient. */
static int cut_off;

static const u8 *ended(void) {
    cut_off = 1;
    return NULL;
}

static const u8 *past_space(const u8 *p, const u8 *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static int is_hex(u8 c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

static int is_quote(const u8 *p, const u8 *end) { return end - p >= 2 && p[0] == '"' && p[1] == '"'; }

/* The first quote, backslash or control character from `p` on. */
static const u8 *past_plain(const u8 *p, const u8 *end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                                   _mm_cmpeq_epi8(_mm_max_epu8(v, control), control));
        u32 bits = (u32)_mm_movemask_epi8(hit);
        if (bits) return p + lowest_bit(bits);
        p += 16;
    }
#endif
    while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') p++;
    return p;
}

static const u8 *read_string(const u8 *p, const u8 *end, String *out) {
    if (p >= end) return ended();
    if (!is_quote(p, end)) return NULL;
    out->raw.p = p += 2;
    out->escaped = 0;
    for (;;) {
        p = past_plain(p, end);
        if (p >= end) return ended();
        if (*p == '"') {
            if (!is_quote(p, end)) return NULL;
            out->raw.n = (size_t)(p - out->raw.p);
            return p + 2;
        }
        if (*p != '\\' || end - p < 2) return NULL;
        out->escaped = 1;
        if (p[1] == '"') {
            if (!is_quote(p + 1, end)) return NULL;
            p += 3;
        } else if (p[1] == 'u') {
            if (end - p < 6 || !is_hex(p[2]) || !is_hex(p[3]) || !is_hex(p[4]) || !is_hex(p[5])) return NULL;
            p += 6;
        } else if (p[1] != 0 && strchr("\\/bfnrt", p[1])) {
            p += 2;
        } else {
            return NULL;
        }
    }
}

static const u8 *past_digits(const u8 *p, const u8 *end) {
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static const u8 *past_number(const u8 *p, const u8 *end) {
    const u8 *from;
    if (p < end && *p == '-') p++;
    if (p >= end || *p < '0' || *p > '9') return NULL;
    p = *p == '0' ? p + 1 : past_digits(p, end);
    if (p < end && *p == '.') {
        from = ++p;
        if ((p = past_digits(p, end)) == from) return NULL;
    }
    if (p < end && (*p | 32) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        from = p;
        if ((p = past_digits(p, end)) == from) return NULL;
    }
    return p;
}

static const u8 *past_word(const u8 *p, const u8 *end, const char *word, size_t n) {
    return (size_t)(end - p) >= n && !memcmp(p, word, n) ? p + n : NULL;
}

/* Behind a number, true, false or null. */
static const u8 *past_scalar(const u8 *p, const u8 *end) {
    if (p >= end) return NULL;
    switch (*p) {
    case 't': return past_word(p, end, "true", 4);
    case 'f': return past_word(p, end, "false", 5);
    case 'n': return past_word(p, end, "null", 4);
    default: return past_number(p, end);
    }
}

/* An object's key and the colon behind it; `p` is at the key. */
static const u8 *read_key(const u8 *p, const u8 *end, String *key) {
    if (!(p = read_string(p, end, key))) return NULL;
    p = past_space(p, end);
    if (p >= end) return ended();
    return *p == ':' ? past_space(p + 1, end) : NULL;
}

/* Behind what follows a value: the next one, with *more set, or the container's end. */
static const u8 *past_comma(const u8 *p, const u8 *end, u8 close, int *more) {
    p = past_space(p, end);
    if (p >= end) return ended();
    if (*p != ',' && *p != close) return NULL;
    *more = *p == ',';
    return *more ? past_space(p + 1, end) : p + 1;
}

/* Behind any value. */
static const u8 *past_value(const u8 *p, const u8 *end, int depth) {
    String any;
    int more = 1;
    if (p >= end) return ended();
    if (*p == '"') return read_string(p, end, &any);
    if (*p != '{' && *p != '[') return past_scalar(p, end);
    if (depth >= MAX_NESTED) return NULL;
    u8 close = *p == '{' ? '}' : ']';
    p = past_space(p + 1, end);
    if (p < end && *p == close) return p + 1;
    while (more) {
        if (close == '}' && !(p = read_key(p, end, &any))) return NULL;
        if (!(p = past_value(p, end, depth + 1)) || !(p = past_comma(p, end, close, &more))) return NULL;
    }
    return p;
}

static u32 hex4(const u8 *p) {
    u32 value = 0;
    for (int i = 0; i < 4; i++) value = value << 4 | (u32)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return value;
}

static u8 *put_utf8(u8 *out, u32 c) {
    if (c < 0x80) {
        *out++ = (u8)c;
    } else if (c < 0x800) {
        *out++ = (u8)(0xC0 | c >> 6);
        *out++ = (u8)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (u8)(0xE0 | c >> 12);
        *out++ = (u8)(0x80 | (c >> 6 & 63));
        *out++ = (u8)(0x80 | (c & 63));
    } else {
        *out++ = (u8)(0xF0 | c >> 18);
        *out++ = (u8)(0x80 | (c >> 12 & 63));
        *out++ = (u8)(0x80 | (c >> 6 & 63));
        *out++ = (u8)(0x80 | (c & 63));
    }
    return out;
}

/* `raw`, which `read_string` has checked, without its escapes, in `out` (as long as `raw` is enough). NULL where half
   of a surrogate pair stands in it. */
static u8 *unescaped(Text raw, u8 *out) {
    const u8 *p = raw.p, *end = raw.p + raw.n;
    while (p < end) {
        if (*p != '\\') {
            *out++ = *p++;
        } else if (p[1] == 'u') {
            u32 c = hex4(p + 2);
            p += 6;
            if (c >= 0xD800 && c < 0xE000) {
                if (c >= 0xDC00 || end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
                u32 low = hex4(p + 2);
                if (low < 0xDC00 || low >= 0xE000) return NULL;
                c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
                p += 6;
            }
            out = put_utf8(out, c);
        } else {
            switch (p[1]) {
            case 'b': *out++ = '\b'; break;
            case 'f': *out++ = '\f'; break;
            case 'n': *out++ = '\n'; break;
            case 'r': *out++ = '\r'; break;
            case 't': *out++ = '\t'; break;
            default: *out++ = p[1]; break;
            }
            p += p[1] == '"' ? 3 : 2;
        }
    }
    return out;
}

#endif
