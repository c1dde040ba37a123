/* The hot passes over rows, for machines that have a compiler: where a CSV's records end, and what a plan agent's rows
   say. The Python next to each is the reference: whatever is unusual is left to it, and tests compare the two. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "answer.h"

#include <math.h>

#ifndef SOURCE
#define SOURCE ""
#endif

enum { QUERY, ROUND, EXPECTED, CATEGORY, ERROR_TEXT, RAW_JSON, LLM_SCORE, LLM_STATE, LLM_COMMENT, READ };
enum { JUDGED, EMPTY, UNSCORED };

#define MAX_WIDTH 4096

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
    PyObject *compile;   /* a function from an expected result to its checks */
    PyObject *rows, *groups;
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

/* (line, -1, fields, None, None): a row that Python has to read. */
static int leave_row(Pass *pass, long long line) {
    PyObject *texts[READ];
    for (int i = 0; i < READ; i++) texts[i] = field_text(pass, pass->fields[pass->column[i]]);
    PyObject *items[] = {PyLong_FromLongLong(line), PyLong_FromLong(-1), tuple_of(texts, READ), none(), none()};
    return append(pass->rows, tuple_of(items, 5));
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
    PyObject *given = text ? PyObject_CallFunctionObjArgs(pass->compile, text, NULL) : NULL;
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

/* (round, category, expected result, state, passed checks, form types, found paths), as each group is told once */
static int add_group(Pass *pass, int state, u64 passed, Text forms) {
    Field *fields = pass->fields;
    PyObject *items[] = {
        field_text(pass, fields[pass->column[ROUND]]),
        field_text(pass, fields[pass->column[CATEGORY]]),
        field_text(pass, fields[pass->column[EXPECTED]]),
        PyLong_FromLong(state),
        PyLong_FromUnsignedLongLong(passed),
        PyUnicode_FromStringAndSize((const char *)forms.p, (Py_ssize_t)forms.n),
        found_tuple(&pass->walk),
    };
    return append(pass->groups, tuple_of(items, 7));
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
    return fresh && !add_group(pass, state, passed, forms) ? -1 : at;
}

/* answer._seconds of a number's text in *value: 1, 0 where it is none, -1 for Python to say. */
static int seconds_of(Text text, double *value) {
    static const double tens[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    u64 digits = 0;
    size_t behind = 0;
    int point = 0;
    if (!text.n) return 0;
    if (text.n > 16) return -1; /* at most 15 digits and a point: one exact division gives the nearest double */
    for (size_t i = 0; i < text.n; i++) {
        u8 c = text.p[i];
        if (c == '.') point = 1;
        else if (c < '0' || c > '9') return -1;
        else digits = digits * 10 + (u64)(c - '0'), behind += (size_t)point;
    }
    if (text.n - (size_t)point > 15) return -1;
    *value = (double)digits / tens[behind];
    return 1;
}

/* The error and LLM columns and the answer's own error, where any of these says something, or None. */
static PyObject *unusual(Pass *pass, Text *error) {
    Field *fields = pass->fields;
    const int *column = pass->column;
    if (!error && !fields[column[ERROR_TEXT]].text.n && !fields[column[LLM_SCORE]].text.n) return none();
    PyObject *items[] = {
        field_text(pass, fields[column[ERROR_TEXT]]),
        error ? PyUnicode_FromStringAndSize((const char *)error->p, (Py_ssize_t)error->n) : none(),
        field_text(pass, fields[column[LLM_SCORE]]),
        field_text(pass, fields[column[LLM_STATE]]),
        field_text(pass, fields[column[LLM_COMMENT]]),
    };
    return tuple_of(items, 5);
}

/* Whether this row can be told here: its state, passed checks, forms, seconds and error (NULL: none). */
static int read_row(Pass *pass, const Expected *expected, int *state, u64 *passed, Text *forms, double *seconds,
                    int *timed, Text **error) {
    Answer *a = &pass->answer;
    Arena *arena = &pass->fleeting;
    Field raw = pass->fields[pass->column[RAW_JSON]];
    String text;
    pass->walk.count = 0;
    if (expected->hard || !raw.quoted || !read_answer(raw.text, a)) return 0;
    if ((*timed = seconds_of(a->seconds, seconds)) < 0) return 0;
    if (a->error_stands) {
        /* Another value than a string is shown as Python's JSON shows it. */
        const u8 *p = a->error.raw.p, *end = p + a->error.raw.n;
        if (*p != '"' || !read_string(p, end, &text) || !text_of(arena, text, &a->error.raw)) return 0;
        *error = &a->error.raw;
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
    PyObject *items[] = {
        PyLong_FromLongLong(line),
        PyLong_FromLong(group),
        field_text(pass, pass->fields[pass->column[QUERY]]),
        timed ? PyFloat_FromDouble(seconds) : none(),
        unusual(pass, error),
    };
    return append(pass->rows, tuple_of(items, 5));
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
    Py_XDECREF(pass->rows);
    Py_XDECREF(pass->groups);
    Py_XDECREF(pass->kept);
    arena_free(&pass->forever);
    arena_free(&pass->fleeting);
    table_free(&pass->texts);
    table_free(&pass->lists);
    table_free(&pass->group_keys);
    free(pass->expected);
}

static PyObject *told(Pass *pass, const Py_buffer *view) {
    const u8 *data = view->buf;
    size_t n = (size_t)view->len;
    if (!is_utf8(data, data + n)) return none();
    scan_begin(&pass->scan, data, n);
    pass->texts.seed = pass->lists.seed = pass->group_keys.seed = seed;
    pass->fields = PyMem_Malloc((size_t)pass->width * sizeof *pass->fields);
    pass->rows = PyList_New(0);
    pass->groups = PyList_New(0);
    pass->kept = PyList_New(0);
    if (!pass->fields || !pass->rows || !pass->groups || !pass->kept) return no_memory();
    int done = add_rows(pass);
    return done < 0 ? none() : done ? PyTuple_Pack(2, pass->rows, pass->groups) : NULL;
}

static PyObject *plan_rows(PyObject *module, PyObject *args) {
    Py_buffer view;
    PyObject *columns, *compile, *found = NULL;
    long long line;
    int width;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LiO!O", &view, &line, &width, &PyTuple_Type, &columns, &compile)) return NULL;
    Pass *pass = PyMem_Calloc(1, sizeof *pass);
    if (!pass) {
        PyBuffer_Release(&view);
        return no_memory();
    }
    pass->line = line;
    pass->width = width;
    pass->compile = compile;
    int good = width > 1 && width <= MAX_WIDTH && PyTuple_Size(columns) == READ;
    for (int i = 0; good && i < READ; i++) {
        long at = PyLong_AsLong(PyTuple_GetItem(columns, i));
        good = at >= 0 && at < width;
        pass->column[i] = (int)at;
    }
    if (good) found = told(pass, &view);
    else if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such columns");
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

static int find_ends(Scan *scan, Numbers *ends, Numbers *lines) {
    for (;;) {
        if (!scan_block(scan)) return 1;
        for (u64 marks = scan->ends & scan->newlines; marks; marks &= marks - 1) {
            size_t at = scan->block + (size_t)lowest_bit(marks);
            if (!add_number(ends, at + 1) || !add_number(lines, scan_lines(scan, at))) return 0;
        }
    }
}

static PyObject *as_bytes(const Numbers *numbers) {
    return PyBytes_FromStringAndSize((const char *)numbers->items, (Py_ssize_t)(numbers->count * sizeof(int64_t)));
}

static PyObject *record_ends(PyObject *module, PyObject *args) {
    Py_buffer view;
    Scan scan;
    Numbers ends = {NULL, 0, 0}, lines = {NULL, 0, 0};
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &view)) return NULL;
    scan_begin(&scan, view.buf, (size_t)view.len);
    if (!find_ends(&scan, &ends, &lines)) {
        no_memory();
    } else {
        PyObject *items[] = {
            as_bytes(&ends),
            as_bytes(&lines),
            PyLong_FromSsize_t(scan.bad < scan.length ? (Py_ssize_t)scan.bad : -1),
            PyBool_FromLong(scan.bad_opens),
        };
        found = tuple_of(items, 4);
    }
    PyMem_Free(ends.items);
    PyMem_Free(lines.items);
    PyBuffer_Release(&view);
    return found;
}

static PyMethodDef methods[] = {
    {"plan_rows", plan_rows, METH_VARARGS, "plan_rows(data, first_line, width, columns, checks)"},
    {"record_ends", record_ends, METH_VARARGS, "record_ends(data)"},
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
