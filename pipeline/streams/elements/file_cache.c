/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/elements/file_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/files/file_lock.h"
#include "pipeline/functions/compiler/draws.h"
#include "pipeline/graph/node.h"
#include "pipeline/log.h"
#include "pipeline/remote/url.h"
#include "pipeline/system/system.h"
#include "pipeline/warn_once.h"

/* ---- paths ---- */

mr_code mr__file_cache_check_path(const char *op, const char *path, mr_status *st)
{
    return path && path[0] ? MR_OK
                           : mr_fail(st, MR_INVALID_ARGUMENT, "%s: path must not be empty", op);
}

bool mr__holds_datasets(const mr_spec *spec)
{
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++)
        if (mr_spec_leaf(spec, i)->dtype == MR_DATASET)
            return true;
    return false;
}

mr_code mr__file_cache_infer(const mr_dataset *self, const void *params, mr_spec **out,
                             mr_status *st)
{
    (void)params;
    const mr_spec *spec = mr_dataset_spec(mr_dataset_input(self, 0));
    if (mr__holds_datasets(spec))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "%s: datasets are not kept in a file that is read again, for its writer would "
            "decide what runs; keep their elements (flat_map first), use cache() in "
            "memory, or save and load(..., allow_datasets=true)",
            mr_dataset_op(self)->name);
    *out = mr_spec_ref(spec);
    return MR_OK;
}

/* Creates a folder, unless it exists. */
static mr_code make_folder(const char *path, mr_status *st)
{
    struct stat info;
    MR_TRY(mr__url_refuse_writing(path, st));
    if (mr__sys->mkdir(path, 0777) == 0 || errno == EEXIST) {
        if (mr__sys->stat(path, &info) != 0)
            return mr_fail_errno(st, errno, "cannot stat %s", path);
        return S_ISDIR(info.st_mode)
                   ? MR_OK
                   : mr_fail(st, MR_FAILED_PRECONDITION, "%s exists and is not a directory", path);
    }
    return mr_fail_errno(st, errno, "cannot create the folder %s", path);
}

mr_code mr__file_cache_path(const char *folder, const char *name, char **out, mr_status *st)
{
    *out = mr_strf("%s/%s", folder, name);
    return *out ? MR_OK : mr_fail_memory(st, strlen(folder), "a path");
}

/* .NAME.lock in the folder of path. */
static char *lock_path_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return mr_strf("%.*s.%s.lock", (int)(name - path), path, name);
}

/* *there: a complete file exists. */
static mr_code look(const mr__file_cache *c, bool *there, mr_status *st)
{
    struct stat info;
    *there = false;
    if (!c->o.reuse)
        return MR_OK;
    if (mr__sys->stat(c->path, &info) == 0) {
        *there = true;
        return MR_OK;
    }
    return errno == ENOENT || errno == ENOTDIR
               ? MR_OK
               : mr_fail_errno(st, errno, "cannot stat %s", c->path);
}

/* ---- what a file was made from ---- */

/* Of the file as this graph writes it, without inputs. */
static mr_code own_origin(const mr__file_cache *c, mr__element_origin *out, mr_status *st)
{
    if (!c->o.graph || !c->o.graph[0])
        return mr__element_origin_of(mr_dataset_input(c->it->node, 0), out, st);
    *out = (mr__element_origin){.fingerprint = strtoull(c->o.graph, NULL, 16),
                                .dataset = mr_dataset_input(c->it->node, 0)};
    return MR_OK;
}

void mr__file_cache_init_shared(void *shared)
{
    mr__file_cache_shared *s = shared;
    mr__lock_init(&s->lock);
}

void mr__file_cache_destroy_shared(void *shared)
{
    mr__file_cache_shared *s = shared;
    mr__lock_destroy(&s->lock);
}

bool mr__file_cache_was_complete(mr__file_cache_shared *s)
{
    mr__lock_take(&s->lock);
    bool was = s->was_complete;
    mr__lock_release(&s->lock);
    return was;
}

void mr__file_cache_restore_shared(mr__file_cache_shared *s, bool was_complete)
{
    mr__lock_take(&s->lock);
    s->was_complete = s->restored = was_complete;
    mr__lock_release(&s->lock);
}

static void note_complete(const mr__file_cache *c)
{
    mr__file_cache_shared *s = c->o.shared;
    if (!s)
        return;
    mr__lock_take(&s->lock);
    s->was_complete = true;
    mr__lock_release(&s->lock);
}

