/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs on purpose: a sanitizer build that lets one of them pass checks nothing. check.sh runs them
 * and expects each to fail. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/harness.h"

static char *volatile kept;
static volatile int shared, unused;

MR_TEST(leak)
{
    kept = malloc(100);
    kept = NULL;
}

MR_TEST(overflow)
{
    char *p = malloc(8);
    kept = p;
    kept[shared + 8] = 1;
    free(p);
}

MR_TEST(signed_overflow)
{
    shared = INT_MAX;
    unused = shared + 1;
}

static void *count(void *arg)
{
    for (int i = 0; i < 1000; i++)
        shared++;
    return arg;
}

MR_TEST(race)
{
    pthread_t other;
    mr_eq_i64(pthread_create(&other, NULL, count, NULL), 0);
    count(NULL);
    pthread_join(other, NULL);
}

MR_TEST(nothing)
{
    mr_check(shared == 0);
}
