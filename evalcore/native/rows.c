/* The hot passes over rows, for machines that have a compiler: where a CSV's records end, and what a plan agent's rows
   say. The Python next to each is the reference: whatever is unusual is left to it, and tests compare the two. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "answer.h"
#include "utf8.h"

#include <stdio.h>

#ifndef SOURCE
#define SOURCE ""
#endif

enum { QUERY, ROUND, EXPECTED, CATEGORY, ERROR_TEXT, RAW_JSON, LLM_SCORE, LLM_STATE, LLM_COMMENT, READ };
enum { JUDGED, EMPTY, UNPARSABLE, UNSCORED };

#define MAX_WIDTH 4096
#define MAX_BANDS 64
#define MAX_BYTES (1 << 14) /* as queries.py has it */

typedef struct {
    Text before, after, rest;    /* of its rows' lines, around the seconds; and the end of a packed row */
    PyObject *seconds;           /* the list of its rows' times */
    u64 counts[MAX_BANDS + 2];   /* rows by band of their time; those without a time last */
} Kind;

typedef struct {
    Text text;
    int quoted, doubled; /* doubled: a quote in it is written twice */
} Field;

typedef struct {
    int none;  /* no check can be read */
    int hard;  /* only Python judges it */
    Checklist list;
} Expected;

typedef struct {
    Scan scan;
    long long line;      /* of the scan's first byte */
    int width;
    int column[READ];
    Field *fields;       /* of the row at hand, `width` of them */
    PyObject *checks;    /* a function from an expected result to its checks */
    PyObject *kind;      /* one from a group to its (before, after, rest, seconds) */
    PyObject *other;     /* one that takes a row which has more to say */
    PyObject *llm;       /* one from LLM columns to what they add to a line */
    PyObject *again;     /* one that takes another row of a Query ID */
    PyObject *encode;    /* one from a number to its JSON */
    PyObject *lines, *queries;
    double limit[MAX_BANDS];
    int bands;
    int error_is_text;   /* of the row at hand: it is no JSON any more */
    Text source;
    Kind **kinds;        /* by number in `group_keys` */
    size_t kinds_room;
    PyObject *kept;      /* what must live as long as the checklists */
    Arena forever, fleeting;
    Table texts, lists, group_keys;
    Expected **expected; /* by number in `lists` */
    size_t expected_room;
    Answer answer;
    Walk walk;
} Pass;

static u64 seed;

static PyObject *no_memory(void) { return PyErr_NoMemory(); }

/* A field as text. */
static PyObject *field_text(Pass *pass, Field field) {
    Text text = field.text;
    if (field.doubled) {
        u8 *room = arena_take(&pass->fleeting, text.n), *out = room;
        if (!room) return no_memory();
        for (size_t i = 0; i < text.n; i++) {
            *out++ = text.p[i];
            if (text.p[i] == '"') i++;
        }
        text.p = room;
        text.n = (size_t)(out - room);
    }
    return PyUnicode_FromStringAndSize((const char *)text.p, (Py_ssize_t)text.n);
}

static Field field_of(const u8 *from, const u8 *end) {
    Field field = {{from, (size_t)(end - from)}, 0, 0};
    if (end > from && *from == '"') {
        field.quoted = 1;
        field.text.p++;
        field.text.n -= 2; /* a field that begins with a quote ends with another: scan_block has seen to it */
        field.doubled = field.text.n && memchr(field.text.p, '"', field.text.n) != NULL;
    }
    return field;
}

static PyObject *tuple_of(PyObject **items, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; i < count; i++) {
        if (!items[i]) {
            Py_CLEAR(tuple);
        } else if (tuple) {
            PyTuple_SetItem(tuple, i, items[i]);
            continue;
        }
        Py_XDECREF(items[i]);
    }
    return tuple;
}