/* The restored position is of a run that had the file, which is not there. */
static mr_code fail_missing(const mr__file_cache *c, mr_status *st)
{
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "%s is not here, but was complete where the position was saved; bring it from "
                   "there, or keep it where all processes of the job find it",
                   c->path);
}

/* If nothing of the input draws, it yields what the file had. */
static mr_code check_missing(const mr__file_cache *c, mr_status *st)
{
    const mr_dataset *input = mr_dataset_input(c->it->node, 0);
    bool draws = mr__dataset_all_props(input) & MR_OP_RANDOM;
    mr__file_cache_shared *s = c->o.shared;
    if (!s)
        return MR_OK;
    mr__lock_take(&s->lock);
    bool had = s->restored;
    mr__lock_release(&s->lock);
    if (had && !draws)
        MR_TRY(mr__graph_draws(input, &draws, st));
    return had && draws ? fail_missing(c, st) : MR_OK;
}

/* The file as it is now was checked. */
static bool was_checked(const mr__file_cache *c, const struct stat *is)
{
    mr__file_cache_shared *s = c->o.shared;
    if (!s)
        return false;
    mr__lock_take(&s->lock);
    bool same = s->checked && s->device == is->st_dev && s->inode == is->st_ino &&
                s->size == is->st_size && s->seconds == is->st_mtim.tv_sec &&
                s->nanoseconds == is->st_mtim.tv_nsec;
    mr__lock_release(&s->lock);
    return same;
}

static void set_checked(const mr__file_cache *c, const struct stat *is)
{
    mr__file_cache_shared *s = c->o.shared;
    if (!s)
        return;
    mr__lock_take(&s->lock);
    s->checked = true;
    s->device = is->st_dev;
    s->inode = is->st_ino;
    s->size = is->st_size;
    s->seconds = is->st_mtim.tv_sec;
    s->nanoseconds = is->st_mtim.tv_nsec;
    mr__lock_release(&s->lock);
}

/* The complete file is of this graph and of the files as they are, which is checked once in a run;
 * what it was made from is what caches above are made from. */
static mr_code check_origin(mr__file_cache *c, mr_status *st)
{
    mr__element_origin found, now;
    struct stat is = {0};
    bool has = false;
    if (mr__sys->stat(c->path, &is) != 0)
        return mr_fail_errno(st, errno, "cannot stat %s", c->path);
    bool known = was_checked(c, &is);
    if (known && !mr__iter_is_recorded(c->it))
        return MR_OK;
    MR_TRY(mr__element_file_origin(c->path, &found, &has, st));
    if (!has) {
        mr__warn_once(
            "%s was written by an earlier version and does not say which graph and files it "
            "was made from; if they may have changed, remove it to have it written again",
            c->path);
        return MR_OK;
    }
    mr_code rc = known ? MR_OK : own_origin(c, &now, st);
    if (rc == MR_OK && !known) {
        rc = mr__element_origin_check(&found, &now, c->path, c->o.strict, st);
        mr__element_origin_reset(&now);
    }
    for (size_t i = 0; i < found.n && rc == MR_OK; i++)
        rc = mr__iter_note_again(c->it, &found.inputs[i], st);
    mr__element_origin_reset(&found);
    if (rc == MR_OK && !known)
        set_checked(c, &is);
    return rc;
}

/* ---- writing ---- */

/* Only the end of the input completes the file. */
static void waits_for_end(mr__file_cache *c, bool does)
{
    mr__iter_waits_for_end(c->it, does);
}

static void stop_writing(mr__file_cache *c)
{
    waits_for_end(c, false);
    mr__element_writer_abort(c->writer);
    c->writer = NULL;
    mr__file_unlock(c->lock_path, c->lock);
    c->lock = -1;
}

/* An error of the file itself: none of the elements is at fault. */
static mr_code of_file(mr_code rc, mr_status *st)
{
    if (rc < 0 && rc != MR_CANCELLED)
        mr_status_of_no_element(st);
    return rc;
}

