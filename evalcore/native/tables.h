/* Memory and lookups of one call: blocks that are freed together, and tables from bytes to small numbers. */

#ifndef EVALQ_TABLES_H
#define EVALQ_TABLES_H

#include "csv.h"

#include <stdlib.h>

typedef struct Block {
    struct Block *older;
    size_t room, used;
} Block;

typedef struct {
    Block *last;
} Arena;

/* NULL when there is no memory. */
static u8 *arena_take(Arena *arena, size_t n) {
    Block *last = arena->last;
    n = (n + 7) & ~(size_t)7; /* so that structures may stand in it */
    if (!last || last->room - last->used < n) {
        size_t room = n > (1 << 16) ? n : (1 << 16);
        Block *made = malloc(sizeof *made + room);
        if (!made) return NULL;
        made->older = last;
        made->room = room;
        made->used = 0;
        arena->last = last = made;
    }
    u8 *at = (u8 *)(last + 1) + last->used;
    last->used += n;
    return at;
}

static void arena_free(Arena *arena) {
    while (arena->last) {
        Block *older = arena->last->older;
        free(arena->last);
        arena->last = older;
    }
}

/* Everything in it may be overwritten; one block stays, so that rows don't pay for memory each. */
static void arena_reset(Arena *arena) {
    if (!arena->last) return;
    while (arena->last->older) {
        Block *older = arena->last->older;
        free(arena->last);
        arena->last = older;
    }
    arena->last->used = 0;
}

static int arena_copy(Arena *arena, Text *text) {
    u8 *copy = arena_take(arena, text->n ? text->n : 1);
    if (!copy) return 0;
    if (text->n) memcpy(copy, text->p, text->n);
    text->p = copy;
    return 1;
}

typedef struct {
    Text key;
    u64 hash;
} Entry;

typedef struct {
    Entry *entries; /* in the order they were met */
    u32 *slots;     /* 1 + the number of an entry, or 0 */
    size_t count, room;
    u64 seed;       /* of this process, so that no input can be made whose keys all fall on one slot */
} Table;

static u64 mixed(u64 h, u64 word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static u64 word_at(const u8 *p) {
    u64 word;
    memcpy(&word, p, 8);
    return word;
}

static u64 half_at(const u8 *p) {
    u32 half;
    memcpy(&half, p, 4);
    return half;
}

/* Up to eight bytes as a number: other bytes of the same length are another one. */
static u64 few_bytes(const u8 *p, size_t n) {
    if (n >= 4) return half_at(p) | half_at(p + n - 4) << 32;
    return n ? (u64)p[0] | (u64)p[n / 2] << 8 | (u64)p[n - 1] << 16 : 0;
}

static u64 hash_of(Text key, u64 seed) {
    u64 h = mixed(seed, key.n);
    const u8 *p = key.p;
    size_t left = key.n;
    for (; left > 8; left -= 8, p += 8) h = mixed(h, word_at(p));
    h = mixed(h, few_bytes(p, left));
    return mixed(h, h >> 32);
}

static int same_text(Text a, Text b) {
    if (a.n != b.n) return 0;
    if (a.n > 16) return !memcmp(a.p, b.p, a.n);
    if (a.n < 8) return few_bytes(a.p, a.n) == few_bytes(b.p, b.n);
    return word_at(a.p) == word_at(b.p) && word_at(a.p + a.n - 8) == word_at(b.p + b.n - 8);
}

static void table_free(Table *table) {
    free(table->entries);
    free(table->slots);
}

static int table_grow(Table *table) {
    size_t room = table->room ? table->room * 2 : 64;
    Entry *entries = realloc(table->entries, room * sizeof *entries);
    if (!entries) return 0;
    table->entries = entries;
    u32 *slots = calloc(room * 2, sizeof *slots);
    if (!slots) return 0;
    for (size_t i = 0; i < table->count; i++) {
        size_t at = (size_t)entries[i].hash & (room * 2 - 1);
        while (slots[at]) at = (at + 1) & (room * 2 - 1);
        slots[at] = (u32)i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->room = room;
    return 1;
}

/* The number of `key`, which is kept as it is where it is new (*fresh): its bytes have to stay. -1 without memory. */
static long table_find(Table *table, Text key, int *fresh) {
    if (table->count == table->room && !table_grow(table)) return -1;
    u64 hash = hash_of(key, table->seed);
    size_t mask = table->room * 2 - 1, at = (size_t)hash & mask;
    for (; table->slots[at]; at = (at + 1) & mask) {
        Entry *entry = &table->entries[table->slots[at] - 1];
        if (entry->hash == hash && same_text(entry->key, key)) {
            *fresh = 0;
            return (long)table->slots[at] - 1;
        }
    }
    *fresh = 1;
    table->entries[table->count].key = key;
    table->entries[table->count].hash = hash;
    table->slots[at] = (u32)++table->count;
    return (long)table->count - 1;
}

#endif
