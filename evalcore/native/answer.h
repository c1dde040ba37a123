/* What a checklist asks of one answer, found in its JSON: the rules of planagent's record.py and score.py.

   Functions give 0 (or NULL) for an answer that only Python should read; nothing was changed then. */

#ifndef EVALQ_ANSWER_H
#define EVALQ_ANSWER_H

#include "json.h"
#include "tables.h"
#include "text.h"

enum { MESSAGE, FORM_TYPE, SWITCH, ACTION_TYPE, DATA_KEY, BUTTON_KEY, KINDS }; /* in the order of params.KINDS */

#define MAX_CHECKS 60
#define MAX_VALUES 60  /* uiValue objects of one answer */
#define MAX_KEYS 48    /* of one object that is looked into */

typedef struct {
    int kind, plain; /* plain: no writer of JSON escapes anything in it */
    Text want;       /* of a message without white space, of a switch "true" or "false" */
} Check;

typedef struct {
    Check *checks;
    int count;
} Checklist;

typedef struct {
    Text texts[KINDS];
    int has[KINDS];     /* whether the text is there */
    int truth;          /* the switch: 1 true, 0 false, -1 something else or nothing */
    int names_switch;
} Value;

typedef struct {
    Text raw;     /* the whole JSON */
    String message, error;
    Text items;   /* from "[" to "]", or empty */
    Text seconds; /* the number's text, or empty */
    int error_stands;
    int any_item;
    Value values[MAX_VALUES];
    int count;
    Text plain;   /* the message without white space, once it is asked for */
    int has_plain;
} Answer;

/* The text of `string` without its escapes. */
static int text_of(Arena *arena, String string, Text *out) {
    *out = string.raw;
    if (!string.escaped) return 1;
    u8 *room = arena_take(arena, string.raw.n), *end;
    if (!room || !(end = unescaped(string.raw, room))) return 0;
    out->p = room;
    out->n = (size_t)(end - room);
    return 1;
}

/* Whether an object that has `keys` already may have this one: once, and without escapes. */
static int new_key(Text *keys, int *count, String key) {
    if (key.escaped || *count == MAX_KEYS) return 0;
    for (int i = 0; i < *count; i++)
        if (same(keys[i], key.raw)) return 0;
    keys[(*count)++] = key.raw;
    return 1;
}

/* The first non-space behind an opening bracket; *empty where it closes at once, and `p` is behind it then. */
static const u8 *past_open(const u8 *p, const u8 *end, u8 close, int *empty) {
    p = past_space(p + 1, end);
    if (p >= end) return ended();
    *empty = *p == close;
    return *empty ? p + 1 : p;
}

/* The answer's four keys; the rest is only checked to be JSON. `cut_off` is set where that ends too early. */
static int read_answer(Text raw, Answer *a) {
    const u8 *p = past_space(raw.p, raw.p + raw.n), *end = raw.p + raw.n, *from;
    int empty, more = 1, has_message = 0, has_items = 0, has_seconds = 0, has_error = 0;
    String key;
    memset(a, 0, offsetof(Answer, values));
    a->count = a->has_plain = 0;
    a->plain.p = NULL;
    a->plain.n = 0;
    a->raw = raw;
    cut_off = p >= end;
    if (p >= end || *p != '{' || !(p = past_open(p, end, '}', &empty))) return 0;
    while (!empty && more) {
        if (!(p = read_key(p, end, &key)) || key.escaped) return 0;
        from = p;
        if (p >= end) {
            cut_off = 1;
            return 0;
        }
        if (is(key.raw, "assistantMessage")) {
            if (has_message++) return 0;
            p = *p == '"' ? read_string(p, end, &a->message) : past_value(p, end, 1);
        } else if (is(key.raw, "dataUIList")) {
            if (has_items++) return 0;
            p = past_value(p, end, 1);
            if (p && *from == '[') a->items.p = from, a->items.n = (size_t)(p - from);
        } else if (is(key.raw, "responseTimeSec")) {
            if (has_seconds++) return 0;
            p = past_value(p, end, 1);
            if (p && (*from == '-' || (*from >= '0' && *from <= '9')))
                a->seconds.p = from, a->seconds.n = (size_t)(p - from);
        } else if (is(key.raw, "error")) {
            if (has_error++) return 0;
            p = past_value(p, end, 1);
            if (p) {
                a->error.raw.p = from;
                a->error.raw.n = (size_t)(p - from);
                a->error_stands = !is(a->error.raw, "null") && !is(a->error.raw, "false") && !is(a->error.raw, "\"\"\"\"");
            }
        } else {
            p = past_value(p, end, 1);
        }
        if (!p || !(p = past_comma(p, end, '}', &more))) return 0;
    }
    return past_space(p, end) == end;
}

/* The object "value" in a uiValue: its dataKey and buttonKey. */
static const u8 *read_inner(Arena *arena, const u8 *p, const u8 *end, Value *value) {
    Text keys[MAX_KEYS];
    int count = 0, empty, more = 1;
    String key, text;
    if (!(p = past_open(p, end, '}', &empty))) return NULL;
    while (!empty && more) {
        if (!(p = read_key(p, end, &key)) || !new_key(keys, &count, key) || p >= end) return NULL;
        int kind = is(key.raw, "dataKey") ? DATA_KEY : is(key.raw, "buttonKey") ? BUTTON_KEY : -1;
        if (kind >= 0 && *p == '"') {
            if (!(p = read_string(p, end, &text)) || !text_of(arena, text, &value->texts[kind])) return NULL;
            value->has[kind] = 1;
        } else {
            p = past_value(p, end, 1);
        }
        if (!p || !(p = past_comma(p, end, '}', &more))) return NULL;
    }
    return p;
}