static int append(PyObject *list, PyObject *item) {
    if (!item) return 0;
    int bad = PyList_Append(list, item);
    Py_DECREF(item);
    return !bad;
}

static PyObject *none(void) { return Py_NewRef(Py_None); }

/* other(line, number, what, seconds, unusual) takes a row; what it is given is let go. */
static int give_row(Pass *pass, PyObject **items) {
    PyObject *args = tuple_of(items, 5), *done = args ? PyObject_CallObject(pass->other, args) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(done);
    return done != NULL;
}

/* (line, -1, fields, None, None): a row that Python has to read. */
static int leave_row(Pass *pass, long long line) {
    PyObject *texts[READ];
    for (int i = 0; i < READ; i++) texts[i] = field_text(pass, pass->fields[pass->column[i]]);
    PyObject *items[] = {PyLong_FromLongLong(line), PyLong_FromLong(-1), tuple_of(texts, READ), none(), none()};
    return give_row(pass, items);
}

/* One check as checks() gives it: (kind, what is wanted, whether that is plain). */
static int take_check(PyObject *given, Check *check) {
    char *want;
    Py_ssize_t n;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 3) return 0;
    long kind = PyLong_AsLong(PyTuple_GetItem(given, 0));
    if (kind < 0 || kind >= KINDS || PyBytes_AsStringAndSize(PyTuple_GetItem(given, 1), &want, &n) < 0 || !n) return 0;
    check->kind = (int)kind;
    check->want.p = (const u8 *)want;
    check->want.n = (size_t)n;
    check->plain = PyObject_IsTrue(PyTuple_GetItem(given, 2)) == 1;
    return !PyErr_Occurred();
}

static int take_checks(Pass *pass, PyObject *given, Expected *expected) {
    if (given == Py_None) {
        expected->none = 1;
        return 1;
    }
    if (!PyTuple_Check(given) || PyList_Append(pass->kept, given) < 0) return 0;
    Py_ssize_t count = PyTuple_Size(given);
    expected->hard = count == 0 || count > MAX_CHECKS;
    if (expected->hard) return 1;
    expected->list.checks = (Check *)(void *)arena_take(&pass->forever, (size_t)count * sizeof(Check));
    if (!expected->list.checks) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_check(PyTuple_GetItem(given, i), &expected->list.checks[i])) return 0;
    expected->list.count = (int)count;
    return 1;
}

/* The number of the row's checklist in `lists`; -1 with an exception. */
static long expected_of(Pass *pass) {
    int fresh;
    Field field = pass->fields[pass->column[EXPECTED]];
    long at = table_find(&pass->lists, field.text, &fresh);
    if (at < 0) return no_memory(), -1;
    if (!fresh) return at;
    if ((size_t)at == pass->expected_room) {
        size_t room = pass->expected_room ? pass->expected_room * 2 : 64;
        Expected **more = realloc(pass->expected, room * sizeof *more);
        if (!more) return no_memory(), -1;
        pass->expected = more;
        pass->expected_room = room;
    }
    Expected *made = (Expected *)(void *)arena_take(&pass->forever, sizeof *made);
    if (!made) return no_memory(), -1;
    memset(made, 0, sizeof *made);
    pass->expected[at] = made;
    PyObject *text = field_text(pass, field);
    PyObject *given = text ? PyObject_CallFunctionObjArgs(pass->checks, text, NULL) : NULL;
    int good = given && take_checks(pass, given, made);
    Py_XDECREF(text);
    Py_XDECREF(given);
    if (good) return at;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "checks() gave no checks");
    return -1;
}

/* The number of `text`, of which a copy is kept; -1 without memory. */
static long text_number(Pass *pass, Text text) {
    int fresh;
    long at = table_find(&pass->texts, text, &fresh);
    if (at >= 0 && fresh && !arena_copy(&pass->forever, &pass->texts.entries[at].key)) return -1;
    return at;
}

