/* The pass over a plan agent's rows: what it holds, and which checks and which rows it has met so far. */

#ifndef EVALQ_PLAN_H
#define EVALQ_PLAN_H

#include <Python.h>

#include "walk.h"

enum { QUERY, ROUND, EXPECTED, CATEGORY, ERROR_TEXT, RAW_JSON, LLM_SCORE, LLM_STATE, LLM_COMMENT, READ };
enum { JUDGED, EMPTY, UNPARSABLE, UNSCORED, WRONG };

#define MAX_WIDTH 4096
#define MAX_BANDS 64
#define MAX_BYTES (1 << 14) /* as queries.py has it */
#define SPREADSHEET_CELL 32767 /* as chunk.py has it */

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
    PyObject *checks;    /* a function from an expected result, and the first line that has it, to its checks */
    PyObject *error;     /* one from what may be an error to whether it is */
    PyObject *kind;      /* one from a group to its (before, after, rest, seconds) */
    PyObject *other;     /* one that takes a row which Python has to read */
    PyObject *llm;       /* one from LLM columns to what they add to a line */
    PyObject *again;     /* one that takes another row of a Query ID */
    PyObject *encode;    /* one from a number to its JSON */
    PyObject *lines, *queries;
    double limit[MAX_BANDS];
    int bands;
    int error_is_text;   /* of the row at hand: it is no JSON any more */
    long wrong;          /* the row's error, by number in `errors`, from 1 on; 0: none, -1: an exception */
    Text source;
    Kind **kinds;        /* by number in `group_keys` */
    size_t kinds_room;
    PyObject *kept;      /* what must live as long as the checklists */
    Arena forever, fleeting;
    Table texts, lists, group_keys, errors;
    u8 *is_error;        /* by number in `errors` */
    size_t errors_room;
    Expected **expected; /* by number in `lists` */
    size_t expected_room;
    Answer answer;
    Walk walk;
} Pass;

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

/* other(line, fields): a row that Python has to read. */
static int leave_row(Pass *pass, long long line) {
    PyObject *texts[READ];
    for (int i = 0; i < READ; i++) texts[i] = field_text(pass, pass->fields[pass->column[i]]);
    PyObject *items[] = {PyLong_FromLongLong(line), tuple_of(texts, READ)};
    PyObject *args = tuple_of(items, 2), *done = args ? PyObject_CallObject(pass->other, args) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(done);
    return done != NULL;
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

/* Whether all cells of the row at hand are empty or white space: 1, 0, or -1 where only Python knows which signs are. */
static int is_blank_row(const Pass *pass) {
    int other = 0;
    for (int i = 0; i < pass->width; i++) {
        Text text = pass->fields[i].text;
        for (size_t at = 0; at < text.n; at++) {
            u8 c = text.p[at];
            if (c >= 128) other = 1;
            else if (c > ' ' || c < 9 || (c > 13 && c < 28)) return 0;
        }
    }
    return other ? -1 : 1;
}

/* Whether some cell may be exactly as long as the longest of a spreadsheet: chunk.py says so of a row. */
static int may_be_cut(const Pass *pass) {
    for (int i = 0; i < pass->width; i++) {
        Text text = pass->fields[i].text;
        if (text.n < SPREADSHEET_CELL || text.n > 6 * SPREADSHEET_CELL) continue;
        size_t letters = 0, units = 0;
        for (size_t at = 0; at < text.n; at++) {
            u8 c = text.p[at];
            letters += (c & 0xC0) != 0x80;
            units += ((c & 0xC0) != 0x80) + (c >= 0xF0);
            if (c == '"') at++; /* it is written twice */
        }
        if (letters == SPREADSHEET_CELL || units == SPREADSHEET_CELL) return 1;
    }
    return 0;
}

/* The number of the row's checklist in `lists`; -1 with an exception. */
static long expected_of(Pass *pass, long long line) {
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
    PyObject *number = PyLong_FromLongLong(line);
    PyObject *given = text && number ? PyObject_CallFunctionObjArgs(pass->checks, text, number, NULL) : NULL;
    int good = given && take_checks(pass, given, made);
    Py_XDECREF(text);
    Py_XDECREF(number);
    Py_XDECREF(given);
    if (good) return at;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "checks() gave no checks");
    return -1;
}

