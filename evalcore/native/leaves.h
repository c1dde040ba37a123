/* Sums over leaves of bytes, of which digests.py makes a chunk's digest: what it says is the reference. */

#ifndef EVALQ_LEAVES_H
#define EVALQ_LEAVES_H

#include "csv.h"

enum { LEAF_BYTES = 2048, LEAF_WORDS = LEAF_BYTES / 4, LEAF_SUMS = 2 };

/* `sums` of one leaf, modulo 2^64: of its words, little endian, each times its number of `key` (LEAF_WORDS a sum). */
static void leaf_plainly(const u64 *key, const u8 *leaf, u64 *sums) {
    u64 one = 0, two = 0;
    for (int i = 0; i < LEAF_WORDS; i++) {
        const u8 *p = leaf + 4 * i;
        u64 word = (u64)p[0] | (u64)p[1] << 8 | (u64)p[2] << 16 | (u64)p[3] << 24;
        one += word * key[i];
        two += word * key[LEAF_WORDS + i];
    }
    sums[0] = one;
    sums[1] = two;
}

#ifdef HAS_WIDE
/* The products of four words and four numbers: lower halves into *low, what the upper halves add into *high. */
WIDE static inline void leaf_step(__m256i words, const u64 *key, __m256i *low, __m256i *high) {
    __m256i numbers = _mm256_loadu_si256((const __m256i *)(const void *)key);
    *low = _mm256_add_epi64(*low, _mm256_mul_epu32(words, numbers));
    *high = _mm256_add_epi64(*high, _mm256_mul_epu32(words, _mm256_srli_epi64(numbers, 32)));
}

WIDE static inline u64 leaf_sum(__m256i low, __m256i high) {
    u64 parts[4];
    _mm256_storeu_si256((__m256i *)(void *)parts, _mm256_add_epi64(low, _mm256_slli_epi64(high, 32)));
    return parts[0] + parts[1] + parts[2] + parts[3];
}

WIDE static void leaf_widely(const u64 *key, const u8 *leaf, u64 *sums) {
    __m256i low[LEAF_SUMS], high[LEAF_SUMS];
    for (int at = 0; at < LEAF_SUMS; at++) low[at] = high[at] = _mm256_setzero_si256();
    for (int i = 0; i < LEAF_WORDS; i += 4) {
        __m256i words = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(leaf + 4 * i)));
        for (int at = 0; at < LEAF_SUMS; at++) leaf_step(words, key + at * LEAF_WORDS + i, low + at, high + at);
    }
    for (int at = 0; at < LEAF_SUMS; at++) sums[at] = leaf_sum(low[at], high[at]);
}
#endif

/* The sums of all leaves of `data`, the last one filled up with zeros, as little-endian bytes into `out`. */
static void leaf_sums_of(const u64 *key, const u8 *data, size_t n, u8 *out, int narrow) {
    (void)narrow;
    void (*sums_of)(const u64 *, const u8 *, u64 *) = leaf_plainly;
    u8 last[LEAF_BYTES] = {0};
    u64 sums[LEAF_SUMS];
#ifdef HAS_WIDE
    if (!narrow && wide_here()) sums_of = leaf_widely;
#endif
    for (size_t at = 0; at < n; at += LEAF_BYTES) {
        const u8 *leaf = data + at;
        if (n - at < LEAF_BYTES) leaf = memcpy(last, leaf, n - at);
        sums_of(key, leaf, sums);
        for (int i = 0; i < LEAF_SUMS; i++)
            for (int byte = 0; byte < 8; byte++) *out++ = (u8)(sums[i] >> 8 * byte);
    }
}

#endif
