/* SPDX-License-Identifier: Apache-2.0 */
/* millrace._fast: what runs for every element. Pulling a block, and making Python objects of its
 * values; everything else is Python over _ffi.
 *
 *   Memory     the rows of a column, exported through the buffer protocol. The numpy arrays that
 *              view it keep it, and it keeps the library's buffer.
 *   Iterator   the base of millrace.Iterator: __next__ in C.
 *   guarded    calls a function whose waits Ctrl-C ends.
 *
 * Pointers come from _ffi as integers. */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <millrace/millrace.h>

/* Replaces the reference at *slot. */
static void set_reference(PyObject **slot, PyObject *value)
{
    PyObject *old = *slot;
    *slot = value;
    Py_XDECREF(old);
}

/* ---- what Python gives us once (setup) ---- */

static PyObject *ndarray, *empty, *object_dtype, *ragged_class, *make_dataset, *fork_error,
    *bfloat16_array;
static PyObject *dtypes[MR_N_DTYPES];  /* numpy dtypes; NULL: none */
static PyObject *scalars[MR_N_DTYPES]; /* types of numpy scalars */
static PyTypeObject *memory_type;

/* ---- processes and signals ---- */

/* Counts the forks between the import and this process: what another count has seen is not ours. */
static unsigned generation;
static _Thread_local int in_main = -1; /* -1: not known yet */

static bool in_main_thread(void)
{
    if (in_main < 0)
        in_main = syscall(SYS_gettid) == getpid();
    return in_main;
}

/* Python's handler of SIGINT only sets a flag, which nothing looks at while the main thread waits
 * in the library. Ours, which calls Python's, also ends that wait.
 *
 * The kernel runs a handler in any thread that does not block the signal. There it would end the
 * wait before Python's flag is set, or after the main thread has freed what it ends: it sends the
 * signal on to the main thread, which thus runs every handler. */
typedef struct wait_targets { /* of which one is not NULL, as a rule */
    _Atomic(mr_iterator *) it;
    _Atomic(mr_cancel *) c;
    _Atomic(mr_dist_iterator *) d;
} wait_targets;

typedef struct wait {
    wait_targets to;
    atomic_bool woken;   /* it was ended */
    struct wait *before; /* of which a handler of a signal began this one */
} wait;

static _Atomic(wait *) waiting; /* of the main thread, the innermost one */
static struct sigaction chained;

/* In a child: the wait is the parent's. */
static void forked(void)
{
    generation++;
    in_main = 1;
    atomic_store(&waiting, NULL);
}

static void end_wait(wait *w)
{
    mr_iterator *it = atomic_load(&w->to.it);
    mr_cancel *c = atomic_load(&w->to.c);
    mr_dist_iterator *d = atomic_load(&w->to.d);
    if (it || c || d)
        atomic_store(&w->woken, true);
    if (it)
        mr_iterator_cancel(it);
    if (c)
        mr_cancel_trigger(c);
    if (d)
        mr_dist_iterator_cancel(d);
}

static void on_interrupt(int number, siginfo_t *info, void *context)
{
    const pid_t main_thread = getpid();
    if (syscall(SYS_gettid) != main_thread) { /* not in_main_thread, which may allocate here */
        int err = errno;
        syscall(SYS_tgkill, main_thread, main_thread, number);
        errno = err;
        return;
    }
    wait *w = atomic_load(&waiting);
    if (w)
        end_wait(w);
    if (chained.sa_flags & SA_SIGINFO)
        chained.sa_sigaction(number, info, context);
    else if (chained.sa_handler != SIG_DFL && chained.sa_handler != SIG_IGN)
        chained.sa_handler(number);
}

static void chain_interrupts(void)
{
    struct sigaction now;
    if (sigaction(SIGINT, NULL, &now) != 0)
        return;
    bool with_info = now.sa_flags & SA_SIGINFO;
    if (with_info ? now.sa_sigaction == on_interrupt
                  : now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)
        return;
    chained = now;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = on_interrupt;
    sigaction(SIGINT, &now, NULL);
}

/* What Python's handler raised in a function that the library called in the main thread: it is
 * raised again once the library has returned. NULL: nothing. */
static PyObject *raised_within;

/* raise_later(exception) */
static PyObject *raise_later(PyObject *self, PyObject *exception)
{
    (void)self;
    Py_INCREF(exception);
    set_reference(&raised_within, exception);
    Py_RETURN_NONE;
}

static bool was_raised(void)
{
    PyObject *e = raised_within;
    if (!e || !in_main_thread())
        return false;
    raised_within = NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return true;
}

/* raise_now(): raises what raise_later got, if anything. */
static PyObject *raise_now(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return was_raised() ? NULL : Py_NewRef(Py_None);
}

/* true: the wait was ended by an interrupt. */
static bool wait_over(wait *w)
{
    if (!in_main_thread())
        return false;
    atomic_store(&waiting, w->before);
    return atomic_load(&w->woken);
}

