/* The hot passes over rows, for machines that have a compiler: where a CSV's records end, and what a plan agent's rows
   say. The Python next to each is the reference: whatever is unusual is left to it, and tests compare the two. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "lines.h"
#include "utf8.h"

#ifndef SOURCE
#define SOURCE ""
#endif

static u64 seed;

/* Whether this row can be scored here: its state, passed checks, forms and seconds, and in pass->wrong its error. */
static int read_row(Pass *pass, const Expected *expected, int *state, u64 *passed, Text *forms, double *seconds,
                    int *timed) {
    const Text *error = NULL;
    Answer *a = &pass->answer;
    Arena *arena = &pass->fleeting;
    Field raw = pass->fields[pass->column[RAW_JSON]];
    String text;
    pass->walk.count = 0;
    pass->wrong = 0;
    if (expected->hard || (raw.text.n && !raw.quoted)) return 0;
    if (!read_answer(raw.text, a)) {
        *state = expected->none ? UNSCORED : UNPARSABLE;
        if (!expected->none) pass->wrong = wrong_of(pass, NULL);
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
        error = &a->error.raw;
        pass->error_is_text = *p == '"';
    }
    if (expected->none) {
        *state = UNSCORED;
        return 1;
    }
    if ((pass->wrong = wrong_of(pass, error)) < 0 || !read_items(arena, a) || !forms_of(arena, a, forms)) return 0;
    if (pass->wrong) return 1;
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
    Text forms = {(const u8 *)"", 0};
    arena_reset(&pass->fleeting);
    long expected = expected_of(pass, line);
    if (expected < 0) return 0;
    if (!read_row(pass, pass->expected[expected], &state, &passed, &forms, &seconds, &timed))
        return pass->wrong >= 0 && leave_row(pass, line);
    Field query = pass->fields[pass->column[QUERY]];
    if (pass->wrong < 0) return 0;
    if (!is_plain(query.text)) return leave_row(pass, line);
    long group = group_of(pass, expected, pass->wrong ? WRONG : state, passed, forms);
    return group >= 0 && write_row(pass, line, group, query.text, timed, seconds);
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
            int blank = is_blank_row(pass);
            if (blank < 0 || may_be_cut(pass)) return -1;
            if (!blank && !add_row(pass, line)) return 0;
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
    table_free(&pass->errors);
    free(pass->is_error);
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

static PyObject *counts_as_objects(Pass *pass, const Py_buffer *view) {
    const u8 *data = view->buf;
    size_t n = (size_t)view->len;
    if (!is_utf8(data, data + n)) return none();
    scan_begin(&pass->scan, data, n);
    pass->texts.seed = pass->lists.seed = pass->group_keys.seed = pass->errors.seed = seed;
    pass->fields = PyMem_Malloc((size_t)pass->width * sizeof *pass->fields);
    pass->kept = PyList_New(0);
    if (!pass->fields || !pass->kept) return no_memory();
    int done = add_rows(pass);
    return done < 0 ? none() : done ? counts_of(pass) : NULL;
}

static int take_numbers(Pass *pass, PyObject *columns, PyObject *limits) {
    if (pass->line < 0 || pass->width < 2 || pass->width > MAX_WIDTH || PyTuple_Size(columns) != READ || PyTuple_Size(limits) > MAX_BANDS)
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
    if (!PyArg_ParseTuple(args, "y*LiO!y#O!O!O!OOOOOOO", &view, &pass->line, &pass->width, &PyTuple_Type, &columns, &source,
                          &source_size, &PyTuple_Type, &limits, &PyList_Type, &pass->lines, &PyDict_Type,
                          &pass->queries, &pass->checks, &pass->error, &pass->kind, &pass->other, &pass->llm, &pass->again, &pass->encode)) {
        PyMem_Free(pass);
        return NULL;
    }
    pass->source.p = (const u8 *)source;
    pass->source.n = (size_t)source_size;
    if (take_numbers(pass, columns, limits)) found = counts_as_objects(pass, &view);
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

/* record_ends(data, narrow) */
static PyObject *record_ends(PyObject *module, PyObject *args) {
    Py_buffer view;
    Scan scan;
    int narrow = 0;
    Numbers newlines = {NULL, 0, 0}, ends = {NULL, 0, 0};
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*|p", &view, &narrow)) return NULL;
    scan_begin(&scan, view.buf, (size_t)view.len);
    scan.wide &= !narrow;
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

/* count_newlines(data, narrow) */
static PyObject *count_newlines(PyObject *module, PyObject *args) {
    Py_buffer view;
    int narrow = 0;
    size_t (*newlines_of)(const u8 *, size_t) = newlines_plainly;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*|p", &view, &narrow)) return NULL;
#ifdef HAS_WIDE
    if (!narrow && wide_here()) newlines_of = newlines_widely;
#endif
    size_t found = newlines_of(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromSize_t(found);
}

/* CRC-32 as zlib computes it, eight bytes a step: `crcs[k][b]` is the sum of byte b with k zeros behind it. */
static uint32_t crcs[8][256];

static void make_crcs(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        crcs[0][byte] = crc;
    }
    for (int behind = 1; behind < 8; behind++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crcs[behind - 1][byte];
            crcs[behind][byte] = crc >> 8 ^ crcs[0][crc & 255];
        }
}

static uint32_t crc_of(const u8 *at, const u8 *end) {
    uint32_t crc = ~0u;
    for (; end - at >= 8; at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crcs[7][low & 255] ^ crcs[6][low >> 8 & 255] ^ crcs[5][low >> 16 & 255] ^ crcs[4][low >> 24] ^
              crcs[3][at[4]] ^ crcs[2][at[5]] ^ crcs[1][at[6]] ^ crcs[0][at[7]];
    }
    for (; at < end; at++) crc = crc >> 8 ^ crcs[0][(crc ^ *at) & 255];
    return ~crc;
}

static int is_blank(u8 byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* line_sums(data): of the lines that are not blank, without the white space around them. */
static PyObject *line_sums(PyObject *module, PyObject *args) {
    Py_buffer view;
    u64 count = 0, codes = 0, squares = 0, carried = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &view)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    const u8 *at = view.buf, *end = at + view.len;
    while (at < end) {
        const u8 *newline = memchr(at, '\n', (size_t)(end - at)), *last = newline ? newline : end;
        const u8 *next = newline ? newline + 1 : end;
        while (at < last && is_blank(*at)) at++;
        while (at < last && is_blank(last[-1])) last--;
        if (at < last) {
            u64 code = crc_of(at, last), square = code * code;
            count++;
            codes += code;
            squares += square;
            carried += squares < square;
        }
        at = next;
    }
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&view);
    return Py_BuildValue("(KKKK)", count, codes, carried, squares);
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
    {"count_newlines", count_newlines, METH_VARARGS, "See _rows.pyi."},
    {"line_sums", line_sums, METH_VARARGS, "See _rows.pyi."},
    {"plan_rows", plan_rows, METH_VARARGS, "See _rows.pyi."},
    {"record_ends", record_ends, METH_VARARGS, "See _rows.pyi."},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    make_crcs();
    PyObject *text = PyUnicode_FromString("evalq");
    if (!text) return -1;
    seed = (u64)PyObject_Hash(text); /* another in each process */
    Py_DECREF(text);
    return PyModule_AddStringConstant(module, "SOURCE", SOURCE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_rows", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