/* Takes the lock and starts the file. The result is in c->mode. */
static mr_code begin(mr__file_cache *c, mr_status *st)
{
    bool busy, there;
    MR_TRY(mr__file_lock(c->lock_path, &c->lock, &busy, st));
    if (busy && c->o.pass_if_busy) {
        c->mode = MR_FC_PASSING;
        return MR_OK;
    }
    if (busy)
        return mr_fail(st, MR_ALREADY_EXISTS,
                       "%s is being written by another iterator or process; wait for it, or give "
                       "this one another name",
                       c->path);
    mr_code rc = look(c, &there, st);
    if (rc == MR_OK && there && c->rows == 0) { /* completed since this iterator was opened */
        c->mode = MR_FC_READING;
        mr_iter_close_input(c->it, 0);
    } else if (rc == MR_OK && there)
        c->mode = MR_FC_PASSING;
    else if (rc == MR_OK)
        rc = mr__element_writer_open(&c->writer, c->path, c->it->spec, st);
    if (rc == MR_OK && c->writer) {
        c->expected = mr__dataset_fixed_count(mr_dataset_input(c->it->node, 0));
        waits_for_end(c, c->expected < 0);
    } else
        stop_writing(c);
    return rc;
}

/* Writes the rows of b. After a permanent failure nothing more is written. */
static mr_code add(mr__file_cache *c, const mr_block *b, mr_status *st)
{
    mr_status error;
    mr_code rc = mr__element_writer_add(c->writer, b, &error);
    if (rc == MR_OK) {
        c->rows += b->rows;
        return MR_OK;
    }
    if (error.sys_errno != ENOMEM) {
        stop_writing(c);
        c->mode = MR_FC_PASSING;
    }
    if (st)
        *st = error;
    return of_file(rc, st);
}

/* The file is complete: it gets its name. */
static mr_code complete(mr__file_cache *c, mr_status *st)
{
    mr__element_origin origin = {0};
    mr_code rc = c->o.reuse ? own_origin(c, &origin, st) : MR_OK;
    if (rc == MR_OK) {
        mr__element_writer *w = c->writer;
        c->writer = NULL;
        rc = mr__element_writer_close(w, c->o.reuse ? &origin : NULL, &c->inputs, st);
    }
    stop_writing(c);
    if (rc == MR_OK)
        note_complete(c);
    mr__element_origin_reset(&origin);
    return rc;
}

static mr_code end_writing(mr__file_cache *c, mr_status *st)
{
    c->mode = MR_FC_ENDED;
    mr_code rc = complete(c, st);
    return rc == MR_OK ? MR_END : of_file(rc, st);
}

static bool has_all(const mr__file_cache *c)
{
    return c->expected >= 0 && c->rows == (uint64_t)c->expected;
}

/* The next rows of the input, not in the consumer's memory. */
static mr_code pull(mr__file_cache *c, size_t want, mr_block *out, mr_status *st)
{
    if (c->ahead.rows == 0) {
        const mr_destination *destination = out->destination;
        if (c->writer)
            out->destination = NULL; /* written rows must not be in the consumer's memory */
        mr_code rc = mr_iter_pull(c->it, 0, want, out, st);
        out->destination = destination;
        return rc;
    }
    mr_block_move(out, &c->ahead);
    return MR_OK;
}

static mr_code write_next(mr__file_cache *c, size_t want, mr_block *out, mr_status *st)
{
    mr_code rc = pull(c, want, out, st);
    if (c->mode == MR_FC_PASSING)
        return rc;
    if (rc == MR_END)
        return end_writing(c, st);
    if (rc < 0) { /* there may be fewer elements now */
        c->expected = MR_UNKNOWN_COUNT;
        waits_for_end(c, true);
    }
    if (rc == MR_OK) {
        rc = add(c, out, st);
        if (rc != MR_OK)
            mr_block_move(&c->ahead, out);
    }
    if (rc == MR_OK && has_all(c)) { /* the consumer may not pull the end */
        mr_status error;
        c->mode = MR_FC_PASSING;
        if (of_file(complete(c, &error), &error) != MR_OK)
            mr_iter_defer(c->it, &error);
    }
    return rc;
}

/* ---- reading ---- */

static mr_code open_reader(mr__file_cache *c, mr_status *st)
{
    if (c->reader)
        return MR_OK;
    MR_TRY(mr__element_reader_open(&c->reader, c->it, c->path, st));
    const mr_spec *found = mr__element_reader_spec(c->reader);
    if (mr_spec_same_types(found, c->it->spec)) {
        mr_code rc = check_origin(c, st);
        if (rc != MR_OK) {
            mr__element_reader_close(c->reader);
            c->reader = NULL;
        }
        return rc;
    }
    char x[160], y[160];
    mr_spec_format(found, x, sizeof x);
    mr_spec_format(c->it->spec, y, sizeof y);
    mr__element_reader_close(c->reader);
    c->reader = NULL;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "%s holds elements of %s, but here they are %s; remove it, or give another name",
                   c->path, x, y);
}