/* Begins a wait that Ctrl-C ends; w says of what, and must be over before it is freed. false: an
 * exception is set. */
static bool wait_begins(wait *w)
{
    if (!in_main_thread())
        return true;
    chain_interrupts();
    w->before = atomic_load(&waiting);
    atomic_store(&waiting, w);
    /* What came before was seen by Python alone, or in a finalizer. */
    return PyErr_CheckSignals() == 0 && !was_raised();
}

/* guarded(iterator, cancel, f, distributed=0): f(), which waits in calls that these (0: none) end.
 * True: an interrupt ended or met it, and the program's handler raised nothing. */
static PyObject *guarded(PyObject *self, PyObject *args)
{
    (void)self;
    Py_ssize_t it, cancel, distributed = 0;
    PyObject *call;
    if (!PyArg_ParseTuple(args, "nnO|n", &it, &cancel, &call, &distributed))
        return NULL;
    wait w = {.to = {(mr_iterator *)it, (mr_cancel *)cancel, (mr_dist_iterator *)distributed}};
    if (!wait_begins(&w)) {
        (void)wait_over(&w);
        return NULL;
    }
    /* Here, since what a handler raises may keep code in Python from setting it back. */
    mr_cancel *before = cancel ? mr_cancel_set_thread((mr_cancel *)cancel) : NULL;
    PyObject *out = PyObject_CallObject(call, NULL);
    if (cancel)
        mr_cancel_set_thread(before);
    if (!wait_over(&w)) {
        Py_XDECREF(out);
        return out && !was_raised() ? Py_NewRef(Py_False) : NULL;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(out);
    /* What Python's handler raises says why the call was cancelled. */
    bool raised = was_raised() || PyErr_CheckSignals() != 0;
    if (!raised && type) {
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return raised ? NULL : Py_NewRef(Py_True);
}

/* ---- Memory ---- */

typedef struct memory {
    PyObject_HEAD mr_array array; /* its own reference */
    void *data;
    Py_ssize_t size;
    bool read_only;
    unsigned generation;
} memory;

/* The rows [row, row + 1) of a, of which `size` bytes at data are exported. */
static PyObject *memory_new(const mr_array *a, size_t row, const void *data, size_t size,
                            bool read_only)
{
    static char nothing[1];
    memory *m = PyObject_New(memory, memory_type);
    if (!m)
        return NULL;
    mr_array_slice(&m->array, a, row, 1);
    m->data = data && size ? (void *)(uintptr_t)data : nothing;
    m->size = (Py_ssize_t)size;
    m->read_only = read_only;
    m->generation = generation;
    return (PyObject *)m;
}

static void memory_dealloc(PyObject *self)
{
    memory *m = (memory *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (m->generation == generation) { /* else its locks may be held by threads that are not here */
        /* The owner of the memory may be Python, whose code must not see an exception in flight. */
        PyObject *error, *value, *traceback;
        PyErr_Fetch(&error, &value, &traceback);
        mr_array_reset(&m->array);
        PyErr_Restore(error, value, traceback);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static int memory_buffer(PyObject *self, Py_buffer *view, int flags)
{
    memory *m = (memory *)self;
    return PyBuffer_FillInfo(view, self, m->data, m->size, m->read_only, flags);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "Memory of the library, which the arrays that view it keep alive."},
    {Py_tp_dealloc, memory_dealloc},
    {Py_bf_getbuffer, memory_buffer},
    {0, NULL}};
static PyType_Spec memory_spec = {.name = "millrace._fast.Memory",
                                  .basicsize = sizeof(memory),
                                  .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  .slots = memory_slots};

/* ---- values ---- */

enum text { TEXT_BYTES, TEXT_STR };

/* While a thread is in a call of an iterator, a handler of a signal or a finalizer may call it
 * again in the same thread: what it may do then. */
enum doing {
    WORKING,    /* nothing */
    CONVERTING, /* next() makes objects of the current block: read */
    PAUSED      /* anything */
};

typedef struct iterator {
    PyObject_HEAD mr_iterator *it; /* NULL: not opened, or closed */
    mr_block block;
    PyObject *plan;     /* structure: an int (a leaf), a tuple of plans, or a dict of plans */
    PyObject *convert;  /* called with each array; NULL: nothing */
    PyObject *arrow;    /* makes Arrow arrays of a leaf and its column; NULL: none are made */
    bool arrow_numbers; /* of numbers too, not of strings alone */
    bool *ragged;       /* by leaf: the elements are Ragged */
    bool *writable;     /* by leaf: those of the current block */
    size_t n_leaves;
    enum text text;
    bool interrupted; /* its waits were ended: it must be resumed */
    bool undelivered; /* next() has not returned the row of the current block yet */
    bool closing;     /* by another thread, which waits for the lock: no wait may begin */
    PyThread_type_lock lock;
    unsigned long owner; /* the thread that has the lock; 0: none */
    enum doing doing;    /* what that thread does */
    unsigned generation;
} iterator;

static PyObject *shape_tuple(const int64_t *shape, int rank)
{
    PyObject *t = PyTuple_New(rank);
    for (int i = 0; t && i < rank; i++) {
        PyObject *n = PyLong_FromLongLong(shape[i]);
        if (!n || PyTuple_SetItem(t, i, n) != 0) {
            Py_DECREF(t);
            return NULL;
        }
    }
    return t;
}

static PyObject *text_object(const iterator *self, const mr_bytes *s)
{
    if (self->text == TEXT_STR)
        return PyUnicode_DecodeUTF8(s->size ? s->data : "", (Py_ssize_t)s->size, NULL);
    return PyBytes_FromStringAndSize(s->size ? s->data : "", (Py_ssize_t)s->size);
}

/* An array of objects of n strings. */
static PyObject *text_array(const iterator *self, const mr_bytes *s, size_t n, PyObject *shape)
{
    PyObject *array = PyObject_CallFunctionObjArgs(empty, shape, object_dtype, NULL);
    Py_buffer view;
    if (!array || n == 0)
        return array;
    if (PyObject_GetBuffer(array, &view, PyBUF_WRITABLE | PyBUF_ND | PyBUF_FORMAT) != 0) {
        Py_DECREF(array);
        return NULL;
    }
    PyObject **slots = view.buf;
    size_t i = 0;
    for (; i < n; i++) {
        PyObject *x = text_object(self, &s[i]);
        if (!x)
            break;
        set_reference(&slots[i], x);
    }
    PyBuffer_Release(&view);
    if (i < n)
        Py_CLEAR(array);
    return array;
}

/* An array of the n values at data, which row `row` of a keeps alive. */
static PyObject *number_array(const mr_array *a, size_t row, const void *data, size_t n,
                              PyObject *shape, bool writable)
{
    PyObject *m = memory_new(a, row, data, n * mr_dtype_size(a->dtype), !writable);
    PyObject *out = NULL;
    if (m)
        out = PyObject_CallFunctionObjArgs(ndarray, shape, dtypes[a->dtype], m, NULL);
    Py_XDECREF(m);
    return out;
}

static PyObject *scalar(mr_dtype t, const void *p)
{
    PyObject *x = NULL;
    switch (t) {
    case MR_BOOL:
        x = PyBool_FromLong(*(const bool *)p);
        break;
    case MR_INT8:
        x = PyLong_FromLong(*(const int8_t *)p);
        break;
    case MR_INT16:
        x = PyLong_FromLong(*(const int16_t *)p);
        break;
    case MR_INT32:
        x = PyLong_FromLong(*(const int32_t *)p);
        break;
    case MR_INT64:
        x = PyLong_FromLongLong(*(const int64_t *)p);
        break;
    case MR_UINT8:
        x = PyLong_FromLong(*(const uint8_t *)p);
        break;
    case MR_UINT16:
        x = PyLong_FromLong(*(const uint16_t *)p);
        break;
    case MR_UINT32:
        x = PyLong_FromUnsignedLong(*(const uint32_t *)p);
        break;
    case MR_UINT64:
        x = PyLong_FromUnsignedLongLong(*(const uint64_t *)p);
        break;
    case MR_FLOAT16:
        x = PyFloat_FromDouble((double)mr_half_to_float(*(const uint16_t *)p));
        break;
    case MR_BFLOAT16:
        x = PyFloat_FromDouble((double)mr_bfloat_to_float(*(const uint16_t *)p));
        break;
    case MR_FLOAT32:
        x = PyFloat_FromDouble((double)*(const float *)p);
        break;
    case MR_FLOAT64:
        x = PyFloat_FromDouble(*(const double *)p);
        break;
    case MR_STRING:
    case MR_DATASET:
    case MR_N_DTYPES:
        PyErr_SetString(PyExc_SystemError, "not a number");
        return NULL;
    }
    PyObject *out = x ? PyObject_CallFunctionObjArgs(scalars[t], x, NULL) : NULL;
    Py_XDECREF(x);
    return out;
}

/* An array of the tensor at data: of numbers or of strings. */
static PyObject *tensor(const iterator *self, const mr_array *a, size_t row, const void *data,
                        const int64_t *shape, int rank, bool writable)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)shape[i];
    if (rank == 0 && a->dtype == MR_STRING)
        return text_object(self, data);
    if (rank == 0 && !self->convert)
        return scalar(a->dtype, data);
    PyObject *sizes = shape_tuple(shape, rank), *out;
    if (!sizes)
        return NULL;
    if (a->dtype == MR_STRING)
        out = text_array(self, data, n, sizes);
    else
        out = number_array(a, row, data, n, sizes, writable);
    Py_DECREF(sizes);
    PyObject *convert = a->dtype == MR_STRING ? NULL : self->convert;
    if (!convert && a->dtype == MR_BFLOAT16)
        convert = bfloat16_array;
    if (out && convert) {
        PyObject *made = PyObject_CallFunction(convert, "Oi", out, (int)a->dtype);
        Py_DECREF(out);
        return made;
    }
    return out;
}

/* Ragged(values, row_splits) of a row whose axis 1 is ragged. */
static PyObject *ragged(const iterator *self, const mr_array *a, size_t row, const mr_row *r,
                        bool writable)
{
    int64_t shape[MR_MAX_RANK];
    int64_t n = r->shape[0];
    shape[0] = r->splits[n];
    for (int i = 2; i < a->rank; i++)
        shape[i - 1] = r->shape[i];
    PyObject *values = tensor(self, a, row, r->data, shape, a->rank - 1, writable);
    if (!values)
        return NULL;
    int64_t count = n + 1;
    PyObject *sizes = shape_tuple(&count, 1), *view = NULL, *out = NULL;
    PyObject *m = memory_new(a, row, r->splits, (size_t)count * sizeof *r->splits, true);
    if (sizes && m)
        view = PyObject_CallFunctionObjArgs(ndarray, sizes, dtypes[MR_INT64], m, NULL);
    if (view)
        out = PyObject_CallFunctionObjArgs(ragged_class, values, view, NULL);
    Py_XDECREF(view);
    Py_XDECREF(m);
    Py_XDECREF(sizes);
    Py_DECREF(values);
    return out;
}

/* Row `row` of leaf `leaf` of the block. */
static PyObject *leaf_object(const iterator *self, size_t leaf, size_t row)
{
    const mr_array *a = &self->block.columns[leaf];
    bool writable = self->writable[leaf];
    if (self->arrow && a->storage != MR_DATASETS && (self->arrow_numbers || a->dtype == MR_STRING))
        return PyObject_CallFunction(self->arrow, "nn", (Py_ssize_t)leaf, (Py_ssize_t)(uintptr_t)a);
    switch (a->storage) {
    case MR_DENSE:
    case MR_BYTES: {
        PyObject *x = tensor(self, a, row, mr_array_at(a, row), a->shape, a->rank, writable);
        if (!x || !self->ragged[leaf])
            return x;
        PyObject *out = PyObject_CallMethod(ragged_class, "_of_dense", "O", x);
        Py_DECREF(x);
        return out;
    }
    case MR_RAGGED: {
        const mr_row *r = (const mr_row *)a->data + row;
        if (r->splits)
            return ragged(self, a, row, r, writable);
        PyObject *x = tensor(self, a, row, r->data, r->shape, a->rank, writable);
        if (!x || !self->ragged[leaf])
            return x;
        PyObject *out = PyObject_CallMethod(ragged_class, "_of_dense", "O", x);
        Py_DECREF(x);
        return out;
    }
    case MR_DATASETS:
        return PyObject_CallFunction(make_dataset, "n",
                                     (Py_ssize_t)(uintptr_t)((mr_dataset **)a->data)[row]);
    case MR_PLACED:
        break;
    }
    PyErr_SetString(PyExc_SystemError, "a column without values");
    return NULL;
}

static PyObject *structure(const iterator *self, PyObject *plan, size_t row)
{
    if (PyLong_Check(plan))
        return leaf_object(self, PyLong_AsSize_t(plan), row);
    if (PyTuple_Check(plan)) {
        Py_ssize_t n = PyTuple_Size(plan);
        PyObject *out = PyTuple_New(n);
        for (Py_ssize_t i = 0; out && i < n; i++) {
            PyObject *x = structure(self, PyTuple_GetItem(plan, i), row);
            if (!x || PyTuple_SetItem(out, i, x) != 0)
                Py_CLEAR(out);
        }
        return out;
    }
    PyObject *out = PyDict_New(), *name, *child;
    Py_ssize_t at = 0;
    while (out && PyDict_Next(plan, &at, &name, &child)) {
        PyObject *x = structure(self, child, row);
        if (!x || PyDict_SetItem(out, name, x) != 0)
            Py_CLEAR(out);
        Py_XDECREF(x);
    }
    return out;
}

/* All rows of a column: an array whose axis 0 they are, or a list where they differ. */
static PyObject *column(const iterator *self, size_t leaf)
{
    const mr_array *a = &self->block.columns[leaf];
    if ((a->storage == MR_DENSE || a->storage == MR_BYTES) && !self->ragged[leaf] &&
        a->rank < MR_MAX_RANK) {
        int64_t shape[MR_MAX_RANK];
        shape[0] = (int64_t)a->rows;
        memcpy(shape + 1, a->shape, (size_t)a->rank * sizeof *shape);
        return tensor(self, a, 0, a->data, shape, a->rank + 1, self->writable[leaf]);
    }
    PyObject *rows = PyList_New((Py_ssize_t)a->rows);
    for (size_t i = 0; rows && i < a->rows; i++) {
        PyObject *x = leaf_object(self, leaf, i);
        if (!x || PyList_SetItem(rows, (Py_ssize_t)i, x) != 0)
            Py_CLEAR(rows);
    }
    return rows;
}

/* columns(block, ragged, writable): a list of the columns of a block, whose address is given.
 * writable: arrays may be changed where nothing else sees them. */
static PyObject *columns(PyObject *self, PyObject *args)
{
    (void)self;
    Py_ssize_t address;
    PyObject *raggeds;
    int writable;
    if (!PyArg_ParseTuple(args, "nOp", &address, &raggeds, &writable))
        return NULL;
    const mr_block *b = (const mr_block *)address;
    bool *flags = PyMem_Calloc(2 * b->n_columns + 1, sizeof *flags);
    if (!flags)
        return PyErr_NoMemory();
    /* Borrows the block. */
    iterator reader = {.block = *b, .ragged = flags, .writable = flags + b->n_columns};
    PyObject *out = PyList_New((Py_ssize_t)b->n_columns);
    for (size_t i = 0; i < b->n_columns; i++)
        flags[b->n_columns + i] = writable && mr_array_writable(&b->columns[i], 0);
    for (size_t i = 0; out && i < b->n_columns; i++) {
        PyObject *ragged_axis = PySequence_GetItem(raggeds, (Py_ssize_t)i);
        flags[i] = ragged_axis && PyObject_IsTrue(ragged_axis) == 1;
        PyObject *x = ragged_axis ? column(&reader, i) : NULL;
        Py_XDECREF(ragged_axis);
        if (!x || PyList_SetItem(out, (Py_ssize_t)i, x) != 0)
            Py_CLEAR(out);
    }
    PyMem_Free(flags);
    return out;
}

/* ---- Iterator ---- */

static void raise_status(iterator *self, const mr_status *st)
{
    PyObject *e = PyObject_CallMethod((PyObject *)self, "_error", "n", (Py_ssize_t)(uintptr_t)st);
    if (e) {
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
        Py_DECREF(e);
    }
}

enum access { READ, CHANGE, CANCEL /* a wait of the thread that has the lock ends first */ };

static bool lock_is_free(iterator *self)
{
    if (!PyThread_acquire_lock(self->lock, 0))
        return false;
    self->owner = PyThread_get_thread_ident();
    self->doing = WORKING;
    return true;
}

/* false: an exception is set. *before is for leave. */
static bool enter(iterator *self, enum access access, enum doing *before)
{
    *before = PAUSED;
    if (lock_is_free(self))
        return true;
    if (self->owner == PyThread_get_thread_ident()) {
        *before = self->doing;
        if (*before == PAUSED || (*before == CONVERTING && access == READ)) {
            self->doing = WORKING;
            return true;
        }
        PyErr_SetString(
            PyExc_RuntimeError,
            "this thread is in a call of the iterator, which a handler of a signal or a "
            "finalizer cannot use before that call has returned");
        return false;
    }
    if (access == CANCEL) {
        self->closing = true;
        self->interrupted = true;
        if (self->it)
            mr_iterator_cancel(self->it);
    }
    for (;;) {
        PyThreadState *here = PyEval_SaveThread();
        PyLockStatus status = PyThread_acquire_lock_timed(self->lock, -1, 1);
        PyEval_RestoreThread(here);
        if (status == PY_LOCK_ACQUIRED)
            break;
        if (PyErr_CheckSignals() != 0)
            return false;
    }
    self->owner = PyThread_get_thread_ident();
    self->doing = WORKING;
    return true;
}

/* nested: this call was made within another one of the same thread. */
static void leave(iterator *self, bool nested, enum doing before)
{
    if (nested) {
        self->doing = before;
        return;
    }
    self->owner = 0;
    PyThread_release_lock(self->lock);
}

static bool is_mine(const iterator *self)
{
    return self->owner == PyThread_get_thread_ident();
}

static bool check_process(const iterator *self)
{
    if (self->generation == generation)
        return true;
    PyErr_SetString(fork_error,
                    "this iterator was made in the parent process, and its threads are not in this "
                    "one; make a new iterator after the fork");
    return false;
}

static void drop_block(iterator *self)
{
    self->undelivered = false;
    mr_block_clear(&self->block);
}

/* Runs the handlers of signals. */
static bool handlers_pass(iterator *self)
{
    self->doing = PAUSED;
    bool ok = PyErr_CheckSignals() == 0;
    self->doing = WORKING;
    return ok;
}

/* Pulls the current block. false: an exception is set, or none: the end. If neither is so and there
 * is still no block, it must be called again. */
static bool pull(iterator *self)
{
    mr_status st;
    if (!self->it || self->interrupted) {
        /* Python opens or resumes it. */
        PyObject *opened = PyObject_CallMethod((PyObject *)self, "_open", NULL);
        if (!opened)
            return false;
        Py_DECREF(opened);
        if (!self->it || self->interrupted)
            return false; /* closed: the end */
    }
    self->doing = PAUSED;
    wait w = {.to = {.it = self->it}};
    bool begun = wait_begins(&w);
    self->doing = WORKING;
    /* A handler that returned may have used the iterator. */
    if (!begun || !self->it || self->interrupted || self->undelivered || self->closing) {
        self->interrupted |= wait_over(&w) && self->it;
        return begun && !self->closing;
    }
    PyThreadState *here = PyEval_SaveThread();
    mr_code rc = mr_iterator_next(self->it, 1, &self->block, &st);
    PyEval_RestoreThread(here);
    bool interrupted = wait_over(&w);
    self->interrupted |= interrupted;
    if (rc == MR_OK) {
        self->undelivered = true;
        return !was_raised() && (!interrupted || handlers_pass(self));
    }
    mr_block_clear(&self->block);
    self->doing = PAUSED; /* of what follows, nothing depends on the iterator's state */
    if (rc == MR_END) {
        PyObject *ended = PyObject_CallMethod((PyObject *)self, "_ended", NULL);
        Py_XDECREF(ended);
        self->doing = WORKING;
        return false;
    }
    if (was_raised()) {
        self->interrupted = true;
        self->doing = WORKING;
        return false;
    }
    if (rc != MR_CANCELLED || !self->interrupted) {
        raise_status(self, &st);
        self->doing = WORKING;
        return false;
    }
    return handlers_pass(self); /* true: the program's handler of the signal raised nothing */
}

/* false: an exception is set, or none: the end. */
static bool find_block(iterator *self)
{
    while (!self->undelivered)
        if (!pull(self))
            return false;
    return true;
}

/* The element that is the only row of the block. */
static PyObject *block_object(iterator *self)
{
    for (size_t i = 0; i < self->n_leaves; i++)
        self->writable[i] = mr_array_writable(&self->block.columns[i], 0);
    self->doing = CONVERTING;
    PyObject *out = structure(self, self->plan, 0);
    self->doing = WORKING;
    return out;
}

static PyObject *next_locked(iterator *self)
{
    if (!find_block(self))
        return NULL;
    if (!self->plan) /* the garbage collector has taken it apart */
        return NULL;
    PyObject *out = block_object(self);
    /* KeyboardInterrupt and the like say nothing about the element, which is kept. */
    if (out || PyErr_ExceptionMatches(PyExc_Exception))
        drop_block(self);
    return out;
}

static PyObject *iterator_next(PyObject *o)
{
    iterator *self = (iterator *)o;
    enum doing before;
    if (!check_process(self))
        return NULL;
    bool nested = is_mine(self);
    if (!enter(self, CHANGE, &before))
        return NULL;
    PyObject *out = next_locked(self);
    leave(self, nested, before);
    return out;
}

/* _skip(n): passes over n elements, of which no Python objects are made; returns how many there
 * were. */
static PyObject *iterator_skip(PyObject *o, PyObject *count)
{
    iterator *self = (iterator *)o;
    long long n = PyLong_AsLongLong(count), done = 0;
    enum doing before;
    if ((n < 0 && PyErr_Occurred()) || !check_process(self))
        return NULL;
    bool nested = is_mine(self);
    if (!enter(self, CHANGE, &before))
        return NULL;
    for (; done < n && find_block(self); done++)
        drop_block(self);
    leave(self, nested, before);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(done);
}

static PyObject *iterator_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)args;
    (void)keywords;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    iterator *self = (iterator *)alloc(type, 0);
    if (!self)
        return NULL;
    self->generation = generation;
    self->lock = PyThread_allocate_lock();
    if (!self->lock) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* _attach(iterator, plan, ragged, convert, str, arrow, arrow_numbers): what next() works with. The
 * iterator is borrowed; _detach must be called before it is freed. */
static PyObject *iterator_attach(PyObject *o, PyObject *args)
{
    iterator *self = (iterator *)o;
    Py_ssize_t it;
    PyObject *plan, *raggeds, *convert, *arrow;
    int str, numbers;
    if (!PyArg_ParseTuple(args, "nOOOpOp", &it, &plan, &raggeds, &convert, &str, &arrow, &numbers))
        return NULL;
    Py_ssize_t n = PySequence_Size(raggeds);
    if (n < 0)
        return NULL;
    bool *flags = PyMem_Calloc((size_t)n * 2 + 1, sizeof *flags);
    if (!flags)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = PySequence_GetItem(raggeds, i);
        int yes = x ? PyObject_IsTrue(x) : -1;
        Py_XDECREF(x);
        if (yes < 0) {
            PyMem_Free(flags);
            return NULL;
        }
        flags[i] = yes;
    }
    PyMem_Free(self->ragged);
    self->ragged = flags;
    self->writable = flags + n;
    self->n_leaves = (size_t)n;
    Py_INCREF(plan);
    set_reference(&self->plan, plan);
    PyObject *c = convert == Py_None ? NULL : convert;
    Py_XINCREF(c);
    set_reference(&self->convert, c);
    PyObject *maker = arrow == Py_None ? NULL : arrow;
    Py_XINCREF(maker);
    set_reference(&self->arrow, maker);
    self->arrow_numbers = numbers;
    self->text = str ? TEXT_STR : TEXT_BYTES;
    self->it = (mr_iterator *)it;
    self->interrupted = false;
    Py_RETURN_NONE;
}