/* {kind, path}, ... of a walk as one text. */
static Text found_text(Pass *pass) {
    Walk *w = &pass->walk;
    Text text = {(const u8 *)"", 0};
    size_t room = 1;
    for (int i = 0; i < w->count; i++) room += w->found[i].path.n + 2;
    u8 *at = w->count ? arena_take(&pass->fleeting, room) : NULL;
    if (!at) return text;
    text.p = at;
    for (int i = 0; i < w->count; i++) {
        *at++ = (u8)w->found[i].kind;
        memcpy(at, w->found[i].path.p, w->found[i].path.n);
        at += w->found[i].path.n;
        *at++ = '\n';
    }
    text.n = (size_t)(at - text.p);
    return text;
}

/* ((kind, path), ...) */
static PyObject *found_tuple(const Walk *w) {
    PyObject *items[MAX_FOUND];
    for (int i = 0; i < w->count; i++)
        items[i] = Py_BuildValue("(is#)", w->found[i].kind, (const char *)w->found[i].path.p,
                                 (Py_ssize_t)w->found[i].path.n);
    return tuple_of(items, w->count);
}

static int take_bytes(PyObject *tuple, int at, Text *text) {
    char *bytes;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, at), &bytes, &n) < 0) return 0;
    text->p = (const u8 *)bytes;
    text->n = (size_t)n;
    return 1;
}

/* kind((round, category, which of checks()'s answers, state, passed checks, form types, found paths)), once for each group */
static int add_kind(Pass *pass, long at, long expected, int state, u64 passed, Text forms) {
    Field *fields = pass->fields;
    PyObject *items[] = {
        field_text(pass, fields[pass->column[ROUND]]),
        field_text(pass, fields[pass->column[CATEGORY]]),
        PyLong_FromLong(expected),
        PyLong_FromLong(state),
        PyLong_FromUnsignedLongLong(passed),
        PyUnicode_FromStringAndSize((const char *)forms.p, (Py_ssize_t)forms.n),
        found_tuple(&pass->walk),
    };
    if ((size_t)at >= pass->kinds_room) {
        size_t room = pass->kinds_room ? pass->kinds_room * 2 : 64;
        Kind **more = realloc(pass->kinds, room * sizeof *more);
        if (!more) {
            for (int i = 0; i < 7; i++) Py_XDECREF(items[i]);
            return no_memory(), 0;
        }
        pass->kinds = more;
        pass->kinds_room = room;
    }
    PyObject *told = tuple_of(items, 7), *parts = NULL;
    Kind *kind = (Kind *)(void *)arena_take(&pass->forever, offsetof(Kind, counts) + (size_t)(pass->bands + 2) * 8);
    if (!kind) {
        no_memory();
    } else if (told && (parts = PyObject_CallFunctionObjArgs(pass->kind, told, NULL))) {
        memset(kind, 0, offsetof(Kind, counts) + (size_t)(pass->bands + 2) * 8);
        if (!PyTuple_Check(parts) || PyTuple_Size(parts) != 4 || !PyList_Check(PyTuple_GetItem(parts, 3)))
            PyErr_SetString(PyExc_TypeError, "kind() gives (before, after, rest, seconds)");
        else if (take_bytes(parts, 0, &kind->before) && take_bytes(parts, 1, &kind->after) &&
                 take_bytes(parts, 2, &kind->rest) && !PyList_Append(pass->kept, parts))
            kind->seconds = PyTuple_GetItem(parts, 3);
    }
    Py_XDECREF(told);
    Py_XDECREF(parts);
    if (PyErr_Occurred()) return 0;
    pass->kinds[at] = kind;
    return 1;
}

