/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes say that they are about to do alike. Whoever is not sure says it to all, and
 * waits for all; the others answer when they are there, or were. So what repeats costs no message,
 * and a process that does something else finds out before it has begun. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/processes/world_state.h"

typedef mr__claim claim;
typedef mr__peer peer;
typedef mr__round round;

/* Under the lock: one that is not on its way. */
static mr_code spare_round(mr__world *w, round **out, mr_status *st)
{
    for (round *r = w->said; r; r = r->next)
        if (!r->posted && !r->unsent) {
            *out = r;
            return MR_OK;
        }
    round *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "the peers of a job");
    r->next = w->said;
    w->said = r; /* which frees it */
    MR_TRY(mr__round_init(w, r, st));
    *out = r;
    return MR_OK;
}

/* Under the lock. */
static mr_code say_claim(mr__world *w, claim *c, mr_status *st)
{
    round *r = NULL;
    if (c->said)
        return MR_OK;
    MR_TRY(spare_round(w, &r, st));
    r->out.size = 0;
    MR_TRY(mr__say_claim(&r->out, c->number - 1, c->step, c->what, st));
    r->v = (struct iovec){r->out.data, r->out.size};
    r->posted = c->said = true;
    mr__loop_post(w->loop, &r->post);
    return MR_OK;
}

/* Under the lock: a claim of `rank` and this process's of the same number. */
static mr_code compare_claims(mr__world *w, const claim *mine, uint32_t rank, const claim *theirs,
                              mr_status *st)
{
    bool first = w->met.rank < rank; /* so that both say the same */
    const claim *a = first ? mine : theirs, *b = first ? theirs : mine;
    uint32_t ra = first ? w->met.rank : rank, rb = first ? rank : w->met.rank;
    char who_a[256], who_b[256];
    mr_status why;
    bool same = strcmp(a->what, b->what) == 0;
    if (same && a->step == b->step)
        return MR_OK;
    mr__world_name(w, ra, who_a, sizeof who_a);
    mr__world_name(w, rb, who_b, sizeof who_b);
    if (same)
        mr_fail(&why, MR_FAILED_PRECONDITION,
                "%s is at step %" PRId64 " where %s is at step %" PRId64
                "; all processes must take part in the same sums in every step",
                who_a, a->step, who_b, b->step);
    else
        mr_fail(&why, MR_INVALID_ARGUMENT,
                "%s %s where %s %s, in operation %" PRIu64 " at step %" PRId64
                "; all processes must run the same steps",
                who_a, a->what, who_b, b->what, mine->number - 1,
                a->step > b->step ? a->step : b->step);
    mr__world_fail(w, &why, &why);
    if (st)
        *st = w->failure;
    return w->failure.code;
}

/* Under the lock; NULL: it did not come. */
static const claim *claim_of(const peer *p, uint64_t number)
{
    for (size_t i = 0; i < MR__CLAIMS_CAME; i++)
        if (p->claims[i].number == number)
            return &p->claims[i];
    return NULL;
}

/* Under the lock: compares with what came already; *asked: something did. */
static mr_code see_claims(mr__world *w, const claim *mine, bool *asked, mr_status *st)
{
    for (uint32_t i = 0; i < w->met.world; i++) {
        const peer *p = &w->peers[i];
        const claim *c = claim_of(p, mine->number);
        if (i == w->met.rank || !c)
            continue;
        *asked = true;
        MR_TRY(compare_claims(w, mine, i, c, st));
    }
    return MR_OK;
}

/* Under the lock: until all have made the claim of that number. */
static mr_code wait_for_claims(mr__world *w, const claim *mine, mr_status *st)
{
    bool asked;
    for (uint32_t i = 0; i < w->met.world; i++) {
        const peer *p = &w->peers[i];
        while (i != w->met.rank && !claim_of(p, mine->number)) {
            if (p->gone)
                mr__world_ended(w, i);
            if (w->failure.code != MR_OK) {
                if (st)
                    *st = w->failure;
                return w->failure.code;
            }
            pthread_cond_wait(&w->moved, &w->lock);
        }
    }
    return see_claims(w, mine, &asked, st);
}

/* Under the lock. */
static claim *new_claim(mr__world *w, const char *what)
{
    claim *c = &w->claims[++w->n_claims % MR__CLAIMS];
    *c = (claim){.number = w->n_claims, .step = mr__world_step(w)};
    snprintf(c->what, sizeof c->what, "%s", what);
    return c;
}

mr_code mr__world_claim(mr__world *w, const char *what, bool usual, mr_status *st)
{
    bool asked = false;
    pthread_mutex_lock(&w->lock);
    claim *c = new_claim(w, what);
    mr_code rc = w->failure.code;
    if (rc != MR_OK && st)
        *st = w->failure;
    if (rc == MR_OK)
        rc = see_claims(w, c, &asked, st);
    if (rc == MR_OK && (asked || !usual))
        rc = say_claim(w, c, st);
    if (rc == MR_OK && !usual)
        rc = wait_for_claims(w, c, st);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mr__world_claim_end(mr__world *w)
{
    bool asked;
    pthread_mutex_lock(&w->lock);
    claim *c = new_claim(w, "has ended");
    c->step = 0; /* which may have been one of this process alone */
    mr_code rc = w->failure.code;
    if (rc == MR_OK)
        rc = see_claims(w, c, &asked, NULL);
    if (rc == MR_OK)
        rc = say_claim(w, c, NULL);
    (void)rc; /* the others see that it is gone */
    pthread_mutex_unlock(&w->lock);
}

bool mr__claim_take(peer *p)
{
    mr__world *w = p->w;
    const char *what = "";
    mr_status why;
    claim c = {0};
    mr_code rc = mr__read_claim(p->payload, p->bytes, &c.number, &c.step, &what, &why);
    c.number++;
    snprintf(c.what, sizeof c.what, "%s", what);
    pthread_mutex_lock(&w->lock);
    claim *mine = &w->claims[c.number % MR__CLAIMS];
    bool made = c.number <= w->n_claims;
    bool good = rc == MR_OK && (!made || mine->number == c.number);
    if (good) {
        p->claims[p->n_claims++ % MR__CLAIMS_CAME] = c;
        if (made && compare_claims(w, mine, p->rank, &c, NULL) == MR_OK &&
            say_claim(w, mine, &why) != MR_OK)
            mr__world_fail(w, &why, &why);
        pthread_cond_broadcast(&w->moved);
    }
    pthread_mutex_unlock(&w->lock);
    return good;
}

void mr__claims_reset(mr__world *w)
{
    for (round *r; (r = w->said);) {
        w->said = r->next;
        mr__round_reset(r);
        mr_free(r);
    }
}