static PyObject *iterator_detach(PyObject *o, PyObject *none)
{
    (void)none;
    iterator *self = (iterator *)o;
    mr_iterator *it = self->it;
    self->it = NULL;
    self->undelivered = false;
    if (it && in_main_thread()) { /* in a handler, which closes what the thread is to wait for */
        for (wait *w = atomic_load(&waiting); w; w = w->before) {
            mr_iterator *same = it;
            atomic_compare_exchange_strong(&w->to.it, &same, NULL);
        }
    }
    if (self->generation == generation)
        mr_block_reset(&self->block);
    Py_RETURN_NONE;
}

/* _locked(f, access): calls f() while no other thread is in next. */
static PyObject *iterator_locked(PyObject *o, PyObject *args)
{
    iterator *self = (iterator *)o;
    PyObject *f;
    int access;
    enum doing before;
    if (!PyArg_ParseTuple(args, "Oi", &f, &access) || !check_process(self))
        return NULL;
    bool nested = is_mine(self);
    if (!enter(self, (enum access)access, &before))
        return NULL;
    PyObject *out = PyObject_CallObject(f, NULL);
    leave(self, nested, before);
    return out;
}

/* _try_locked(f): the same, or False if a thread, this one too, is in a call of the iterator. */
static PyObject *iterator_try_locked(PyObject *o, PyObject *f)
{
    iterator *self = (iterator *)o;
    if (self->generation != generation || !lock_is_free(self))
        Py_RETURN_FALSE;
    PyObject *out = PyObject_CallObject(f, NULL);
    leave(self, false, PAUSED);
    if (!out)
        return NULL;
    Py_DECREF(out);
    Py_RETURN_TRUE;
}

