/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the devices for the replicas of a strategy. */
#include <stdio.h>
#include <string.h>
#include "trainer/device/device.h"
#include "trainer/strategy/strategy_impl.h"

/* Devices of one kind. */
typedef struct kind_count {
    const char *wanted; /* NULL: the first kind of accelerator that has devices */
    char kind[32];      /* "": none yet */
    size_t n;
} kind_count;

static void see_kind(void *ctx, const char *kind, size_t n, const char *why)
{
    kind_count *k = ctx;
    (void)why;
    bool fits = k->wanted ? strcmp(kind, k->wanted) == 0 : n > 0 && strcmp(kind, "cpu") != 0;
    if (k->kind[0] || !fits)
        return;
    snprintf(k->kind, sizeof k->kind, "%s", kind);
    k->n = n;
}

static void add_name(mr__device_names *l, const char *kind, size_t index)
{
    if (l->n < MR_MAX_REPLICAS)
        snprintf(l->names[l->n], sizeof l->names[0], "%s:%zu", kind, index);
    l->n++;
}

/* A kind alone means all of its devices; for "cpu", which has any number, the first. */
static void add_device(mr__device_names *l, const char *name)
{
    kind_count k = {.wanted = name};
    if (!strchr(name, ':') && strcmp(name, "cpu") != 0)
        mr_device_each(see_kind, &k);
    for (size_t i = 0; i < k.n; i++)
        add_name(l, name, i);
    if (k.n > 0)
        return;
    if (l->n < MR_MAX_REPLICAS)
        snprintf(l->names[l->n], sizeof l->names[0], "%s", name);
    l->n++; /* opening it reports errors, if any */
}

static void deal(mr__device_names *l, size_t replicas)
{
    kind_count k = {.wanted = NULL};
    mr_device_each(see_kind, &k);
    size_t n = replicas > 0 ? replicas : k.n > 0 ? k.n : 1;
    for (size_t i = 0; i < n; i++)
        add_name(l, k.n > 0 ? k.kind : "cpu", k.n > 0 ? i % k.n : i);
}

void mr__devices_of(mr__device_names *l, const mr_strategy_opts *o)
{
    for (size_t i = 0; o->devices && i < o->n_devices; i++)
        add_device(l, o->devices[i]);
    if (!o->devices)
        deal(l, o->num_replicas);
}
