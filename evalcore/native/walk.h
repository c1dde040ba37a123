/* Where a value that a check missed stands instead: the rules of planagent's score.py, as `answer.h` has the others. */

#ifndef EVALQ_WALK_H
#define EVALQ_WALK_H

#include "answer.h"

#define MAX_WALKED 4900 /* below _MAX_VALUES of score.py, which never matters then */
#define MAX_STEPS 12
#define MAX_FOUND 32
#define PATH_ROOM 1024

typedef struct {
    int kind;
    Text path;
} Found;

typedef struct {
    Arena *arena;
    const Checklist *list;
    u64 sought; /* the checks that are missed and may stand elsewhere, by bit */
    Found found[MAX_FOUND];
    int count, walked;
    u8 path[PATH_ROOM];
} Walk;

/* search._may_stand_in */
static int may_stand(const Answer *a, const Check *check) {
    if (check->kind == SWITCH) {
        for (int i = 0; i < a->count; i++)
            if (a->values[i].names_switch) return 0;
        return 1;
    }
    return check->kind == MESSAGE || !check->plain || contains_quoted(a->raw, check->want);
}

static int note(Walk *w, int kind, Text path) {
    for (int i = 0; i < w->count; i++)
        if (w->found[i].kind == kind && same(w->found[i].path, path)) return 1;
    if (w->count == MAX_FOUND || !arena_copy(w->arena, &path)) return 0;
    w->found[w->count].kind = kind;
    w->found[w->count++].path = path;
    return 1;
}

static int see_text(Walk *w, String string, Text path) {
    Text text, plain = {NULL, 0};
    if (!text_of(w->arena, string, &text)) return 0;
    if (!path.n) path.p = (const u8 *)"uiValue", path.n = 7;
    for (int i = 0; i < w->list->count; i++) {
        const Check *check = &w->list->checks[i];
        if (!(w->sought >> i & 1) || check->kind == SWITCH) continue;
        if (check->kind != MESSAGE) {
            if (same(text, check->want) && !note(w, check->kind, path)) return 0;
            continue;
        }
        if (!plain.p) {
            u8 *room = arena_take(w->arena, text.n + 1);
            if (!room) return 0;
            plain = without_space(text, room);
        }
        if (contains(plain, check->want) && !note(w, MESSAGE, path)) return 0;
    }
    return 1;
}

static int see_switch(Walk *w, int truth, Text path) {
    for (int i = 0; i < w->list->count; i++) {
        const Check *check = &w->list->checks[i];
        if ((w->sought >> i & 1) && check->kind == SWITCH && truth == is(check->want, "true") &&
            !note(w, SWITCH, path))
            return 0;
    }
    return 1;
}

/* The path with `more` behind it, where it has room. */
static int longer(Walk *w, Text *path, const char *between, Text more) {
    size_t n = strlen(between);
    if (path->n + n + more.n > PATH_ROOM) return 0;
    memcpy(w->path + path->n, between, n);
    if (more.n) memcpy(w->path + path->n + n, more.p, more.n);
    path->p = w->path;
    path->n += n + more.n;
    return 1;
}

static const u8 *walk_value(Walk *w, const u8 *p, const u8 *end, size_t path, int depth);

static const u8 *walk_object(Walk *w, const u8 *p, const u8 *end, size_t length, int depth) {
    Text keys[MAX_KEYS];
    int count = 0, empty, more = 1;
    String key, text;
    if (depth > MAX_STEPS || !(p = past_open(p, end, '}', &empty))) return NULL;
    while (!empty && more) {
        Text path = {w->path, length};
        if (!(p = read_key(p, end, &key)) || !new_key(keys, &count, key) || p >= end) return NULL;
        /* A path that is empty stands for "uiValue": an empty key must not be taken for one. */
        if (!key.raw.n || ++w->walked > MAX_WALKED || !longer(w, &path, length ? "." : "", key.raw)) return NULL;
        if (*p == '"') {
            if (!(p = read_string(p, end, &text)) || !see_text(w, text, path)) return NULL;
        } else if (*p == '{' || *p == '[') {
            p = walk_value(w, p, end, path.n, depth + 1);
        } else {
            int truth = *p == 't' ? 1 : *p == 'f' ? 0 : -1;
            if (truth >= 0 && is(key.raw, "multiSelectAllowYn") && !see_switch(w, truth, path)) return NULL;
            p = past_scalar(p, end);
        }
        if (!p || !(p = past_comma(p, end, '}', &more))) return NULL;
    }
    return p;
}

/* search._Walk._any; the path is the first `length` bytes of w->path. */
static const u8 *walk_value(Walk *w, const u8 *p, const u8 *end, size_t length, int depth) {
    int empty, more = 1;
    String text;
    Text path = {w->path, length}, none = {NULL, 0};
    if (p >= end) return NULL;
    if (*p == '"') return (p = read_string(p, end, &text)) && see_text(w, text, path) ? p : NULL;
    if (*p == '{') return walk_object(w, p, end, length, depth);
    if (*p != '[') return past_scalar(p, end);
    if (depth > MAX_STEPS || !longer(w, &path, "[*]", none) || !(p = past_open(p, end, ']', &empty))) return NULL;
    while (!empty && more) {
        if (++w->walked > MAX_WALKED || !(p = walk_value(w, p, end, path.n, depth + 1))) return NULL;
        if (!(p = past_comma(p, end, ']', &more))) return NULL;
    }
    return p;
}

static const u8 *walk_item(Walk *w, const u8 *p, const u8 *end) {
    int empty, more = 1;
    String key;
    Text path = {w->path, 0}, none = {NULL, 0};
    if (*p != '{') return longer(w, &path, "dataUIList[*]", none) ? walk_value(w, p, end, path.n, 1) : NULL;
    if (!(p = past_open(p, end, '}', &empty))) return NULL;
    while (!empty && more) {
        if (!(p = read_key(p, end, &key))) return NULL;
        path.n = 0;
        if (!is(key.raw, "uiValue") && !longer(w, &path, "dataUIList[*].", key.raw)) return NULL;
        if (!(p = walk_value(w, p, end, path.n, 1)) || !(p = past_comma(p, end, '}', &more))) return NULL;
    }
    return p;
}

/* search.paths_of_missed: where the values of the checks that are not in `passed` stand instead. */
static int walk(Walk *w, Arena *arena, const Answer *a, const Checklist *list, u64 passed) {
    const u8 *p = a->items.p, *end = a->items.p + a->items.n;
    int empty, more = 1;
    w->arena = arena;
    w->list = list;
    w->sought = 0;
    w->count = w->walked = 0;
    if (!a->any_item) return 1;
    for (int i = 0; i < list->count; i++)
        if (!(passed >> i & 1) && may_stand(a, &list->checks[i])) w->sought |= (u64)1 << i;
    if (!w->sought) return 1;
    if (!(p = past_open(p, end, ']', &empty))) return 0;
    while (!empty && more)
        if (p >= end || !(p = walk_item(w, p, end)) || !(p = past_comma(p, end, ']', &more))) return 0;
    return 1;
}

#endif
