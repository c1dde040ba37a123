/* Finding where the fields and records of a CSV end, 64 bytes at a time.

   A byte is inside quotes when an odd number of quotes stands up to it (RFC 4180: an escaped quote is two of them), so
   one exclusive-or over the bits of a block tells the commas and newlines that end something from those that are text.
   The same bits show each quote that stands where none may, so broken quoting is found, never misread. */

#ifndef EVALQ_CSV_H
#define EVALQ_CSV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_WIDE 1
#define WIDE __attribute__((target("avx2,pclmul,popcnt")))
#define INLINED __attribute__((always_inline)) inline
#else
#define INLINED inline
#endif

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

typedef struct {
    const u8 *p;
    size_t n;
} Text;

typedef struct {
    u64 quotes, commas, newlines, returns;
} Masks;

typedef struct {
    const u8 *data;
    size_t length;
    size_t block;      /* offset of the block at hand */
    size_t next;       /* offset of the one behind it */
    u64 ends;          /* commas and newlines of the block that end a field and were not taken yet */
    u64 newlines;      /* all newlines of the block */
    size_t lines;      /* newlines before the block */
    u64 inside;        /* all ones where the block behind begins inside quotes */
    u64 may_open;      /* bit 0: the byte before the block behind lets a quote open a field */
    u64 closed;        /* bit 0: that byte closed a quoted field */
    u64 returned;      /* bit 0: that byte was a carriage return outside quotes */
    size_t bad;        /* the first quote that is illegal, or `length` */
    int bad_opens;     /* whether that one opens */
    int lone_return;   /* a carriage return outside quotes without its newline was met */
    int wide;          /* whether the processor can do what is marked WIDE */
} Scan;

static int lowest_bit(u64 bits) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(bits);
#else
    int at = 0;
    while (!(bits & 1)) { bits >>= 1; at++; }
    return at;
#endif
}

static int count_bits(u64 bits) {
    bits -= (bits >> 1) & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + ((bits >> 2) & 0x3333333333333333u);
    return (int)((((bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu) * 0x0101010101010101u) >> 56);
}

#if defined(__SSE2__)
static INLINED u64 equal_to(const __m128i *v, char byte) {
    __m128i wanted = _mm_set1_epi8(byte);
    u64 bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= (u64)(u32)_mm_movemask_epi8(_mm_cmpeq_epi8(v[i], wanted)) << (16 * i);
    return bits;
}

static INLINED Masks masks_of(const u8 *p) {
    __m128i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
    Masks m = {equal_to(v, '"'), equal_to(v, ','), equal_to(v, '\n'), equal_to(v, '\r')};
    return m;
}
#else
static INLINED Masks masks_of(const u8 *p) {
    Masks m = {0, 0, 0, 0};
    for (int i = 0; i < 64; i++) {
        u64 bit = (u64)1 << i;
        if (p[i] == '"') m.quotes |= bit;
        else if (p[i] == ',') m.commas |= bit;
        else if (p[i] == '\n') m.newlines |= bit;
        else if (p[i] == '\r') m.returns |= bit;
    }
    return m;
}
#endif

/* Each bit the exclusive-or of all up to it. */
static INLINED u64 parity_of(u64 bits) {
    for (int step = 1; step < 64; step <<= 1) bits ^= bits << step;
    return bits;
}

#ifdef HAS_WIDE
WIDE static INLINED u64 widely_equal_to(const __m256i *v, char byte) {
    __m256i wanted = _mm256_set1_epi8(byte);
    return (u64)(u32)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v[0], wanted)) |
           (u64)(u32)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v[1], wanted)) << 32;
}

WIDE static INLINED Masks wide_masks_of(const u8 *p) {
    __m256i v[2];
    for (int i = 0; i < 2; i++) v[i] = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * i));
    Masks m = {widely_equal_to(v, '"'), widely_equal_to(v, ','), widely_equal_to(v, '\n'), widely_equal_to(v, '\r')};
    return m;
}

static int wide_here(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("popcnt");
}