static const u8 *read_ui(Arena *arena, const u8 *p, const u8 *end, Value *value) {
    Text keys[MAX_KEYS];
    int count = 0, empty, more = 1;
    String key, text;
    memset(value, 0, sizeof *value);
    value->truth = -1;
    if (!(p = past_open(p, end, '}', &empty))) return NULL;
    while (!empty && more) {
        if (!(p = read_key(p, end, &key)) || !new_key(keys, &count, key) || p >= end) return NULL;
        int kind = is(key.raw, "formType") ? FORM_TYPE : is(key.raw, "actionType") ? ACTION_TYPE : -1;
        if (kind >= 0 && *p == '"') {
            if (!(p = read_string(p, end, &text)) || !text_of(arena, text, &value->texts[kind])) return NULL;
            value->has[kind] = 1;
        } else if (is(key.raw, "multiSelectAllowYn")) {
            value->names_switch = 1;
            value->truth = *p == 't' ? 1 : *p == 'f' ? 0 : -1;
            p = past_value(p, end, 1);
        } else if (is(key.raw, "value") && *p == '{') {
            p = read_inner(arena, p, end, value);
        } else {
            p = past_value(p, end, 1);
        }
        if (!p || !(p = past_comma(p, end, '}', &more))) return NULL;
    }
    return p;
}

static const u8 *read_item(Arena *arena, const u8 *p, const u8 *end, Answer *a) {
    Text keys[MAX_KEYS];
    int count = 0, empty, more = 1;
    String key;
    if (*p != '{') return past_value(p, end, 1);
    if (!(p = past_open(p, end, '}', &empty))) return NULL;
    while (!empty && more) {
        if (!(p = read_key(p, end, &key)) || !new_key(keys, &count, key) || p >= end) return NULL;
        if (is(key.raw, "uiValue") && *p == '{') {
            if (a->count == MAX_VALUES) return NULL;
            p = read_ui(arena, p, end, &a->values[a->count++]);
        } else {
            p = past_value(p, end, 1);
        }
        if (!p || !(p = past_comma(p, end, '}', &more))) return NULL;
    }
    return p;
}

/* The uiValue objects among the items. */
static int read_items(Arena *arena, Answer *a) {
    const u8 *p = a->items.p, *end = a->items.p + a->items.n;
    int empty, more = 1;
    if (!a->items.n) return 1;
    if (!(p = past_open(p, end, ']', &empty))) return 0;
    a->any_item = !empty;
    while (!empty && more)
        if (p >= end || !(p = read_item(arena, p, end, a)) || !(p = past_comma(p, end, ']', &more))) return 0;
    return 1;
}

static int plain_message(Arena *arena, Answer *a) {
    Text text;
    if (a->has_plain) return 1;
    a->has_plain = 1;
    if (!a->message.raw.n) return 1;
    u8 *room = arena_take(arena, a->message.raw.n);
    if (!room || !text_of(arena, a->message, &text)) return 0;
    a->plain = without_space(text, room);
    return 1;
}

static int holds(const Answer *a, const Check *check) {
    for (int i = 0; i < a->count; i++) {
        const Value *value = &a->values[i];
        if (check->kind == SWITCH ? value->truth == is(check->want, "true")
                                  : value->has[check->kind] && same(value->texts[check->kind], check->want))
            return 1;
    }
    return 0;
}

/* Checklist.judge: the passed checks by bit. */
static int judge(Arena *arena, Answer *a, const Checklist *list, u64 *passed) {
    *passed = 0;
    for (int i = 0; i < list->count; i++) {
        const Check *check = &list->checks[i];
        if (check->kind == MESSAGE && !plain_message(arena, a)) return 0;
        if (check->kind == MESSAGE ? contains(a->plain, check->want) : holds(a, check)) *passed |= (u64)1 << i;
    }
    return 1;
}

/* Whether every decoder takes the JSON in `raw`, which RFC 8259 allows: without halves of surrogate pairs, and without
   numbers beyond a double's range. Where not, Python reads integers as floats. */
static int is_tame(Text raw) {
    size_t digits = 0;
    for (size_t i = 0; i < raw.n; i++) {
        u8 c = raw.p[i];
        if (c >= '0' && c <= '9') {
            if (++digits > 18) return 0;
            continue;
        }
        if ((c | 32) == 'e' && digits) return 0;
        if (c == '\\' && i + 2 < raw.n && raw.p[i + 1] == 'u' && (raw.p[i + 2] | 32) == 'd') return 0;
        digits = 0;
    }
    return 1;
}

static int compare_texts(const void *one, const void *other) {
    const Text *a = one, *b = other;
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->p, b->p, n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Answer.forms: the distinct form types, sorted and joined by "+". */
static int forms_of(Arena *arena, const Answer *a, Text *out) {
    Text forms[MAX_VALUES];
    size_t room = 1;
    int count = 0;
    for (int i = 0; i < a->count; i++)
        if (a->values[i].has[FORM_TYPE]) {
            forms[count] = a->values[i].texts[FORM_TYPE];
            room += forms[count++].n + 1;
        }
    out->p = count ? forms[0].p : (const u8 *)"";
    out->n = count ? forms[0].n : 0;
    if (count < 2) return 1;
    qsort(forms, (size_t)count, sizeof *forms, compare_texts);
    u8 *at = arena_take(arena, room);
    if (!at) return 0;
    out->p = at;
    for (int i = 0; i < count; i++) {
        if (i && same(forms[i], forms[i - 1])) continue;
        if (i) *at++ = '+';
        if (forms[i].n) memcpy(at, forms[i].p, forms[i].n);
        at += forms[i].n;
    }
    out->n = (size_t)(at - out->p);
    return 1;
}

#endif