/* The number of the group of rows that count alike; -1 with an exception. */
static long group_of(Pass *pass, long expected, int state, u64 passed, Text forms) {
    int fresh;
    Text found = found_text(pass);
    long round = text_number(pass, pass->fields[pass->column[ROUND]].text);
    long category = text_number(pass, pass->fields[pass->column[CATEGORY]].text);
    long form = text_number(pass, forms), paths = text_number(pass, found);
    if (round < 0 || category < 0 || form < 0 || paths < 0) return no_memory(), -1;
    u64 key[] = {(u64)round, (u64)category, (u64)expected, (u64)state, passed, (u64)form, (u64)paths};
    Text bytes = {(const u8 *)key, sizeof key};
    long at = table_find(&pass->group_keys, bytes, &fresh);
    if (at < 0 || (fresh && !arena_copy(&pass->forever, &pass->group_keys.entries[at].key))) return no_memory(), -1;
    return fresh && !add_kind(pass, at, expected, state, passed, forms) ? -1 : at;
}

/* answer._seconds of a number's text in *value: 1, 0 where it is none, -1 for Python to say. */
static int seconds_of(Text text, double *value) {
    static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    char copy[48];
    u64 digits = 0;
    size_t behind = 0, i;
    int point = 0;
    if (!text.n) return 0;
    if (text.p[0] == '-' || text.n >= sizeof copy) return -1;
    for (i = 0; i < text.n && text.n <= 16; i++) {
        u8 c = text.p[i];
        if (c == '.') point = 1;
        else if (c < '0' || c > '9') break;
        else digits = digits * 10 + (u64)(c - '0'), behind += (size_t)point;
    }
    if (i == text.n && text.n - (size_t)point <= 15) {
        *value = (double)digits / tens[behind]; /* both are exact, so this is the nearest double */
        return 1;
    }
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    *value = PyOS_string_to_double(copy, NULL, NULL);
    if (*value == -1.0 && PyErr_Occurred()) PyErr_Clear();
    return *value >= 0 && *value < 1e300 ? 1 : -1;
}

/* How msgspec writes the number that was written as `text`, in `out` (24 bytes); 0 where it has to be asked. */
static size_t seconds_text(Text text, double value, u8 *out) {
    const u8 *point = memchr(text.p, '.', text.n);
    size_t n = text.n;
    if (text.n > 15 || (value < 0.001 && value != 0)) return 0;
    for (size_t i = 0; i < n; i++)
        if (text.p[i] != '.' && (text.p[i] < '0' || text.p[i] > '9')) return 0;
    memcpy(out, text.p, n);
    if (!point) {
        memcpy(out + n, ".0", 2);
        return n + 2;
    }
    /* At most 15 digits tell two doubles apart, so the shortest text of this one is the given, less zeros at its end. */
    while (out[n - 1] == '0' && out[n - 2] != '.') n--;
    return n;
}

/* (the column of errors, the answer's error or None, whether that is JSON, the LLM columns) */
static PyObject *unusual(Pass *pass, const Text *error) {
    Field *fields = pass->fields;
    const int *column = pass->column;
    Field json = {{NULL, 0}, 1, 1};
    if (error) json.text = *error;
    PyObject *items[] = {
        field_text(pass, fields[column[ERROR_TEXT]]),
        !error                 ? none()
        : pass->error_is_text ? PyUnicode_FromStringAndSize((const char *)error->p, (Py_ssize_t)error->n)
                               : field_text(pass, json),
        PyBool_FromLong(!pass->error_is_text),
        field_text(pass, fields[column[LLM_SCORE]]),
        field_text(pass, fields[column[LLM_STATE]]),
        field_text(pass, fields[column[LLM_COMMENT]]),
    };
    return tuple_of(items, 6);
}

/* Whether `id` is in JSON what it is here, and begins and ends with no white space. */
static int is_plain(Text id) {
    if (!id.n) return 1;
    if (space_at(id.p, id.n)) return 0;
    for (size_t size = 1; size <= 3 && size <= id.n; size++)
        if (space_at(id.p + id.n - size, size) == (int)size) return 0;
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] < 0x20 || id.p[i] == '"' || id.p[i] == '\\' || id.p[i] == 0x7F) return 0;
    return 1;
}

