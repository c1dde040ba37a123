/* The hot pass over logs, for machines that have a compiler: the columns of JSONL events. The Python next to it
   (cooperation/columns.py) is the reference: every line that is in any way unusual is left to it, and tests compare
   the two. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "counts.h"
#include "json.h"
#include "tables.h"
#include "utf8.h"

#ifndef SOURCE
#define SOURCE ""
#endif

enum { TURN = 1, AGENT = 2, DECISION = 4, RESOURCES = 8, DRY_RUN = 16 };

#define MOST_DIGITS 15   /* below 2^53 and so exact as a double, as are the powers of ten up to it */
#define LONGEST_NUMBER 64
#define STEP_BYTES 16
#define MOST_STEPS 24
#define ENDS -1          /* in place of a key: the object's end */

typedef struct {
    int64_t *turns;
    int32_t *agents, *decisions; /* a decision of -1 is none */
    double *values;              /* NaN: none */
    u8 *whole;
    size_t count, room;
} Rows;

/* What stood before a value in the line before, from the end of the last one on: most likely the same in this line. */
typedef struct {
    u8 text[STEP_BYTES];
    int n, known;
} Step;

typedef struct {
    Text key; /* the resource that counts */
    Step steps[MOST_STEPS], amounts[MOST_STEPS];
    Rows rows;
    Table names, words;
    int64_t *left; /* (row, line, start, end) of each line that is left */
    size_t left_count, left_room;
    long long dry_row; /* -1: no row has one */
    int dry;
} Pass;

typedef struct {
    int seen, dry, whole;
    int64_t turn;
    Text agent, decision;
    double value;
} Event;

static u64 seed;
static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* Behind the string at `p`; *escaped says whether a backslash is in it. */
static const u8 *past_string(const u8 *p, const u8 *end, Text *raw, int *escaped) {
    if (p >= end || *p != '"') return NULL;
    raw->p = ++p;
    *escaped = 0;
    for (;;) {
        p = past_plain(p, end);
        if (p >= end) return NULL;
        if (*p == '"') break;
        if (*p != '\\' || end - p < 2) return NULL;
        *escaped = 1;
        if (p[1] == 'u') {
            if (end - p < 6 || !is_hex(p[2]) || !is_hex(p[3]) || !is_hex(p[4]) || !is_hex(p[5])) return NULL;
            p += 6;
        } else if (p[1] != 0 && strchr("\"\\/bfnrt", p[1])) {
            p += 2;
        } else {
            return NULL;
        }
    }
    raw->n = (size_t)(p - raw->p);
    return p + 1;
}

/* A string in which nothing is escaped. */
static INLINED const u8 *plain_string(const u8 *p, const u8 *end, Text *raw) {
    if (p >= end || *p != '"') return NULL;
    raw->p = ++p;
    p = past_plain(p, end);
    if (p >= end || *p != '"') return NULL;
    raw->n = (size_t)(p - raw->p);
    return p + 1;
}

