/* Two SHA-256 in one pass over the same bytes, for processors that have instructions for it (FIPS 180-4).

   Each of these waits for the one before it: two digests in turn keep the processor busy, and cost little more than one.
   What a digest is, hashlib says; this is compared with it. */

#ifndef EVALQ_SHA256_H
#define EVALQ_SHA256_H

#include "csv.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define HAS_SHA 1
#endif

typedef struct {
    u32 h[8];
    u8 rest[64]; /* what is no whole block yet */
    u64 length;  /* all bytes so far */
} Sha;

#ifdef HAS_SHA
static const u32 SHA_BEGIN[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const u32 SHA_K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

typedef struct {
    __m128i abef, cdgh; /* as the instructions want the eight words */
} Words;

SHA_TARGET static inline Words sha_load(const u32 *h) {
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0xB1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(h + 4)), 0x1B);
    Words words = {_mm_alignr_epi8(low, high, 8), _mm_blend_epi16(high, low, 0xF0)};
    return words;
}

SHA_TARGET static inline void sha_store(Words words, u32 *h) {
    __m128i low = _mm_shuffle_epi32(words.abef, 0x1B), high = _mm_shuffle_epi32(words.cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(low, high, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(high, low, 8));
}

/* Four words of the schedule: those of the block itself, and from the fifth step on what follows from the last 16. */
SHA_TARGET static inline __m128i sha_words(__m128i *w, const u8 *block, int step) {
    if (step < 4) {
        const __m128i swapped = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
        return w[step] =
                   _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(block + 16 * step)), swapped);
    }
    __m128i last = w[(step + 3) & 3];
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[step & 3], w[(step + 1) & 3]),
                                _mm_alignr_epi8(last, w[(step + 2) & 3], 4));
    return w[step & 3] = _mm_sha256msg2_epu32(sum, last);
}

SHA_TARGET static inline void sha_rounds(Words *s, __m128i words, int step) {
    __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)(const void *)(SHA_K + 4 * step)));
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, sum);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(sum, 0x0E));
}

SHA_TARGET static void sha_blocks(u32 *h, const u8 *p, size_t blocks) {
    Words s = sha_load(h);
    for (; blocks; blocks--, p += 64) {
        Words was = s;
        __m128i w[4];
#pragma GCC unroll 16
        for (int step = 0; step < 16; step++) sha_rounds(&s, sha_words(w, p, step), step);
        s.abef = _mm_add_epi32(s.abef, was.abef);
        s.cdgh = _mm_add_epi32(s.cdgh, was.cdgh);
    }
    sha_store(s, h);
}

/* The same for two digests, a step of each in turn. */
SHA_TARGET static void sha_two(u32 *h, const u8 *p, u32 *other, const u8 *q, size_t blocks) {
    Words s = sha_load(h), t = sha_load(other);
    for (; blocks; blocks--, p += 64, q += 64) {
        Words was = s, had = t;
        __m128i v[4], w[4];
#pragma GCC unroll 16
        for (int step = 0; step < 16; step++) {
            __m128i one = sha_words(v, p, step), two = sha_words(w, q, step);
            sha_rounds(&s, one, step);
            sha_rounds(&t, two, step);
        }
        s.abef = _mm_add_epi32(s.abef, was.abef);
        s.cdgh = _mm_add_epi32(s.cdgh, was.cdgh);
        t.abef = _mm_add_epi32(t.abef, had.abef);
        t.cdgh = _mm_add_epi32(t.cdgh, had.cdgh);
    }
    sha_store(s, h);
    sha_store(t, other);
}

static int sha_here(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

static void sha_begin(Sha *sha) {
    memcpy(sha->h, SHA_BEGIN, sizeof sha->h);
    sha->length = 0;
}

/* Takes in `p`; where its blocks stand in `p` it leaves them to the caller: *from is the first, *blocks how many. */
static void sha_head(Sha *sha, const u8 *p, size_t n, const u8 **from, size_t *blocks) {
    size_t have = (size_t)(sha->length & 63), room = have ? 64 - have : 0;
    sha->length += n;
    *from = p;
    *blocks = 0;
    if (have && n < room) {
        memcpy(sha->rest + have, p, n);
        return;
    }
    if (have) {
        memcpy(sha->rest + have, p, room);
        sha_blocks(sha->h, sha->rest, 1);
    }
    *from = p + room;
    *blocks = (n - room) / 64;
    memcpy(sha->rest, *from + *blocks * 64, (n - room) % 64);
}

static void sha_end(const Sha *sha, u8 *digest) {
    u8 tail[128] = {0};
    u32 h[8];
    size_t have = (size_t)(sha->length & 63), n = have < 56 ? 64 : 128;
    memcpy(h, sha->h, sizeof h);
    memcpy(tail, sha->rest, have);
    tail[have] = 0x80;
    for (int i = 0; i < 8; i++) tail[n - 1 - (size_t)i] = (u8)(sha->length * 8 >> 8 * i);
    sha_blocks(h, tail, n / 64);
    for (int i = 0; i < 32; i++) digest[i] = (u8)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* `whole` goes on with `p`, of which *digest is the digest by itself. */
static void sha_both(Sha *whole, const u8 *p, size_t n, u8 *digest) {
    Sha part;
    const u8 *one, *two;
    size_t blocks, others;
    sha_begin(&part);
    sha_head(whole, p, n, &one, &blocks);
    sha_head(&part, p, n, &two, &others);
    size_t both = blocks < others ? blocks : others;
    sha_two(whole->h, one, part.h, two, both);
    sha_blocks(whole->h, one + 64 * both, blocks - both);
    sha_blocks(part.h, two + 64 * both, others - both);
    sha_end(&part, digest);
}
#endif

#endif