static u8 *put(u8 *at, const void *p, size_t n) {
    if (n) memcpy(at, p, n);
    return at + n;
}

/* Counts the row's time; its text is in *text afterwards, which lies in `room` or in *made. */
static int count_time(Pass *pass, Kind *kind, int timed, double seconds, u8 *room, Text *text, PyObject **made) {
    int band = 0;
    char *bytes;
    Py_ssize_t n;
    *text = (Text){(const u8 *)"null", 4};
    if (!timed) {
        kind->counts[pass->bands + 1]++;
        return 1;
    }
    while (band < pass->bands && pass->limit[band] < seconds) band++;
    kind->counts[band]++;
    PyObject *number = PyFloat_FromDouble(seconds);
    if (!number || PyList_Append(kind->seconds, number) < 0) return Py_XDECREF(number), 0;
    text->p = room;
    text->n = seconds_text(pass->answer.seconds, seconds, room);
    if (!text->n) {
        *made = PyObject_CallFunctionObjArgs(pass->encode, number, NULL);
        if (!*made || PyBytes_AsStringAndSize(*made, &bytes, &n) < 0) return Py_DECREF(number), 0;
        text->p = (const u8 *)bytes;
        text->n = (size_t)n;
    }
    Py_DECREF(number);
    return 1;
}

/* Queries.add of the row as `pack_row` packs it. */
static int keep_query(Pass *pass, long long line, const Kind *kind, Text id) {
    u8 packed[5];
    for (int i = 0; i < 5; i++) packed[i] = (u8)(line >> 8 * i);
    PyObject *key = PyUnicode_FromStringAndSize((const char *)id.p, (Py_ssize_t)id.n);
    PyObject *row = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(5 + kind->rest.n));
    int good = key && row;
    if (good) {
        put(put((u8 *)PyBytes_AsString(row), packed, 5), kind->rest.p, kind->rest.n);
        PyObject *old = PyDict_GetItemWithError(pass->queries, key);
        if (old && PyBytes_Check(old) && PyBytes_Size(old) < MAX_BYTES) {
            Py_ssize_t n = PyBytes_Size(old), more = PyBytes_Size(row);
            PyObject *both = PyBytes_FromStringAndSize(NULL, n + more);
            if (both) {
                u8 *at = put((u8 *)PyBytes_AsString(both), PyBytes_AsString(old), (size_t)n);
                put(at, PyBytes_AsString(row), (size_t)more);
            }
            good = both && !PyDict_SetItem(pass->queries, key, both);
            Py_XDECREF(both);
        } else if (old) {
            PyObject *done = PyObject_CallFunctionObjArgs(pass->again, key, row, NULL);
            good = done != NULL;
            Py_XDECREF(done);
        } else {
            good = !PyErr_Occurred() && !PyDict_SetItem(pass->queries, key, row);
        }
    }
    Py_XDECREF(key);
    Py_XDECREF(row);
    return good;
}

/* llm(number, score, state, comment): what the LLM columns add to the row's line, in *made. */
static int read_llm(Pass *pass, long number, Text *text, PyObject **made) {
    char *bytes;
    Py_ssize_t n;
    if (!pass->fields[pass->column[LLM_SCORE]].text.n) return 1;
    PyObject *items[] = {
        PyLong_FromLong(number),
        field_text(pass, pass->fields[pass->column[LLM_SCORE]]),
        field_text(pass, pass->fields[pass->column[LLM_STATE]]),
        field_text(pass, pass->fields[pass->column[LLM_COMMENT]]),
    };
    PyObject *args = tuple_of(items, 4);
    *made = args ? PyObject_CallObject(pass->llm, args) : NULL;
    Py_XDECREF(args);
    if (!*made || PyBytes_AsStringAndSize(*made, &bytes, &n) < 0) return 0;
    text->p = (const u8 *)bytes;
    text->n = (size_t)n;
    return 1;
}

