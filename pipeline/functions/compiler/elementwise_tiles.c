/* SPDX-License-Identifier: Apache-2.0 */
/* Nested elementwise operators, (x * 7 + 1) % 5 == 0, are evaluated a tile of values at a time:
 * what one loop writes the next one reads from the first-level cache, and only the result takes
 * memory. Other operands are evaluated before, over all rows. */
#include "pipeline/functions/compiler/elementwise_loops.h"

#include <string.h>

/* Eight steps wait for at most four results, and make a fifth. */
enum { TILE = 1024, SLOTS = 5, LINE = 64 };

/* ---- when typed ---- */

/* One tensor, and a single value if it is the same for all rows. */
static bool is_plain(const typed *t)
{
    return mr_spec_n_leaves(t->spec) == 1 && (!t->constant || mr_spec_leaf(t->spec, 0)->rank == 0);
}

size_t mr__tile_steps(const typed *t)
{
    if (!(t->function->props & MR__FUNCTION_LOOPS) || t->constant)
        return 0;
    const mr__elementwise *rule = t->function->family;
    const typed *right = t->children[1];
    mr_dtype dtype = mr_spec_leaf(right->spec, 0)->dtype;
    size_t steps = 1;
    if (mr__is_half(dtype) || dtype == MR_STRING)
        return 0;
    for (size_t i = 0; i < 2; i++)
        if (!is_plain(t->children[i]))
            return 0;
        else
            steps += t->children[i]->steps;
    /* Loops do not fail. */
    if (rule->refuses && mr_dtype_is_integer(dtype) &&
        (right->kind != TYPED_CONST || rule->refuses(mr__int_at(&right->value, 0), dtype)))
        return 0;
    return steps <= MR__TILE_STEPS ? steps : 0;
}

/* ---- when run ---- */

/* Where an operand or a result is. */
typedef struct place {
    const char *values; /* NULL: in slot `slot` of the tiles */
    size_t size;        /* bytes from one value to the next; 0: one for all */
    unsigned slot;
} place;

typedef struct step {
    mr__binary_loop loop;
    place x, y, z;
} step;

typedef struct plan {
    const frame *f;
    operands *made;
    step steps[MR__TILE_STEPS];
    size_t n;
    const mr_array *like; /* an operand with rows; the others have its shape */
    bool fits;            /* they do, and are plain values */
    unsigned used;        /* bits of slots */
} plan;

static place add_array(plan *p, const mr_array *a, bool constant)
{
    const mr_array *like = p->like;
    if (a->storage != MR_DENSE || (constant && a->rank != 0) ||
        (!constant && like &&
         (a->rank != like->rank ||
          memcmp(a->shape, like->shape, (size_t)a->rank * sizeof *a->shape) != 0)))
        p->fits = false;
    else if (!constant)
        p->like = a;
    return (place){.values = a->data, .size = constant ? 0 : mr_dtype_size(a->dtype)};
}

static mr_code add_step(plan *p, const typed *t, mr_status *st);

static mr_code add_operand(plan *p, const typed *t, place *out, mr_status *st)
{
    if (t->steps) {
        MR_TRY(add_step(p, t, st));
        *out = p->steps[p->n - 1].z;
    } else if (t->kind == TYPED_CONST)
        *out = add_array(p, &t->value, true);
    else if (t->kind == TYPED_COLUMN)
        *out = add_array(p, &p->f->v[t->first], t->constant);
    else {
        column_set *c = &p->made->values[p->made->n];
        *c = (column_set){0};
        MR_TRY(mr__eval(t, p->f, c, st));
        p->made->of[p->made->n++] = t;
        *out = add_array(p, &c->v[0], c->constant);
    }
    return MR_OK;
}

/* t, after what it needs. */
static mr_code add_step(plan *p, const typed *t, mr_status *st)
{
    const mr__elementwise *rule = t->function->family;
    step s = {.loop = rule->loops[mr_spec_leaf(t->children[0]->spec, 0)->dtype],
              .z.size = mr_dtype_size(mr_spec_leaf(t->spec, 0)->dtype)};
    MR_TRY(add_operand(p, t->children[0], &s.x, st));
    MR_TRY(add_operand(p, t->children[1], &s.y, st));
    while (p->used >> s.z.slot & 1)
        s.z.slot++;
    p->used |= 1u << s.z.slot;
    p->used &= ~((s.x.values ? 0 : 1u << s.x.slot) | (s.y.values ? 0 : 1u << s.y.slot));
    p->steps[p->n++] = s;
    return MR_OK;
}

/* Operand x of the m values from `at` on. Those of the next tile are loaded meanwhile, more at a
 * time than the loops would. */
static const void *operand(const place *x, char (*tiles)[8 * TILE], size_t at, size_t m, size_t n)
{
    if (!x->values)
        return tiles[x->slot];
    size_t next = at + m, end = n - next < TILE ? n : next + TILE;
    for (size_t byte = next * x->size; byte < end * x->size; byte += LINE)
        __builtin_prefetch(x->values + byte);
    return x->values + at * x->size;
}

static void run(const plan *p, char *out, size_t n)
{
    _Alignas(LINE) char tiles[SLOTS][8 * TILE];
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < TILE ? n - at : TILE;
        for (size_t i = 0; i < p->n; i++) {
            const step *s = &p->steps[i];
            const void *x = operand(&s->x, tiles, at, m, n), *y = operand(&s->y, tiles, at, m, n);
            void *z = i + 1 < p->n ? tiles[s->z.slot] : out + at * s->z.size;
            s->loop(x, s->x.size == 0, y, s->y.size == 0, z, m);
        }
    }
}

mr_code mr__eval_in_tiles(const typed *t, const frame *f, operands *made, mr_array *out, bool *done,
                          mr_status *st)
{
    plan p;
    p.f = f;
    p.made = made;
    p.n = 0;
    p.like = NULL;
    p.fits = true;
    p.used = 0;
    MR_TRY(add_step(&p, t, st));
    *done = p.fits && p.like;
    if (!*done)
        return MR_OK;
    MR_TRY(mr_array_alloc(out, mr_spec_leaf(t->spec, 0)->dtype, p.like->rank, p.like->shape,
                          f->rows, st));
    run(&p, out->data, f->rows * mr_array_row_values(p.like));
    return MR_OK;
}