/* Rows written without identities have no identities. */
static mr_code set_identities(const mr_iter *it, mr_block *b, mr_status *st)
{
    if (!mr_iter_identities(it)) {
        mr_identities_reset(&b->ids);
        return MR_OK;
    }
    if (b->ids.ids)
        return MR_OK;
    mr_identity none[1];
    mr_identities nothing = {.ids = none, .offsets = (const uint64_t[]){0, 0}};
    return mr_identities_ungroup(&b->ids, &nothing, 0, b->rows, st);
}

static mr_code read_next(mr__file_cache *c, size_t want, mr_block *out, mr_status *st)
{
    mr_status error;
    mr_code rc = open_reader(c, &error);
    if (rc < 0 && error.sys_errno != ENOMEM && rc != MR_CANCELLED)
        c->mode = MR_FC_ENDED;
    if (rc == MR_OK)
        rc = mr__element_reader_next(c->reader, c->it->spec, want, out, &error);
    of_file(rc, &error);
    if (rc == MR_OK)
        rc = set_identities(c->it, out, &error);
    if (rc == MR_OK)
        c->rows += out->rows;
    if (rc < 0 && st)
        *st = error;
    return rc;
}

/* ---- slots ---- */

mr_code mr__file_cache_open(mr_iter *it, char *path, const mr__file_cache_opts *opts, mr_status *st)
{
    mr__file_cache *c = it->state;
    bool there;
    *c = (mr__file_cache){
        .it = it, .o = *opts, .path = path, .lock = -1, .expected = MR_UNKNOWN_COUNT};
    mr__iter_record_inputs(it, &c->inputs);
    c->lock_path = lock_path_of(path);
    if (!c->lock_path)
        return mr_fail_memory(st, strlen(path), "a path");
    MR_TRY(mr__url_refuse_writing(path, st)); /* whether it is there or not */
    MR_TRY(of_file(look(c, &there, st), st));
    if (there) {
        c->mode = MR_FC_READING;
        note_complete(c);
        return MR_OK;
    }
    MR_TRY(of_file(check_missing(c, st), st));
    MR_TRY(mr_iter_open_input(it, 0, st));
    if (mr_iter_keeps_positions(it) && mr_iter_replays(it->inputs[0]))
        MR_TRY(mr_iter_position(it->inputs[0], &c->position, st));
    return MR_OK;
}

mr_code mr__file_cache_open_folder(mr_iter *it, const char *path, const char *own,
                                   const mr__file_cache_opts *opts, mr_status *st)
{
    char *folder, *below = NULL, *file = NULL;
    MR_TRY(mr_iter_file_path(it, path, &folder, st));
    mr_code rc = make_folder(folder, st);
    if (rc == MR_OK && own)
        rc = mr__file_cache_path(folder, own, &below, st);
    if (rc == MR_OK && own)
        rc = make_folder(below, st);
    if (rc == MR_OK)
        rc = mr__file_cache_path(own ? below : folder, MR_ELEMENTS_FILE, &file, st);
    mr_free(below);
    mr_free(folder);
    of_file(rc, st);
    return rc == MR_OK ? mr__file_cache_open(it, file, opts, st) : rc;
}

mr_code mr__file_cache_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__file_cache *c = it->state;
    if (c->mode == MR_FC_WRITING && !c->writer)
        MR_TRY(of_file(begin(c, st), st));
    switch (c->mode) {
    case MR_FC_WRITING:
    case MR_FC_PASSING:
        return write_next(c, want, out, st);
    case MR_FC_READING:
        return read_next(c, want, out, st);
    case MR_FC_ENDED:
        break;
    }
    return MR_END;
}

void mr__file_cache_close(mr_iter *it)
{
    mr__file_cache *c = it->state;
    if (c->writer && has_all(c)) { /* a position of an earlier version was restored */
        mr_status st;
        char text[1024];
        if (complete(c, &st) != MR_OK && mr_status_format(&st, text, sizeof text))
            mr_log(MR_LOG_WARNING, "%s", text);
    } else if (c->writer && c->rows)
        mr_log(MR_LOG_WARNING,
               "%s: an iterator was closed before the end of its input; what it wrote, %" PRIu64
               " element%s, is thrown away",
               c->path, c->rows, c->rows == 1 ? "" : "s");
    if (c->lock_path)
        stop_writing(c);
    mr__element_reader_close(c->reader);
    mr_buffer_unref(c->position);
    mr_block_reset(&c->ahead);
    mr_free(c->path);
    mr_free(c->lock_path);
    if (c->it) {
        mr_iter_close_input(c->it, 0); /* it may read ahead, and note files */
        mr__iter_record_inputs(c->it, NULL);
    }
    mr__inputs_read_reset(&c->inputs);
    *c = (mr__file_cache){.lock = -1};
}