/* Within a line: no newline is among it, so nothing that is read as an event goes beyond its line. */
static const u8 *past_blank(const u8 *p, const u8 *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static const u8 *line_end(const u8 *p, const u8 *end) {
    const u8 *stop = memchr(p, '\n', (size_t)(end - p));
    return stop ? stop : end;
}

static int equal(Text a, const void *b, size_t n) { return a.n == n && (!n || !memcmp(a.p, b, n)); }

/* Which of the keys that count `key` is; 0 for none of them. */
static int known_key(Text key) {
    switch (key.n) {
    case 4: return equal(key, "turn", 4) ? TURN : 0;
    case 5: return equal(key, "agent", 5) ? AGENT : 0;
    case 7: return equal(key, "dry_run", 7) ? DRY_RUN : 0;
    case 8: return equal(key, "decision", 8) ? DECISION : 0;
    case 9: return equal(key, "resources", 9) ? RESOURCES : 0;
    default: return 0;
    }
}

static int stands_at(const Step *step, const u8 *p, const u8 *end) {
    if (!step->n || end - p < STEP_BYTES) return 0;
#if defined(__SSE2__)
    __m128i here = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i there = _mm_loadu_si128((const __m128i *)(const void *)step->text);
    return !(~(u32)_mm_movemask_epi8(_mm_cmpeq_epi8(here, there)) & (((u32)1 << step->n) - 1));
#else
    return !memcmp(p, step->text, (size_t)step->n);
#endif
}

static void learn_step(Step *step, const u8 *from, const u8 *to, int known) {
    step->n = to - from <= STEP_BYTES ? (int)(to - from) : 0;
    step->known = known;
    if (step->n) memcpy(step->text, from, (size_t)step->n);
}

/* At the next value of an object, from the end of the last one, or (`first`) from its brace: *known is whether its key is
   `wanted`, or without that which of those that count it is. At the object's end *known is ENDS, and this is behind it.
   In a key nothing may be escaped. */
static const u8 *next_key(Step *step, const u8 *p, const u8 *end, int first, const Text *wanted, int *known) {
    const u8 *from = p;
    Text key;
    if (stands_at(step, p, end)) {
        *known = step->known;
        return past_blank(p + step->n, end);
    }
    p = past_blank(p, end);
    if (!first) {
        if (p < end && *p == '}') {
            *known = ENDS;
            return p + 1;
        }
        if (p >= end || *p != ',') return NULL;
        p = past_blank(p + 1, end);
    }
    if (!(p = plain_string(p, end, &key))) return NULL;
    p = past_blank(p, end);
    if (p >= end || *p != ':') return NULL;
    p = past_blank(p + 1, end);
    *known = wanted ? equal(key, wanted->p, wanted->n) : known_key(key);
    learn_step(step, from, p, *known);
    return p;
}

static const u8 *past_any(const u8 *p, const u8 *end, int depth) {
    Text text;
    int more = 1, escaped;
    if (p >= end) return NULL;
    if (*p == '"') return past_string(p, end, &text, &escaped);
    if (*p != '{' && *p != '[') return past_scalar(p, end);
    if (depth >= MAX_NESTED) return NULL;
    u8 close = *p == '{' ? '}' : ']';
    p = past_space(p + 1, end);
    if (p < end && *p == close) return p + 1;
    while (more) {
        if (close == '}') {
            if (!(p = past_string(p, end, &text, &escaped))) return NULL;
            p = past_space(p, end);
            if (p >= end || *p != ':') return NULL;
            p = past_space(p + 1, end);
        }
        if (!(p = past_any(p, end, depth + 1)) || !(p = past_comma(p, end, close, &more))) return NULL;
    }
    return p;
}

/* The double nearest to a number's text, and whether it is written as an int; 0 for Python to say. */
static int amount_of(Text text, double *value, int *whole) {
    char copy[LONGEST_NUMBER + 1];
    u64 digits = 0;
    size_t i = 0, count = 0, behind = 0;
    int negative = text.n && text.p[0] == '-', point = 0;
    for (i = (size_t)negative; i < text.n; i++) {
        u8 c = text.p[i];
        if (c == '.') point = 1;
        else if (c < '0' || c > '9') return 0;
        else digits = digits * 10 + (u64)(c - '0'), count++, behind += (size_t)point;
        if (count > MOST_DIGITS) break;
    }
    *whole = !point;
    if (count <= MOST_DIGITS) {
        /* One division of exact doubles is the nearest. An int has no negative zero. */
        *value = (double)digits / tens[behind];
        if (negative && (point || digits)) *value = -*value;
        return count > 0;
    }
    if (!point && !memchr(text.p, '.', text.n)) return 0;
    if (text.n > LONGEST_NUMBER) return 0;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    *whole = 0;
    *value = PyOS_string_to_double(copy, NULL, NULL);
    if (*value == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* Whether a string is -?digits or -?digits.digits of few digits: a number by every rule. */
static int is_number_text(Text text) {
    const u8 *p = text.p, *end = p + text.n, *from;
    if (p < end && *p == '-') p++;
    from = p;
    p = past_digits(p, end);
    if (p == from) return 0;
    if (p < end && *p == '.') {
        from = ++p;
        p = past_digits(p, end);
        if (p == from) return 0;
    }
    return p == end && text.n <= MOST_DIGITS + 1;
}

/* Behind a resource's amount, which *raw holds; NULL where it is none, or may be too large. */
static const u8 *past_amount(const u8 *p, const u8 *end, Text *raw) {
    const u8 *from = p, *digits;
    if (p < end && *p == '"') {
        p = plain_string(p, end, raw);
        return p && is_number_text(*raw) ? p : NULL;
    }
    if (p < end && *p == '-') p++;
    digits = p;
    p = past_digits(p, end);
    if (p == digits || (*digits == '0' && p - digits > 1)) return NULL;
    if (p < end && *p == '.') {
        digits = ++p;
        if ((p = past_digits(p, end)) == digits) return NULL;
    }
    raw->p = from;
    raw->n = (size_t)(p - from);
    /* No exponent, and few digits: far below what would be infinite. */
    return raw->n <= LONGEST_NUMBER && (p >= end || (*p | 32) != 'e') ? p : NULL;
}

static const u8 *read_resources(Pass *pass, const u8 *p, const u8 *end, Event *event) {
    Text raw;
    int known, given = 0;
    if (p < end && *p == 'n') return past_word(p, end, "null", 4);
    if (p >= end || *p != '{') return NULL;
    const u8 *inner = past_blank(p + 1, end);
    if (inner < end && *inner == '}') return inner + 1;
    p++;
    for (int i = 0;; i++) {
        if (!(p = next_key(pass->amounts + (i < MOST_STEPS ? i : MOST_STEPS - 1), p, end, !i, &pass->key, &known)))
            return NULL;
        if (known == ENDS) return p;
        if (!(p = past_amount(p, end, &raw))) return NULL;
        if (known && (given++ || !amount_of(raw, &event->value, &event->whole))) return NULL;
    }
}

/* An int of 64 bits as JSON writes it. */
static const u8 *read_turn(const u8 *p, const u8 *end, int64_t *turn) {
    int negative = p < end && *p == '-';
    const u8 *from = p + negative;
    int64_t value = 0;
    p = past_digits(from, end);
    if (p == from || p - from > 18 || (*from == '0' && p - from > 1)) return NULL;
    if (p < end && (*p == '.' || (*p | 32) == 'e')) return NULL;
    for (; from < p; from++) value = value * 10 + (*from - '0');
    *turn = negative ? -value : value;
    return p;
}

static const u8 *read_decision(const u8 *p, const u8 *end, Text *decision) {
    if (p < end && *p == 'n') return past_word(p, end, "null", 4);
    return plain_string(p, end, decision);
}

static const u8 *read_dry_run(const u8 *p, const u8 *end, int *dry) {
    if (p >= end) return NULL;
    if (*p == 'n') return past_word(p, end, "null", 4);
    *dry = *p == 't';
    return *dry ? past_word(p, end, "true", 4) : past_word(p, end, "false", 5);
}

static const u8 *read_value(Pass *pass, int known, const u8 *p, const u8 *end, Event *event) {
    switch (known) {
    case TURN: return read_turn(p, end, &event->turn);
    case AGENT: return plain_string(p, end, &event->agent);
    case DECISION: return read_decision(p, end, &event->decision);
    case RESOURCES: return read_resources(pass, p, end, event);
    case DRY_RUN: return read_dry_run(p, end, &event->dry);
    default: return past_any(p, p < end && (*p == '{' || *p == '[') ? line_end(p, end) : end, 1);
    }
}

/* The end of the line at `p` where that is an event that can be read here, else NULL; `end` is that of all lines. */
static const u8 *read_event(Pass *pass, const u8 *p, const u8 *end, Event *event) {
    int known;
    event->seen = 0;
    event->dry = -1;
    event->whole = 0;
    event->turn = 0;
    event->decision.p = NULL;
    event->value = Py_NAN;
    p = past_blank(p, end);
    if (p >= end || *p++ != '{') return NULL;
    for (int i = 0;; i++) {
        if (!(p = next_key(pass->steps + (i < MOST_STEPS ? i : MOST_STEPS - 1), p, end, !i, NULL, &known))) return NULL;
        if (known == ENDS) break;
        if (event->seen & known) return NULL; /* of a key that is repeated the last value counts */
        event->seen |= known;
        if (!(p = read_value(pass, known, p, end, event))) return NULL;
    }
    p = past_blank(p, end);
    return (p == end || *p == '\n') && (event->seen & (TURN | AGENT)) == (TURN | AGENT) ? p : NULL;
}

static int more_room(void **items, size_t room, size_t size) {
    void *more = PyMem_Realloc(*items, room * size);
    if (more) *items = more;
    return more != NULL;
}

static int rows_grow(Rows *rows) {
    size_t room = rows->room ? rows->room * 2 : 4096;
    if (!more_room((void **)&rows->turns, room, sizeof *rows->turns) ||
        !more_room((void **)&rows->agents, room, sizeof *rows->agents) ||
        !more_room((void **)&rows->decisions, room, sizeof *rows->decisions) ||
        !more_room((void **)&rows->values, room, sizeof *rows->values) ||
        !more_room((void **)&rows->whole, room, sizeof *rows->whole))
        return 0;
    rows->room = room;
    return 1;
}

static int add_event(Pass *pass, const Event *event) {
    Rows *rows = &pass->rows;
    int fresh;
    long agent = table_find(&pass->names, event->agent, &fresh);
    long word = event->decision.p ? table_find(&pass->words, event->decision, &fresh) : -1;
    if (agent < 0 || (event->decision.p && word < 0)) return 0;
    if (event->dry >= 0 && pass->dry_row < 0) {
        pass->dry_row = (long long)rows->count;
        pass->dry = event->dry;
    }
    rows->turns[rows->count] = event->turn;
    rows->agents[rows->count] = (int32_t)agent;
    rows->decisions[rows->count] = (int32_t)word;
    rows->values[rows->count] = event->value;
    rows->whole[rows->count++] = (u8)event->whole;
    return 1;
}

/* Room for the row of a line that Python reads. */
static int leave_line(Pass *pass, size_t line, size_t start, size_t end) {
    Rows *rows = &pass->rows;
    if (pass->left_count == pass->left_room) {
        size_t room = pass->left_room ? pass->left_room * 2 : 64;
        if (!more_room((void **)&pass->left, room, 4 * sizeof *pass->left)) return 0;
        pass->left_room = room;
    }
    int64_t *left = pass->left + 4 * pass->left_count++;
    left[0] = (int64_t)rows->count;
    left[1] = (int64_t)line;
    left[2] = (int64_t)start;
    left[3] = (int64_t)end;
    rows->turns[rows->count] = 0;
    rows->agents[rows->count] = 0;
    rows->decisions[rows->count] = -1;
    rows->values[rows->count] = Py_NAN;
    rows->whole[rows->count++] = 0;
    return 1;
}

/* 0 with an exception or without memory. */
static int read_lines(Pass *pass, const u8 *data, size_t n) {
    int all_utf8 = is_utf8(data, data + n), done = 1;
    size_t line = 0;
    for (const u8 *p = data, *end = data + n; p < end && done; line++) {
        const u8 *stop = all_utf8 || is_utf8(p, line_end(p, end)) ? p : NULL;
        Event event;
        if (pass->rows.count == pass->rows.room && !rows_grow(&pass->rows)) return 0;
        if (stop && (stop = read_event(pass, p, end, &event))) {
            done = add_event(pass, &event);
        } else {
            stop = line_end(p, end);
            /* A blank line is none. */
            if (past_blank(p, stop) != stop) done = leave_line(pass, line, (size_t)(p - data), (size_t)(stop - data));
        }
        p = stop + 1;
    }
    return done;
}

static PyObject *texts_of(const Table *table) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < table->count; i++) {
        Text key = table->entries[i].key;
        PyObject *text = PyUnicode_FromStringAndSize((const char *)key.p, (Py_ssize_t)key.n);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *columns_as_objects(const Pass *pass) {
    const Rows *rows = &pass->rows;
    Py_ssize_t n = (Py_ssize_t)rows->count;
    PyObject *names = texts_of(&pass->names), *words = names ? texts_of(&pass->words) : NULL;
    if (!words) {
        Py_XDECREF(names);
        return NULL;
    }
    return Py_BuildValue("(y#y#y#y#y#NNLiy#)", (const char *)rows->turns, n * (Py_ssize_t)sizeof *rows->turns,
                         (const char *)rows->agents, n * (Py_ssize_t)sizeof *rows->agents, (const char *)rows->decisions,
                         n * (Py_ssize_t)sizeof *rows->decisions, (const char *)rows->values,
                         n * (Py_ssize_t)sizeof *rows->values, (const char *)rows->whole, n, names, words, pass->dry_row,
                         pass->dry, pass->left ? (const char *)pass->left : "",
                         (Py_ssize_t)(pass->left_count * 4 * sizeof *pass->left));
}

static PyObject *read_log(PyObject *module, PyObject *args) {
    Py_buffer view, key;
    PyObject *found = NULL;
    Pass pass;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*", &view, &key)) return NULL;
    memset(&pass, 0, sizeof pass);
    pass.key.p = key.buf;
    pass.key.n = (size_t)key.len;
    pass.names.seed = pass.words.seed = seed;
    pass.dry_row = -1;
    /* Room for one row at least: nothing is built of a null pointer. */
    if (rows_grow(&pass.rows) && read_lines(&pass, view.buf, (size_t)view.len)) found = columns_as_objects(&pass);
    if (!found && !PyErr_Occurred()) PyErr_NoMemory();
    PyMem_Free(pass.rows.turns);
    PyMem_Free(pass.rows.agents);
    PyMem_Free(pass.rows.decisions);
    PyMem_Free(pass.rows.values);
    PyMem_Free(pass.rows.whole);
    table_free(&pass.names);
    table_free(&pass.words);
    PyMem_Free(pass.left);
    PyBuffer_Release(&view);
    PyBuffer_Release(&key);
    return found;
}

/* count_log(turns, agents, decisions, values, whole, kinds, agents' number): the columns of read_log; None where
   Python has to count. */
static PyObject *count_log(PyObject *module, PyObject *args) {
    Py_buffer part[6];
    Py_ssize_t many;
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*n", part, part + 1, part + 2, part + 3, part + 4, part + 5, &many)) return NULL;
    Counted of = {part[0].buf, part[1].buf, part[2].buf, part[3].buf, part[4].buf, part[5].buf,
                  (size_t)part[4].len, (size_t)part[5].len - 1, (size_t)many};
    if (part[5].len < 1 || many < 0 || (size_t)part[0].len != of.rows * 8 || (size_t)part[1].len != of.rows * 4 ||
        (size_t)part[2].len != of.rows * 4 || (size_t)part[3].len != of.rows * 8)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    else
        found = counted(&of);
    for (int i = 0; i < 6; i++) PyBuffer_Release(part + i);
    return found;
}

static PyMethodDef methods[] = {
    {"count_log", count_log, METH_VARARGS, "See _log.pyi."},
    {"read_log", read_log, METH_VARARGS, "read_log(data, resource_key)"},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    PyObject *text = PyUnicode_FromString("evalq");
    if (!text) return -1;
    seed = (u64)PyObject_Hash(text); /* another in each process */
    Py_DECREF(text);
    return PyModule_AddStringConstant(module, "SOURCE", SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_log", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__log(void) { return PyModuleDef_Init(&definition); }