/* The product without carries with all ones. */
WIDE static INLINED u64 wide_parity_of(u64 bits) {
    return (u64)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_set_epi64x(0, (long long)bits), _mm_set1_epi8(-1), 0));
}
#endif

/* How many newlines are in `n` bytes. */
static size_t newlines_plainly(const u8 *p, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += p[i] == '\n';
    return count;
}

#ifdef HAS_WIDE
WIDE static size_t newlines_widely(const u8 *p, size_t n) {
    size_t count = 0, at = 0;
    for (; n - at >= 64; at += 64) {
        __m256i v[2];
        for (int i = 0; i < 2; i++) v[i] = _mm256_loadu_si256((const __m256i *)(const void *)(p + at + 32 * i));
        count += (size_t)__builtin_popcountll(widely_equal_to(v, '\n'));
    }
    return count + newlines_plainly(p + at, n - at);
}
#endif

static void scan_begin(Scan *s, const u8 *data, size_t length) {
    memset(s, 0, sizeof *s);
#ifdef HAS_WIDE
    s->wide = wide_here();
#endif
    s->data = data;
    s->length = s->bad = length;
    s->may_open = 1;
}

/* The next block; 0 at the end of the data. */
static INLINED int scan_step(Scan *s, Masks (*masks)(const u8 *), u64 (*parities)(u64)) {
    if (s->next >= s->length) return 0;
    if (s->newlines) s->lines += (size_t)count_bits(s->newlines);
    s->block = s->next;
    size_t left = s->length - s->block;
    u8 tail[64];
    const u8 *p = s->data + s->block;
    u64 valid = ~(u64)0;
    if (left < 64) {
        memset(tail, 0, sizeof tail);
        memcpy(tail, p, left);
        p = tail;
        valid = ((u64)1 << left) - 1;
    }
    Masks m = masks(p);
    u64 parity = parities(m.quotes) ^ s->inside;
    u64 opening = m.quotes & parity, closing = m.quotes & ~parity, returns = m.returns & ~parity;
    u64 plain = m.quotes | m.commas | m.newlines;
    u64 bad_open = opening & ~(plain << 1 | s->may_open);
    u64 after_close = (closing << 1 | s->closed) & valid;
    u64 bad_close = after_close & ~(plain | m.returns);
    if ((bad_open | bad_close) && s->bad == s->length) {
        /* A closing quote stands before the byte that shows it is illegal. */
        size_t open_at = bad_open ? s->block + (size_t)lowest_bit(bad_open) : s->length;
        size_t close_at = bad_close ? s->block + (size_t)lowest_bit(bad_close) - 1 : s->length;
        s->bad_opens = open_at < close_at;
        s->bad = s->bad_opens ? open_at : close_at;
    }
    if ((returns << 1 | s->returned) & valid & ~m.newlines) s->lone_return = 1;
    s->inside = 0 - (parity >> 63);
    s->may_open = plain >> 63;
    s->closed = closing >> 63;
    s->returned = left < 64 ? (u64)(left && (returns >> (left - 1) & 1)) : returns >> 63;
    s->ends = (m.commas | m.newlines) & ~parity;
    s->newlines = m.newlines;
    s->next = s->block + (left < 64 ? left : 64);
    return 1;
}

#ifdef HAS_WIDE
WIDE static int wide_scan_block(Scan *s) { return scan_step(s, wide_masks_of, wide_parity_of); }
#endif

static int scan_block(Scan *s) {
#ifdef HAS_WIDE
    if (s->wide) return wide_scan_block(s);
#endif
    return scan_step(s, masks_of, parity_of);
}

/* The offset of the next comma or newline outside quotes, or the data's length. */
static size_t scan_next(Scan *s) {
    while (!s->ends)
        if (!scan_block(s)) return s->length;
    size_t at = s->block + (size_t)lowest_bit(s->ends);
    s->ends &= s->ends - 1;
    return at;
}

/* Newlines up to and with offset `at` of the block at hand. */
static size_t scan_lines(const Scan *s, size_t at) {
    return s->lines + (size_t)count_bits(s->newlines & (~(u64)0 >> (63 - (at - s->block))));
}

#endif