/* mode, rows; 0, or 1 and the input's position at its start; the next rows; the input */
mr_code mr__file_cache_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__file_cache *c = it->state;
    MR_TRY(mr_state_put_u64(w, c->mode, st));
    MR_TRY(mr_state_put_u64(w, c->rows, st));
    bool again = c->mode == MR_FC_WRITING && c->position && mr_iter_replays(c->it->inputs[0]);
    MR_TRY(mr_state_put_u64(w, again, st));
    if (again)
        MR_TRY(mr_state_put_bytes(w, mr_buffer_data(c->position), mr_buffer_size(c->position), st));
    MR_TRY(mr_state_put_block(w, &c->ahead, st));
    return mr_iter_save_input(c->it, 0, w, st);
}

/* Writes the first `rows` rows of the input again, from its start. */
static mr_code write_again(mr__file_cache *c, const void *position, size_t n, uint64_t rows,
                           mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status error;
    MR_TRY(mr_buffer_alloc(&c->position, n, st));
    memcpy(mr_buffer_data(c->position), position, n);
    if (rows == 0)
        return MR_OK; /* the first pull begins */
    MR_TRY(begin(c, st));
    if (c->mode != MR_FC_WRITING) {
        c->mode = MR_FC_PASSING;
        return MR_OK;
    }
    MR_TRY(mr__reopen_at(c->it, 0, position, n, st));
    mr_code rc = MR_OK;
    while (rc == MR_OK && c->rows < rows && c->mode == MR_FC_WRITING) {
        rc = mr_iter_pull(c->it, 0, (size_t)(rows - c->rows), &b, &error);
        if (rc == MR_OK)
            rc = add(c, &b, &error);
        else if (rc == MR_END)
            rc = mr_state_damaged(&error, "the input has fewer elements than were written");
        else if (!mr_iter_cancelled(c->it) && !mr_status_is_of_no_element(&error)) {
            rc = MR_OK; /* was already reported */
            c->expected = MR_UNKNOWN_COUNT;
            waits_for_end(c, true);
        }
    }
    mr_block_reset(&b);
    if (rc < 0 && st)
        *st = error;
    return rc;
}

/* Advances to row `rows` of the file. */
static mr_code seek(mr__file_cache *c, uint64_t rows, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = rows ? open_reader(c, st) : MR_OK;
    while (rc == MR_OK && c->rows < rows) {
        uint64_t left = rows - c->rows;
        mr_block_clear(&b);
        rc = mr__element_reader_next(c->reader, c->it->spec,
                                     left < SIZE_MAX ? (size_t)left : SIZE_MAX, &b, st);
        if (rc == MR_OK)
            c->rows += b.rows;
        if (rc == MR_END)
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "%s has fewer elements than when the position was saved", c->path);
    }
    mr_block_reset(&b);
    return rc;
}

mr_code mr__file_cache_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__file_cache *c = it->state;
    uint64_t mode, rows, again;
    bool there;
    MR_TRY(mr_state_get_u64(r, &mode, st));
    MR_TRY(mr_state_get_u64(r, &rows, st));
    MR_TRY(mr_state_get_u64(r, &again, st));
    if (mode > MR_FC_ENDED || again > 1)
        return mr_state_damaged(st, "a file of elements has no such mode");
    stop_writing(c);
    mr__element_reader_close(c->reader);
    c->reader = NULL;
    mr_buffer_unref(c->position);
    c->position = NULL;
    mr_block_clear(&c->ahead);
    c->mode = (mr__file_cache_mode)mode;
    c->rows = 0;
    if (again) {
        const void *position;
        size_t n;
        MR_TRY(mr_state_get_bytes(r, &position, &n, st));
        MR_TRY(write_again(c, position, n, rows, st));
    } else if (c->mode == MR_FC_READING) {
        MR_TRY(look(c, &there, st));
        MR_TRY(there ? seek(c, rows, st) : fail_missing(c, st));
    } else if (c->mode == MR_FC_WRITING && rows)
        c->mode = MR_FC_PASSING; /* the written rows cannot be read again */
    MR_TRY(mr_state_get_block(r, c->it->spec, &c->ahead, st));
    return mr_iter_restore_input(c->it, 0, r, st);
}