/* The line of records.jsonl and the packed row of a row without an error. */
static int write_row(Pass *pass, long long line, long number, Text id, int timed, double seconds) {
    char digits[24];
    u8 room[24];
    PyObject *time_made = NULL, *llm_made = NULL;
    Kind *kind = pass->kinds[number];
    Text time, llm = {NULL, 0};
    int good = count_time(pass, kind, timed, seconds, room, &time, &time_made) && read_llm(pass, number, &llm, &llm_made);
    if (good) {
        size_t size = (size_t)snprintf(digits, sizeof digits, "%lld", line);
        size_t n = 11 + pass->source.n + size + 8 + id.n + 1 + kind->before.n + time.n + kind->after.n + llm.n + 1;
        PyObject *out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
        if (out) {
            u8 *at = put((u8 *)PyBytes_AsString(out), "{\"record\":\"", 11);
            at = put(put(at, pass->source.p, pass->source.n), digits, size);
            at = put(put(put(at, "\",\"id\":\"", 8), id.p, id.n), "\"", 1);
            at = put(put(at, kind->before.p, kind->before.n), time.p, time.n);
            put(put(put(at, kind->after.p, kind->after.n), llm.p, llm.n), "}", 1);
        }
        good = append(pass->lines, out) && keep_query(pass, line, kind, id);
    }
    Py_XDECREF(time_made);
    Py_XDECREF(llm_made);
    return good;
}

/* Whether this row can be told here: its state, passed checks, forms, seconds and error (NULL: none). */
static int read_row(Pass *pass, const Expected *expected, int *state, u64 *passed, Text *forms, double *seconds,
                    int *timed, Text **error) {
    Answer *a = &pass->answer;
    Arena *arena = &pass->fleeting;
    Field raw = pass->fields[pass->column[RAW_JSON]];
    String text;
    pass->walk.count = 0;
    if (expected->hard || (raw.text.n && !raw.quoted)) return 0;
    if (!read_answer(raw.text, a)) {
        *state = expected->none ? UNSCORED : UNPARSABLE;
        return cut_off;
    }
    if ((*timed = seconds_of(a->seconds, seconds)) < 0) return 0;
    if (a->error_stands) {
        const u8 *p = a->error.raw.p, *end = p + a->error.raw.n;
        if (*p != '"') {
            if (!is_tame(raw.text)) return 0;
        } else if (!read_string(p, end, &text) || !text_of(arena, text, &a->error.raw)) {
            return 0;
        }
        *error = &a->error.raw;
        pass->error_is_text = *p == '"';
    }
    if (expected->none) {
        *state = UNSCORED;
        *error = NULL;
        return 1;
    }
    if (!read_items(arena, a) || !forms_of(arena, a, forms)) return 0;
    if (!a->any_item) {
        if (!plain_message(arena, a)) return 0;
        *state = a->plain.n ? JUDGED : EMPTY;
    }
    if (*state == EMPTY) return 1;
    return judge(arena, a, &expected->list, passed) && walk(&pass->walk, arena, a, &expected->list, *passed);
}

static int add_row(Pass *pass, long long line) {
    int state = JUDGED, timed = 0;
    u64 passed = 0;
    double seconds = 0;
    Text forms = {(const u8 *)"", 0}, *error = NULL;
    arena_reset(&pass->fleeting);
    long expected = expected_of(pass);
    if (expected < 0) return 0;
    if (!read_row(pass, pass->expected[expected], &state, &passed, &forms, &seconds, &timed, &error))
        return leave_row(pass, line);
    long group = group_of(pass, expected, state, passed, forms);
    if (group < 0) return 0;
    Field query = pass->fields[pass->column[QUERY]];
    if (!error && !pass->fields[pass->column[ERROR_TEXT]].text.n && is_plain(query.text))
        return write_row(pass, line, group, query.text, timed, seconds);
    PyObject *items[] = {
        PyLong_FromLongLong(line),
        PyLong_FromLong(group),
        field_text(pass, query),
        timed ? PyFloat_FromDouble(seconds) : none(),
        unusual(pass, error),
    };
    return give_row(pass, items);
}