/* The address of the block that next() has not returned yet; 0: none. */
static PyObject *iterator_undelivered(PyObject *o, void *none)
{
    (void)none;
    iterator *self = (iterator *)o;
    return PyLong_FromVoidPtr(self->undelivered ? &self->block : NULL);
}

/* _element(address): the element in a block of one row, which is moved from. */
static PyObject *iterator_element(PyObject *o, PyObject *address)
{
    iterator *self = (iterator *)o;
    mr_block *b = PyLong_AsVoidPtr(address);
    if (!b)
        return NULL;
    mr_block_move(&self->block, b);
    PyObject *out = block_object(self);
    mr_block_clear(&self->block);
    return out;
}

static PyObject *iterator_is_interrupted(PyObject *o, void *none)
{
    (void)none;
    iterator *self = (iterator *)o;
    return PyBool_FromLong(self->interrupted);
}

static PyObject *iterator_resumed(PyObject *o, PyObject *none)
{
    (void)none;
    ((iterator *)o)->interrupted = false;
    Py_RETURN_NONE;
}

static PyObject *iterator_is_foreign(PyObject *o, void *none)
{
    (void)none;
    return PyBool_FromLong(((iterator *)o)->generation != generation);
}

static int iterator_traverse(PyObject *o, visitproc visit, void *arg)
{
    iterator *self = (iterator *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->plan);
    Py_VISIT(self->convert);
    Py_VISIT(self->arrow);
    return 0;
}