/* The number of `text`, of which a copy is kept; -1 without memory. */
static long text_number(Pass *pass, Text text) {
    int fresh;
    if (!text.n) return 1L << 30; /* no table has so many */
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

/* What may be an error of the row at hand: the length and the text of its column, whether the answer's is JSON, and that.
   NULL without memory. */
static Text error_text(Pass *pass, const Text *error) {
    Text column = pass->fields[pass->column[ERROR_TEXT]].text, text = {(const u8 *)"", 0};
    if (!column.n && !error) return text;
    u8 *at = arena_take(&pass->fleeting, sizeof column.n + column.n + 1 + (error ? error->n : 0));
    if (!at) return (Text){NULL, 0};
    text.p = at;
    memcpy(at, &column.n, sizeof column.n);
    memcpy(at += sizeof column.n, column.p, column.n);
    at += column.n;
    *at++ = !error ? 'n' : pass->error_is_text ? 't' : 'j';
    if (error && error->n) memcpy(at, error->p, error->n);
    text.n = (size_t)(at - text.p) + (error ? error->n : 0);
    return text;
}

/* error(column, the answer's error or None, whether that is JSON), once a text: whether it is one; -1 with an exception. */
static int ask_error(Pass *pass, const Text *error) {
    Field json = {{NULL, 0}, 1, 1};
    if (error) json.text = *error;
    PyObject *items[] = {
        field_text(pass, pass->fields[pass->column[ERROR_TEXT]]),
        !error                ? none()
        : pass->error_is_text ? PyUnicode_FromStringAndSize((const char *)error->p, (Py_ssize_t)error->n)
                              : field_text(pass, json),
        PyBool_FromLong(!pass->error_is_text),
    };
    PyObject *args = tuple_of(items, 3), *found = args ? PyObject_CallObject(pass->error, args) : NULL;
    int is = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(args);
    Py_XDECREF(found);
    return is;
}

/* The number of the row's error in `errors`, from 1 on; 0 where it has none, -1 with an exception. */
static long wrong_of(Pass *pass, const Text *error) {
    int fresh;
    Text text = error_text(pass, error);
    if (!text.p) return no_memory(), -1;
    if (!text.n) return 0;
    long at = table_find(&pass->errors, text, &fresh);
    if (at < 0 || (fresh && !arena_copy(&pass->forever, &pass->errors.entries[at].key))) return no_memory(), -1;
    if (fresh) {
        if ((size_t)at >= pass->errors_room) {
            size_t room = pass->errors_room ? pass->errors_room * 2 : 64;
            u8 *more = realloc(pass->is_error, room);
            if (!more) return no_memory(), -1;
            pass->is_error = more;
            pass->errors_room = room;
        }
        int is = ask_error(pass, error);
        if (is < 0) return -1;
        pass->is_error[at] = (u8)is;
    }
    return pass->is_error[at] ? at + 1 : 0;
}

static int take_bytes(PyObject *tuple, int at, Text *text) {
    char *bytes;
    Py_ssize_t n;
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, at), &bytes, &n) < 0) return 0;
    text->p = (const u8 *)bytes;
    text->n = (size_t)n;
    return 1;
}

/* kind(which of checks()'s answers, (round, category, state, passed checks, form types, found paths), its error's
   number), once a group */
static int add_kind(Pass *pass, long at, long expected, int state, u64 passed, Text forms) {
    Field *fields = pass->fields;
    PyObject *items[] = {
        field_text(pass, fields[pass->column[ROUND]]),
        field_text(pass, fields[pass->column[CATEGORY]]),
        PyLong_FromLong(state),
        PyLong_FromUnsignedLongLong(passed),
        PyUnicode_FromStringAndSize((const char *)forms.p, (Py_ssize_t)forms.n),
        found_tuple(&pass->walk),
    };
    if ((size_t)at >= pass->kinds_room) {
        size_t room = pass->kinds_room ? pass->kinds_room * 2 : 64;
        Kind **more = realloc(pass->kinds, room * sizeof *more);
        if (!more) {
            for (int i = 0; i < 6; i++) Py_XDECREF(items[i]);
            return no_memory(), 0;
        }
        pass->kinds = more;
        pass->kinds_room = room;
    }
    PyObject *group = tuple_of(items, 6), *number = PyLong_FromLong(expected), *parts = NULL;
    PyObject *wrong = PyLong_FromLong(pass->wrong);
    Kind *kind = (Kind *)(void *)arena_take(&pass->forever, offsetof(Kind, counts) + (size_t)(pass->bands + 2) * 8);
    if (!kind) {
        no_memory();
    } else if (group && number && wrong && (parts = PyObject_CallFunctionObjArgs(pass->kind, number, group, wrong, NULL))) {
        memset(kind, 0, offsetof(Kind, counts) + (size_t)(pass->bands + 2) * 8);
        if (!PyTuple_Check(parts) || PyTuple_Size(parts) != 4 || !PyList_Check(PyTuple_GetItem(parts, 3)))
            PyErr_SetString(PyExc_TypeError, "kind() gives (before, after, rest, seconds)");
        else if (take_bytes(parts, 0, &kind->before) && take_bytes(parts, 1, &kind->after) &&
                 take_bytes(parts, 2, &kind->rest) && !PyList_Append(pass->kept, parts))
            kind->seconds = PyTuple_GetItem(parts, 3);
    }
    Py_XDECREF(group);
    Py_XDECREF(number);
    Py_XDECREF(wrong);
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
    u64 key[] = {(u64)round, (u64)category, (u64)expected, (u64)state, passed, (u64)form, (u64)paths, (u64)pass->wrong};
    Text bytes = {(const u8 *)key, sizeof key};
    long at = table_find(&pass->group_keys, bytes, &fresh);
    if (at < 0 || (fresh && !arena_copy(&pass->forever, &pass->group_keys.entries[at].key))) return no_memory(), -1;
    return fresh && !add_kind(pass, at, expected, state, passed, forms) ? -1 : at;
}

#endif
