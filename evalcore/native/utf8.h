/* Whether bytes are UTF-8 as Python reads it: shortest forms, no surrogates, nothing above U+10FFFF. */

#ifndef EVALQ_UTF8_H
#define EVALQ_UTF8_H

#include "csv.h"

#if defined(__SSE2__) && defined(__GNUC__)
#include <tmmintrin.h>
#define HAS_LOOKUP 1
#endif

/* A letter at a time, for every machine. */
static int is_utf8_plainly(const u8 *p, const u8 *end) {
    while (p < end) {
        while (p < end && *p < 0x80) p++;
        while (p < end && *p >= 0x80) {
            u8 c = *p;
            int more = c >= 0xC2 && c <= 0xDF ? 1 : c >= 0xE0 && c <= 0xEF ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
            if (!more || end - p <= more) return 0;
            u8 low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
            if (p[1] < low || p[1] > high) return 0;
            for (int i = 2; i <= more; i++)
                if ((p[i] & 0xC0) != 0x80) return 0;
            p += more + 1;
        }
    }
    return 1;
}

#ifdef HAS_LOOKUP
/* What may be wrong with two bytes in a row, a bit each. All that is wrong with them is in the first one's upper half,
   in its lower half, and in the second one's upper half (Keiser and Lemire 2021, Validating UTF-8 in less than one
   instruction per byte). */
#define SHORT 1   /* no continuation where one must be */
#define LONG 2    /* one where none may be */
#define OVER3 4   /* three bytes for what two hold */
#define LARGE 8   /* above U+10FFFF */
#define HALF 16   /* of a surrogate pair */
#define OVER2 32  /* two bytes for what one holds */
#define LARGER 64 /* above U+13FFFF; or four bytes for what three hold, since no byte pair could be both */
#define TWO -128  /* two continuations: right where three or four bytes are one letter */
#define CARRY (SHORT | LONG | TWO)

__attribute__((target("ssse3"))) static __m128i utf8_faults(__m128i now, __m128i before) {
    const __m128i first_upper = _mm_setr_epi8(LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, TWO, TWO, TWO, TWO,
                                              SHORT | OVER2, SHORT, SHORT | OVER3 | HALF, SHORT | LARGE | LARGER);
    const __m128i first_lower = _mm_setr_epi8(
        CARRY | OVER3 | OVER2 | LARGER, CARRY | OVER2, CARRY, CARRY, CARRY | LARGE, CARRY | LARGE | LARGER,
        CARRY | LARGE | LARGER, CARRY | LARGE | LARGER, CARRY | LARGE | LARGER, CARRY | LARGE | LARGER,
        CARRY | LARGE | LARGER, CARRY | LARGE | LARGER, CARRY | LARGE | LARGER, CARRY | LARGE | LARGER | HALF,
        CARRY | LARGE | LARGER, CARRY | LARGE | LARGER);
    const __m128i second_upper = _mm_setr_epi8(SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT, SHORT,
                                               LONG | OVER2 | TWO | OVER3 | LARGER, LONG | OVER2 | TWO | OVER3 | LARGE,
                                               LONG | OVER2 | TWO | HALF | LARGE, LONG | OVER2 | TWO | HALF | LARGE,
                                               SHORT, SHORT, SHORT, SHORT);
    const __m128i lower = _mm_set1_epi8(0x0F);
    __m128i one = _mm_alignr_epi8(now, before, 15), two = _mm_alignr_epi8(now, before, 14),
            three = _mm_alignr_epi8(now, before, 13);
    __m128i pairs = _mm_and_si128(
        _mm_and_si128(_mm_shuffle_epi8(first_upper, _mm_and_si128(_mm_srli_epi16(one, 4), lower)),
                      _mm_shuffle_epi8(first_lower, _mm_and_si128(one, lower))),
        _mm_shuffle_epi8(second_upper, _mm_and_si128(_mm_srli_epi16(now, 4), lower)));
    /* The third byte of three, and the third and fourth of four, have their upper bit set by these. */
    __m128i later = _mm_or_si128(_mm_subs_epu8(two, _mm_set1_epi8(0xE0 - 0x80)),
                                 _mm_subs_epu8(three, _mm_set1_epi8(0xF0 - 0x80)));
    return _mm_xor_si128(_mm_and_si128(later, _mm_set1_epi8(-128)), pairs);
}

/* Past 64 bytes of ASCII at a time. */
__attribute__((target("ssse3"))) static const u8 *past_ascii(const u8 *p, const u8 *end) {
    for (; end - p >= 64; p += 64) {
        __m128i all = _mm_setzero_si128();
        for (int i = 0; i < 64; i += 16) all = _mm_or_si128(all, _mm_loadu_si128((const __m128i *)(const void *)(p + i)));
        if (_mm_movemask_epi8(all)) break;
    }
    return p;
}

__attribute__((target("ssse3"))) static int is_utf8_by_lookup(const u8 *p, const u8 *end) {
    __m128i before = _mm_setzero_si128(), faults = before;
    u8 tail[16] = {0}; /* at least one zero stands behind the last byte, so that what is cut off is too short */
    for (; end - p >= 16; p += 16) {
        if (!_mm_movemask_epi8(before)) {
            p = past_ascii(p, end);
            if (end - p < 16) break;
        }
        __m128i now = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* Letters that began before must end in what is all ASCII, too. */
        if (_mm_movemask_epi8(_mm_or_si128(now, before))) faults = _mm_or_si128(faults, utf8_faults(now, before));
        before = now;
    }
    memcpy(tail, p, (size_t)(end - p));
    faults = _mm_or_si128(faults, utf8_faults(_mm_loadu_si128((const __m128i *)(const void *)tail), before));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(faults, _mm_setzero_si128())) == 0xFFFF;
}
#endif

static int is_utf8(const u8 *p, const u8 *end) {
#ifdef HAS_LOOKUP
    if (__builtin_cpu_supports("ssse3")) return is_utf8_by_lookup(p, end);
#endif
    return is_utf8_plainly(p, end);
}

#endif