static int iterator_clear(PyObject *o)
{
    iterator *self = (iterator *)o;
    Py_CLEAR(self->plan);
    Py_CLEAR(self->convert);
    Py_CLEAR(self->arrow);
    return 0;
}

static void iterator_dealloc(PyObject *o)
{
    iterator *self = (iterator *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    iterator_clear(o);
    if (self->generation == generation) {
        PyObject *error, *value, *traceback; /* as in memory_dealloc */
        PyErr_Fetch(&error, &value, &traceback);
        mr_block_reset(&self->block);
        PyErr_Restore(error, value, traceback);
    }
    PyMem_Free(self->ragged);
    if (self->lock)
        PyThread_free_lock(self->lock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(o);
    Py_DECREF(type);
}

static PyObject *iterator_self(PyObject *o)
{
    return Py_NewRef(o);
}

static PyMethodDef iterator_methods[] = {{"_attach", iterator_attach, METH_VARARGS, NULL},
                                         {"_detach", iterator_detach, METH_NOARGS, NULL},
                                         {"_element", iterator_element, METH_O, NULL},
                                         {"_resumed", iterator_resumed, METH_NOARGS, NULL},
                                         {"_skip", iterator_skip, METH_O, NULL},
                                         {"_locked", iterator_locked, METH_VARARGS, NULL},
                                         {"_try_locked", iterator_try_locked, METH_O, NULL},
                                         {NULL, NULL, 0, NULL}};
static PyGetSetDef iterator_members[] = {
    {"_interrupted", iterator_is_interrupted, NULL, NULL, NULL},
    {"_foreign", iterator_is_foreign, NULL, NULL, NULL},
    {"_undelivered", iterator_undelivered, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot iterator_slots[] = {{Py_tp_new, iterator_new},
                                       {Py_tp_dealloc, iterator_dealloc},
                                       {Py_tp_traverse, iterator_traverse},
                                       {Py_tp_clear, iterator_clear},
                                       {Py_tp_iter, iterator_self},
                                       {Py_tp_iternext, iterator_next},
                                       {Py_tp_methods, iterator_methods},
                                       {Py_tp_getset, iterator_members},
                                       {0, NULL}};
static PyType_Spec iterator_spec = {.name = "millrace._fast.Iterator",
                                    .basicsize = sizeof(iterator),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
                                             Py_TPFLAGS_HAVE_GC,
                                    .slots = iterator_slots};

/* ---- the module ---- */

/* setup(ndarray, empty, object dtype, Ragged, Dataset of a pointer, ForkError, array of the bits of
 * bfloat16, {number of a dtype: (numpy dtype, scalar type)}) */
static PyObject *setup(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *types, *number, *pair;
    Py_ssize_t at = 0;
    if (!PyArg_ParseTuple(args, "OOOOOOOO!", &ndarray, &empty, &object_dtype, &ragged_class,
                          &make_dataset, &fork_error, &bfloat16_array, &PyDict_Type, &types))
        return NULL;
    PyObject *kept[] = {ndarray,      empty,      object_dtype,   ragged_class,
                        make_dataset, fork_error, bfloat16_array, types};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        Py_INCREF(kept[i]); /* for the life of the process */
    while (PyDict_Next(types, &at, &number, &pair)) {
        size_t i = PyLong_AsSize_t(number);
        if (i >= MR_N_DTYPES || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_ValueError, "bad table of types");
            return NULL;
        }
        dtypes[i] = PyTuple_GetItem(pair, 0);
        scalars[i] = PyTuple_GetItem(pair, 1);
    }
    Py_RETURN_NONE;
}

static PyObject *process_generation(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromUnsignedLong(generation);
}

/* capsule_pointer(capsule, name): the pointer in it. */
static PyObject *capsule_pointer(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *capsule;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os", &capsule, &name))
        return NULL;
    void *p = PyCapsule_GetPointer(capsule, name);
    return p ? PyLong_FromVoidPtr(p) : NULL;
}

static void capsule_release(PyObject *capsule)
{
    PyObject *error, *value, *traceback;                   /* as in memory_dealloc */
    if (!PyCapsule_IsValid(capsule, "arrow_array_stream")) /* renamed by who took it */
        return;
    struct ArrowArrayStream *s = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    PyErr_Fetch(&error, &value, &traceback);
    if (s->release) {
        Py_BEGIN_ALLOW_THREADS s->release(s);
        Py_END_ALLOW_THREADS
    }
    PyErr_Restore(error, value, traceback);
    free(s);
}

/* stream_capsule(address): a capsule with a copy of an ArrowArrayStream, which is moved. */
static PyObject *stream_capsule(PyObject *self, PyObject *address)
{
    (void)self;
    struct ArrowArrayStream *from = PyLong_AsVoidPtr(address);
    if (!from)
        return NULL;
    struct ArrowArrayStream *s = malloc(sizeof *s);
    if (!s)
        return PyErr_NoMemory();
    *s = *from;
    PyObject *capsule = PyCapsule_New(s, "arrow_array_stream", capsule_release);
    if (!capsule)
        free(s);
    else
        from->release = NULL;
    return capsule;
}

static PyMethodDef functions[] = {{"stream_capsule", stream_capsule, METH_O, NULL},
                                  {"capsule_pointer", capsule_pointer, METH_VARARGS, NULL},
                                  {"setup", setup, METH_VARARGS, NULL},
                                  {"raise_later", raise_later, METH_O, NULL},
                                  {"raise_now", raise_now, METH_NOARGS, NULL},
                                  {"columns", columns, METH_VARARGS, NULL},
                                  {"guarded", guarded, METH_VARARGS, NULL},
                                  {"generation", process_generation, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static int execute(PyObject *module)
{
    memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    PyObject *type = PyType_FromModuleAndSpec(module, &iterator_spec, NULL);
    if (!memory_type || !type)
        return -1;
    if (PyModule_AddObjectRef(module, "Memory", (PyObject *)memory_type) != 0 ||
        PyModule_AddObjectRef(module, "Iterator", type) != 0)
        return -1;
    Py_DECREF(type);
    if (pthread_atfork(NULL, NULL, forked) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef module = {.m_base = PyModuleDef_HEAD_INIT,
                                    .m_name = "_fast",
                                    .m_doc = "What Millrace runs for every element.",
                                    .m_methods = functions,
                                    .m_slots = module_slots};

PyMODINIT_FUNC PyInit__fast(void);
PyMODINIT_FUNC PyInit__fast(void)
{
    return PyModuleDef_Init(&module);
}
