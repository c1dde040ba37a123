/* What a row leaves: its line of records.jsonl, its time in a band, and its packed row with its Query ID. */

#ifndef EVALQ_LINES_H
#define EVALQ_LINES_H

#include "plan.h"

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

/* The digits of a number from 0 on, in `out` (20 bytes); how many. */
static size_t put_number(long long number, char *out) {
    char reversed[20];
    size_t n = 0, i;
    do reversed[n++] = (char)('0' + number % 10);
    while (number /= 10);
    for (i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    return n;
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

/* The line of records.jsonl and the packed row of a row. */
static int write_row(Pass *pass, long long line, long number, Text id, int timed, double seconds) {
    char digits[24];
    u8 room[24];
    PyObject *time_made = NULL, *llm_made = NULL;
    Kind *kind = pass->kinds[number];
    Text time, llm = {NULL, 0};
    int good = count_time(pass, kind, timed, seconds, room, &time, &time_made) && read_llm(pass, number, &llm, &llm_made);
    if (good) {
        size_t size = put_number(line, digits);
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

#endif
