/* What the rows of a chunk of a log add up to, agent by agent, in one pass over its columns. cooperation/columns.py is
   the reference, and counts every chunk in which anything is unusual: turns that are far apart, amounts that a double may
   not hold, sums of too many parts. */

#ifndef EVALQ_COUNTS_H
#define EVALQ_COUNTS_H

#include <stdlib.h>

#include "csv.h"

#define EXACT 4503599627370496.0 /* 2^52, as columns.py has it */
#define FAR ((int64_t)1 << 31)   /* nearer turns have waits whose sum no int64 overflows */
#define MOST_PARTS 8
#define BLOCK_BITS 8             /* as score.py has it */

enum { COOPERATIVE = 1, BETRAYAL = 2 };

typedef struct {
    const int64_t *turns;
    const int32_t *agents, *decisions;
    const double *values;
    const u8 *whole, *kinds; /* the last kind is that of rows without a decision */
    size_t rows, words, many;
} Counted;

typedef struct {
    double value;
    int whole, known;
} Amount;

typedef struct {
    size_t rows, drops;
    int64_t first_turn, last_turn, opening, pending, recoveries, recovery_turns;
    Amount first, last;
    size_t repeats;    /* rows whose turn the agent's row before them has, too */
    int64_t repeated;  /* the first such turn */
    int opens, pends, decided, betrayed, back, parts;
    double part[MOST_PARTS]; /* their sum is that of all drops, exactly */
} Agent;

/* Add to a sum of doubles without rounding (Shewchuk 1997, grow-expansion); 0 where it has too many parts. Doubles are
   only added and subtracted here, so that no compiler may join two roundings into one. */
static int add_part(Agent *own, double more) {
    int kept = 0;
    for (int i = 0; i < own->parts; i++) {
        double part = own->part[i], sum = more + part, other = sum - more;
        double lost = (more - (sum - other)) + (part - other);
        if (lost != 0) own->part[kept++] = lost;
        more = sum;
    }
    if (kept == MOST_PARTS) return 0;
    own->part[kept++] = more;
    own->parts = kept;
    return 1;
}

static int count_amount(Agent *own, double value, int whole) {
    if (value != value) return 1; /* none */
    if (value >= EXACT || value <= -EXACT) return 0;
    if (!own->last.known) {
        own->first.value = value;
        own->first.whole = whole;
        own->first.known = 1;
    } else if (own->last.value - value > 0) {
        if (!add_part(own, own->last.value - value)) return 0;
        own->drops++;
    }
    own->last.value = value;
    own->last.whole = whole;
    own->last.known = 1;
    return 1;
}

static void count_decision(Agent *own, int kind, int64_t turn) {
    if (kind == COOPERATIVE) {
        if (!own->decided) {
            own->opens = 1;
            own->opening = turn;
        }
        if (own->pends && turn > own->pending) {
            own->recoveries++;
            own->recovery_turns += turn - own->pending;
        }
        own->pends = 0;
    } else {
        own->betrayed = own->pends = 1;
        own->pending = turn;
    }
    own->decided = 1;
}

/* Every row to its agent's count, and to that of its decision in `said` (the last one: none). Returns how many rows
   cooperate, or -1 where Python has to count; *ordered is whether turns never go back. Of an agent whose own turns go back
   only the number of rows counts. */
static long long count_rows(const Counted *of, Agent *agents, u64 *said, long long *snapshots, int *ordered) {
    long long cooperative = 0;
    int64_t before = -FAR;
    for (size_t row = 0; row < of->rows; row++) {
        int64_t turn = of->turns[row], word = of->decisions[row];
        if (turn <= -FAR || turn >= FAR) return -1;
        if (turn < before) *ordered = 0;
        before = turn;
        if (word < -1 || word >= (int64_t)of->words || of->agents[row] < 0 || (size_t)of->agents[row] >= of->many)
            return -1;
        Agent *own = agents + of->agents[row];
        int64_t place = word < 0 ? (int64_t)of->words : word;
        int kind = of->kinds[place];
        said[place]++;
        *snapshots += of->values[row] == of->values[row];
        cooperative += kind == COOPERATIVE;
        if (!own->rows++) own->first_turn = turn;
        else if (turn < own->last_turn) own->back = 1;
        else if (turn == own->last_turn && !own->repeats++) own->repeated = turn;
        own->last_turn = turn;
        if (own->back) continue;
        if (kind) count_decision(own, kind, turn);
        if (!count_amount(own, of->values[row], of->whole[row])) return -1;
    }
    return cooperative;
}

/* 256 neighbouring turns in hexadecimal, without leading zeros. */
static size_t hex_of(const u64 *bits, char *out) {
    size_t n = 0;
    for (int digit = 63; digit >= 0; digit--) {
        int value = (int)(bits[digit / 16] >> 4 * (digit % 16) & 15);
        if (n || value) out[n++] = "0123456789abcdef"[value];
    }
    return n;
}

static int add_block(PyObject *blocks, long long number, const u64 *bits) {
    char digits[64], name[24];
    PyObject *mask = PyUnicode_FromStringAndSize(digits, (Py_ssize_t)hex_of(bits, digits));
    PyOS_snprintf(name, sizeof name, "%lld", number);
    int bad = !mask || PyDict_SetItemString(blocks, name, mask) < 0;
    Py_XDECREF(mask);
    return !bad;
}