/* All rows; 0 with an exception, -1 for a chunk that only Python should read. */
static int add_rows(Pass *pass) {
    Scan *scan = &pass->scan;
    const u8 *data = scan->data;
    size_t from = 0, row = 0;
    long long line = pass->line;
    int count = 0;
    for (;;) {
        size_t at = scan_next(scan);
        if (scan->lone_return || scan->bad < scan->length) return -1;
        int ended = at == scan->length || data[at] == '\n';
        size_t end = at;
        if (ended && end > from && data[end - 1] == '\r') end--;
        if (at == scan->length && (scan->inside || scan->returned)) return -1;
        if (at == scan->length && row == at) return 1;
        if (count < pass->width) pass->fields[count] = field_of(data + from, data + end);
        count++;
        from = at + 1;
        if (!ended) continue;
        if (count == pass->width) {
            if (!add_row(pass, line)) return 0;
        } else if (count > 1 || end > row) {
            return -1; /* a row of another width; blank ones are none */
        }
        if (at == scan->length) return 1;
        line = pass->line + (long long)scan_lines(scan, at);
        row = from;
        count = 0;
    }
}

static void pass_free(Pass *pass) {
    PyMem_Free(pass->fields);
    Py_XDECREF(pass->kept);
    arena_free(&pass->forever);
    arena_free(&pass->fleeting);
    table_free(&pass->texts);
    table_free(&pass->lists);
    table_free(&pass->group_keys);
    free(pass->expected);
    free(pass->kinds);
}

/* ((band, rows), ...) by group */
static PyObject *counts_of(const Pass *pass) {
    PyObject *found = PyList_New(0), *counts[MAX_BANDS + 2];
    for (size_t at = 0; found && at < pass->group_keys.count; at++) {
        int many = 0;
        for (int band = 0; band < pass->bands + 2; band++)
            if (pass->kinds[at]->counts[band])
                counts[many++] = Py_BuildValue("(iK)", band, (unsigned long long)pass->kinds[at]->counts[band]);
        if (!append(found, tuple_of(counts, many))) Py_CLEAR(found);
    }
    return found;
}

static PyObject *told(Pass *pass, const Py_buffer *view) {
    const u8 *data = view->buf;
    size_t n = (size_t)view->len;
    if (!is_utf8(data, data + n)) return none();
    scan_begin(&pass->scan, data, n);
    pass->texts.seed = pass->lists.seed = pass->group_keys.seed = seed;
    pass->fields = PyMem_Malloc((size_t)pass->width * sizeof *pass->fields);
    pass->kept = PyList_New(0);
    if (!pass->fields || !pass->kept) return no_memory();
    int done = add_rows(pass);
    return done < 0 ? none() : done ? counts_of(pass) : NULL;
}

static int take_numbers(Pass *pass, PyObject *columns, PyObject *limits) {
    if (pass->width < 2 || pass->width > MAX_WIDTH || PyTuple_Size(columns) != READ || PyTuple_Size(limits) > MAX_BANDS)
        return 0;
    for (int i = 0; i < READ; i++) {
        long at = PyLong_AsLong(PyTuple_GetItem(columns, i));
        if (at < 0 || at >= pass->width) return 0;
        pass->column[i] = (int)at;
    }
    pass->bands = (int)PyTuple_Size(limits);
    for (int i = 0; i < pass->bands; i++) pass->limit[i] = PyFloat_AsDouble(PyTuple_GetItem(limits, i));
    return !PyErr_Occurred();
}

