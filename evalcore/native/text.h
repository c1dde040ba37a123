/* Comparing texts as Python compares them: without white space, and as parts of others. */

#ifndef EVALQ_TEXT_H
#define EVALQ_TEXT_H

#include "csv.h"

/* How many bytes of white space (as str.split() takes it) stand at `p`, where UTF-8 of at least `n` bytes does. */
static int space_at(const u8 *p, size_t n) {
    u8 c = p[0];
    if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || c >= 0x1C;
    if (c < 0xC2 || c > 0xE3) return 0;
    if (c == 0xC2) return n >= 2 && (p[1] == 0x85 || p[1] == 0xA0) ? 2 : 0;
    if (n < 3) return 0;
    if (c == 0xE1) return p[1] == 0x9A && p[2] == 0x80 ? 3 : 0;
    if (c == 0xE2 && p[1] == 0x80)
        return (p[2] >= 0x80 && p[2] <= 0x8A) || p[2] == 0xA8 || p[2] == 0xA9 || p[2] == 0xAF ? 3 : 0;
    if (c == 0xE2) return p[1] == 0x81 && p[2] == 0x9F ? 3 : 0;
    return c == 0xE3 && p[1] == 0x80 && p[2] == 0x80 ? 3 : 0;
}

/* `text` less its white space, in `out`, which is as long. */
static Text without_space(Text text, u8 *out) {
    const u8 *p = text.p, *end = text.p + text.n;
    Text plain = {out, 0};
    while (p < end) {
        int space = space_at(p, (size_t)(end - p));
        if (space) p += space;
        else *out++ = *p++;
    }
    plain.n = (size_t)(out - plain.p);
    return plain;
}

/* Where `part`, which is not empty, first stands in `in` from `from` on; in.n where it does not. */
static size_t find(Text in, Text part, size_t from) {
    if (part.n > in.n) return in.n;
    size_t last = in.n - part.n, i = from;
#if defined(__SSE2__)
    const __m128i first = _mm_set1_epi8((char)part.p[0]), final = _mm_set1_epi8((char)part.p[part.n - 1]);
    for (; i + 15 <= last; i += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(in.p + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in.p + i + part.n - 1));
        u32 bits = (u32)_mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(a, first), _mm_cmpeq_epi8(b, final)));
        for (; bits; bits &= bits - 1) {
            size_t at = i + (size_t)lowest_bit(bits);
            if (!memcmp(in.p + at, part.p, part.n)) return at;
        }
    }
#endif
    for (; i <= last; i++)
        if (in.p[i] == part.p[0] && !memcmp(in.p + i, part.p, part.n)) return i;
    return in.n;
}

static int contains(Text in, Text part) { return part.n <= in.n && find(in, part, 0) < in.n; }

/* Whether `part` stands in `in` between quotes, each of which is written twice. */
static int contains_quoted(Text in, Text part) {
    for (size_t at = 0; part.n <= in.n; at++) {
        at = find(in, part, at);
        if (at >= in.n) return 0;
        size_t end = at + part.n;
        if (at >= 2 && in.n - end >= 2 && in.p[at - 1] == '"' && in.p[at - 2] == '"' && in.p[end] == '"' &&
            in.p[end + 1] == '"')
            return 1;
    }
    return 0;
}

static int same(Text a, Text b) { return a.n == b.n && !memcmp(a.p, b.p, a.n); }

static int is(Text a, const char *b) { return a.n == strlen(b) && !memcmp(a.p, b, a.n); }

#endif