/* The set of turns, which ascend, as bitmaps by block number; how many they are in *distinct. */
static PyObject *blocks_of(const int64_t *turns, size_t rows, long long *distinct) {
    PyObject *blocks = PyDict_New();
    u64 bits[4] = {0, 0, 0, 0};
    *distinct = 0;
    for (size_t row = 0; blocks && row < rows; row++) {
        int64_t turn = turns[row];
        if (row && turn == turns[row - 1]) continue;
        /* A shift of a negative number is an arithmetic one with every compiler there is. */
        if (row && turn >> BLOCK_BITS != turns[row - 1] >> BLOCK_BITS) {
            if (!add_block(blocks, turns[row - 1] >> BLOCK_BITS, bits)) Py_CLEAR(blocks);
            memset(bits, 0, sizeof bits);
        }
        bits[turn >> 6 & 3] |= (u64)1 << (turn & 63);
        ++*distinct;
    }
    if (blocks && rows && !add_block(blocks, turns[rows - 1] >> BLOCK_BITS, bits)) Py_CLEAR(blocks);
    return blocks;
}

static int compare_turns(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The same of turns in any order. */
static PyObject *blocks_of_any(const Counted *of, long long *distinct) {
    PyObject *blocks;
    int64_t *sorted = PyMem_Malloc(of->rows * sizeof *sorted);
    if (!sorted) return PyErr_NoMemory();
    memcpy(sorted, of->turns, of->rows * sizeof *sorted);
    qsort(sorted, of->rows, sizeof *sorted, compare_turns);
    blocks = blocks_of(sorted, of->rows, distinct);
    PyMem_Free(sorted);
    return blocks;
}

static PyObject *amount_as_object(const Amount *amount) {
    if (!amount->known) return Py_NewRef(Py_None);
    return amount->whole ? PyLong_FromDouble(amount->value) : PyFloat_FromDouble(amount->value);
}

static PyObject *turn_as_object(int known, int64_t turn) {
    return known ? PyLong_FromLongLong(turn) : Py_NewRef(Py_None);
}

static PyObject *parts_of(const Agent *own) {
    PyObject *parts = PyList_New(own->parts);
    for (int i = 0; parts && i < own->parts; i++) {
        PyObject *part = PyFloat_FromDouble(own->part[i]);
        if (!part || PyList_SetItem(parts, i, part) < 0) Py_CLEAR(parts);
    }
    return parts;
}

/* In the order of AgentState's fields, with a sum's parts in place of the sum. */
static PyObject *agent_as_object(const Agent *own) {
    if (own->back)
        return Py_BuildValue("(nOiiOOi[]OOOiiiO)", (Py_ssize_t)own->rows, Py_False, 0, 0, Py_None, Py_None, 0, Py_None,
                             Py_None, Py_False, 0, 0, 0, Py_None);
    return Py_BuildValue("(nOLLNNnNNNNLLnN)", (Py_ssize_t)own->rows, Py_True, (long long)own->first_turn,
                         (long long)own->last_turn, amount_as_object(&own->first), amount_as_object(&own->last),
                         (Py_ssize_t)own->drops, parts_of(own), turn_as_object(own->opens, own->opening),
                         turn_as_object(own->pends, own->pending), PyBool_FromLong(own->betrayed),
                         (long long)own->recoveries, (long long)own->recovery_turns, (Py_ssize_t)own->repeats,
                         turn_as_object(own->repeats != 0, own->repeated));
}

static PyObject *agents_as_objects(const Agent *agents, size_t many) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < many; i++) {
        PyObject *own = agent_as_object(agents + i);
        if (!own || PyList_Append(list, own) < 0) Py_CLEAR(list);
        Py_XDECREF(own);
    }
    return list;
}

/* How often each word was said. */
static PyObject *said_as_object(const u64 *said, size_t words) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < words; i++) {
        PyObject *times = PyLong_FromUnsignedLongLong(said[i]);
        if (!times || PyList_Append(list, times) < 0) Py_CLEAR(list);
        Py_XDECREF(times);
    }
    return list;
}

static PyObject *counted(const Counted *of) {
    PyObject *found = NULL;
    long long distinct = 0, snapshots = 0, cooperative;
    int ordered = 1;
    Agent *agents = PyMem_Calloc(of->many + 1, sizeof *agents);
    u64 *said = PyMem_Calloc(of->words + 1, sizeof *said);
    if (!agents || !said) {
        PyMem_Free(agents);
        PyMem_Free(said);
        return PyErr_NoMemory();
    }
    cooperative = of->rows ? count_rows(of, agents, said, &snapshots, &ordered) : -1;
    if (cooperative < 0) {
        found = Py_NewRef(Py_None);
    } else {
        PyObject *blocks = ordered ? blocks_of(of->turns, of->rows, &distinct) : blocks_of_any(of, &distinct);
        PyObject *all = blocks ? agents_as_objects(agents, of->many) : NULL;
        PyObject *words = all ? said_as_object(said, of->words) : NULL;
        if (words) {
            found = Py_BuildValue("(LNLNNLN)", cooperative, PyBool_FromLong(ordered), ordered ? distinct : 0, blocks, all,
                                  snapshots, words);
        } else {
            Py_XDECREF(blocks);
            Py_XDECREF(all);
        }
    }
    PyMem_Free(agents);
    PyMem_Free(said);
    return found;
}

#endif