static PyObject *plan_rows(PyObject *module, PyObject *args) {
    Py_buffer view;
    PyObject *columns, *limits, *found = NULL;
    const char *source;
    Py_ssize_t source_size;
    Pass *pass = PyMem_Calloc(1, sizeof *pass);
    (void)module;
    if (!pass) return no_memory();
    if (!PyArg_ParseTuple(args, "y*LiO!y#O!O!O!OOOOOO", &view, &pass->line, &pass->width, &PyTuple_Type, &columns, &source,
                          &source_size, &PyTuple_Type, &limits, &PyList_Type, &pass->lines, &PyDict_Type,
                          &pass->queries, &pass->checks, &pass->kind, &pass->other, &pass->llm, &pass->again, &pass->encode)) {
        PyMem_Free(pass);
        return NULL;
    }
    pass->source.p = (const u8 *)source;
    pass->source.n = (size_t)source_size;
    if (take_numbers(pass, columns, limits)) found = told(pass, &view);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such columns, or too many bands");
    pass_free(pass);
    PyMem_Free(pass);
    PyBuffer_Release(&view);
    return found;
}

typedef struct {
    int64_t *items;
    size_t count, room;
} Numbers;

static int add_number(Numbers *numbers, size_t value) {
    if (numbers->count == numbers->room) {
        size_t room = numbers->room ? numbers->room * 2 : 1024;
        int64_t *more = PyMem_Realloc(numbers->items, room * sizeof *more);
        if (!more) return 0;
        numbers->items = more;
        numbers->room = room;
    }
    numbers->items[numbers->count++] = (int64_t)value;
    return 1;
}

/* The offsets of all newlines, and those just behind each record. */
static int find_ends(Scan *scan, Numbers *newlines, Numbers *ends) {
    while (scan_block(scan))
        for (u64 marks = scan->newlines; marks; marks &= marks - 1) {
            size_t at = scan->block + (size_t)lowest_bit(marks);
            int outside = (scan->ends & marks & (~marks + 1)) != 0;
            if (!add_number(newlines, at) || (outside && !add_number(ends, at + 1))) return 0;
        }
    return 1;
}

static PyObject *as_bytes(const Numbers *numbers) {
    return PyBytes_FromStringAndSize((const char *)numbers->items, (Py_ssize_t)(numbers->count * sizeof(int64_t)));
}

static PyObject *record_ends(PyObject *module, PyObject *args) {
    Py_buffer view;
    Scan scan;
    Numbers newlines = {NULL, 0, 0}, ends = {NULL, 0, 0};
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &view)) return NULL;
    scan_begin(&scan, view.buf, (size_t)view.len);
    if (!find_ends(&scan, &newlines, &ends)) {
        no_memory();
    } else {
        PyObject *items[] = {
            as_bytes(&newlines),
            as_bytes(&ends),
            PyLong_FromSsize_t(scan.bad < scan.length ? (Py_ssize_t)scan.bad : -1),
            PyBool_FromLong(scan.bad_opens),
        };
        found = tuple_of(items, 4);
    }
    PyMem_Free(newlines.items);
    PyMem_Free(ends.items);
    PyBuffer_Release(&view);
    return found;
}

/* Both ways, for tests: whether `data` is UTF-8. */
static PyObject *check_utf8(PyObject *module, PyObject *args) {
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &view)) return NULL;
    const u8 *data = view.buf;
    int swift = is_utf8(data, data + view.len), plain = is_utf8_plainly(data, data + view.len);
    PyBuffer_Release(&view);
    return Py_BuildValue("(ii)", swift, plain);
}

static PyMethodDef methods[] = {
    {"check_utf8", check_utf8, METH_VARARGS, "See _rows.pyi."},
    {"plan_rows", plan_rows, METH_VARARGS, "See _rows.pyi."},
    {"record_ends", record_ends, METH_VARARGS, "See _rows.pyi."},
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
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_rows", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
