/* SPDX-License-Identifier: Apache-2.0 */
/* Identities of rows, and the scopes in which sources are numbered. */
#include "pipeline/engine/op_source.h"

#include <errno.h>
#include <string.h>

#include "pipeline/engine/inputs_read.h"
#include "pipeline/engine/run.h"
#include "pipeline/files/file_name.h"
#include "pipeline/wait/wait.h"

/* ---- scopes ---- */

void mr__scope_free(mr__scope *scope)
{
    if (scope)
        mr__scope_reset(scope);
    mr_free(scope);
}

uint64_t mr__scope_source(const mr__scope *s, uint64_t number)
{
    if (!s || !s->inner)
        return number;
    return s->replaced ? s->outer.source : mr__mix(s->salt, number);
}

/* true: the source with that number below `it` reads no files. */
static bool has_no_files(const mr_iter *it, uint64_t number)
{
    if (it->n_inputs == 0)
        return false;
    const mr_dataset *ds = it->node;
    number -= it->priv->number;
    if (number >= mr__dataset_n_sources(ds))
        return false;
    while (mr_dataset_n_inputs(ds) > 0) {
        size_t i = mr_dataset_n_inputs(ds) - 1;
        while (number < mr__dataset_sources_before(ds, i))
            i--;
        number -= mr__dataset_sources_before(ds, i);
        ds = mr_dataset_input(ds, i);
    }
    return mr_dataset_op(ds)->role != MR_ROLE_FILES;
}

void mr__scope_start(mr__scope *s, const mr_iter *parent, const mr_identities *outer)
{
    const mr__scope *above = parent->priv->scope;
    s->inner = true;
    s->salt = mr__mix_text(parent->source, parent->op->name);
    if (!outer || !outer->ids)
        return;
    uint64_t from = outer->offsets ? outer->offsets[0] : 0,
             to = outer->offsets ? outer->offsets[1] : 1;
    s->salt = 0;
    for (uint64_t i = from; i < to; i++) {
        const mr_identity *id = &outer->ids[i];
        uint64_t record = mr__mix(mr__mix(mr__mix(s->salt, id->source), id->file), id->ordinal);
        s->salt = mr__mix(record, id->epoch);
    }
    if (to - from != 1 || (above->inner && !above->replaced))
        return;
    s->outer = outer->ids[from];
    s->adopted = above->replaced || has_no_files(parent, s->outer.source);
}

/* ---- identities ---- */

bool mr_iter_identities(const mr_iter *it)
{
    return it->run->opts.identities;
}

uint64_t mr_iter_epoch(const mr_iter *it)
{
    const mr__scope *s = it->priv->scope;
    return it->priv->epoch + (s && s->replaced ? s->outer.epoch : 0);
}

static mr_code set_identities(mr_block *b, mr_identity first, mr_status *st)
{
    mr_identity *ids;
    MR_TRY(mr_identities_alloc(&b->ids, b->rows, &ids, st));
    for (size_t i = 0; i < b->rows; i++, first.ordinal++)
        ids[i] = first;
    return MR_OK;
}

mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                               mr_status *st)
{
    if (!mr_iter_identities(it))
        return MR_OK;
    return set_identities(b, (mr_identity){it->source, file, first, mr_iter_epoch(it)}, st);
}

mr_code mr_iter_identify_rows(mr_iter *it, mr_block *b, const uint64_t *ordinals, mr_status *st)
{
    mr_identity *ids;
    mr_identities_reset(&b->ids);
    if (!mr_iter_identities(it))
        return MR_OK;
    MR_TRY(mr_identities_alloc(&b->ids, b->rows, &ids, st));
    for (size_t i = 0; i < b->rows; i++)
        ids[i] =
            (mr_identity){.source = it->source, .ordinal = ordinals[i], .epoch = mr_iter_epoch(it)};
    return MR_OK;
}

mr_code mr_iter_set_identities_of_file(mr_iter *it, mr_block *b, uint64_t first, mr_status *st)
{
    const mr__scope *s = it->priv->scope;
    if (!s || !s->adopted || !it->priv->owns_scope)
        return mr_iter_set_identities(it, b, 0, first, st);
    const mr_identity *o = &s->outer;
    return set_identities(
        b, (mr_identity){o->source, o->ordinal, first, o->epoch + it->priv->epoch}, st);
}

mr_code mr_iter_name_file(mr_iter *it, const mr_identity *id, const char *path, mr_status *st)
{
    mr_ledger *ledger = it->run->opts.ledger;
    return ledger && id ? mr_ledger_name(ledger, id, path, st) : MR_OK;
}

/* ---- files ---- */

bool mr_iter_names_given(const mr_iter *it)
{
    return it->priv->names != MR__NAMES_OF_VALUES || mr__dataset_is_literal(it->node);
}

mr_code mr_iter_fail_given(const mr_iter *it, mr_code rc, mr_status *st)
{
    if (mr_iter_names_given(it))
        mr_status_of_no_element(st);
    return rc;
}

mr_code mr_iter_fail_open(const mr_iter *it, mr_code rc, mr_status *st)
{
    /* Of all that the system may say, only this is damage of the file. */
    return st->sys_errno && st->sys_errno != EIO ? mr_iter_fail_given(it, rc, st) : rc;
}

size_t mr_iter_in_turn(const mr_iter *it)
{
    return it->priv->in_turn;
}

bool mr_iter_no_uring(const mr_iter *it)
{
    return it->run->opts.no_uring;
}

mr_code mr_iter_file_path(const mr_iter *it, const char *path, char **out, mr_status *st)
{
    MR_TRY(mr__file_name_in(it->run->names, path, out, st));
    mr_code rc = mr__iter_note_file(it, *out, st);
    if (rc != MR_OK) {
        mr_free(*out);
        *out = NULL;
    }
    return rc;
}

void mr_iter_add_wait(mr_iter *it, double seconds)
{
    mr__waited_add(mr__stats_to_ticks(&it->run->stats, seconds));
}
