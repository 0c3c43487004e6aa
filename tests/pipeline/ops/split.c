/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

/* parts[i] = which part has number i, of range(n) cut by `fractions` (text), or -1. */
static void find_parts(int n, const char *fractions, int n_parts, int64_t seed, int *parts,
                       int *sizes)
{
    char text[200];
    for (int i = 0; i < n; i++)
        parts[i] = -1;
    for (int k = 0; k < n_parts; k++) {
        snprintf(text, sizeof text, "range(%d).split(%s, index=%d, seed=%lld)", n, fractions, k,
                 (long long)seed);
        char *all = mr_drive_show(text);
        int before = -1;
        sizes[k] = 0;
        for (char *w = strtok(all, " "); w; w = strtok(NULL, " ")) {
            int i = atoi(w);
            mr_check(i > before && i < n && parts[i] == -1); /* in order, in no other part */
            parts[i] = k;
            before = i;
            sizes[k]++;
        }
        free(all);
        mr_drive_count(text, sizes[k]);
    }
}

MR_TEST(parts_are_disjoint_and_as_large_as_their_fractions)
{
    static const double third[] = {0.5, 0.3, 0.2};
    int parts[400], sizes[3];
    for (int n = 0; n < 400; n = n * 2 + 1) {
        find_parts(n, "[0.5, 0.3, 0.2]", 3, n, parts, sizes);
        mr_eq_i64(sizes[0] + sizes[1] + sizes[2], n);
        for (int k = 0; k < 3; k++)
            mr_check(sizes[k] > third[k] * n - 1 && sizes[k] < third[k] * n + 1);
    }
    find_parts(10, "[0.3, 0.4]", 2, 1, parts, sizes);
    mr_check(sizes[0] == 3 && sizes[1] == 4); /* three are in no part */
    find_parts(10, "[0.0, 1.0]", 2, 1, parts, sizes);
    mr_check(sizes[0] == 0 && sizes[1] == 10);
    find_parts(30, "[0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]", 3, 1, parts, sizes);
    mr_eq_i64(sizes[2], 3);
}

MR_TEST(another_seed_is_another_cut)
{
    enum { N = 200, SEEDS = 50 };
    int first[N], parts[N], sizes[2], in_test[N] = {0}, different = 0;
    find_parts(N, "[0.9, 0.1]", 2, 0, first, sizes);
    for (int64_t seed = 1; seed <= SEEDS; seed++) {
        find_parts(N, "[0.9, 0.1]", 2, seed, parts, sizes);
        different += memcmp(first, parts, sizeof first) != 0;
        for (int i = 0; i < N; i++)
            in_test[i] += parts[i] == 1;
    }
    mr_eq_i64(different, SEEDS);
    for (int i = 0; i < N; i++)
        mr_check(in_test[i] < 20); /* 5 of 50, and 7 deviations */
}

MR_TEST(a_part_has_the_order_of_its_input)
{
    mr_drive_alike("range(100, 140).split([0.3, 0.7], seed=3)");
    mr_drive_alike("range(30).map(x => (x, 12 // (x - 5))).split(index=0, seed=1)");
    mr_drive_alike("range(50).split(index=1).repeat(2).batch(2)");
    mr_drive_alike("range(60).split([0.5, 0.5], 1).global_shuffle(seed=2).take(9).enumerate()");
    mr_drive_alike("range(200).split([0.5, 0.5]).split([0.5, 0.5]).batch(7)");
    mr_drive("range(0).split()", "");
    mr_drive("range(1).split()", "0");
    mr_drive("range(1).split(index=1)", "");
}

MR_TEST(without_arguments_a_tenth_is_apart)
{
    mr_drive_count("range(1000).split()", 900);
    mr_drive_count("range(1000).split(index=1)", 100);
    mr_dataset *ds = mr_split(mr_range(0, 1000, 1), NULL, 0, 1, NULL);
    mr_eq_i64(mr_dataset_cardinality(ds), 100);
    mr_dataset_unref(ds);
    ds = mr_split(mr_range(0, 1000, 1), (const double[]){0.25, 0.25}, 2, 0,
                  &(mr_split_opts){.seed = 9});
    mr_eq_i64(mr_dataset_cardinality(ds), 250);
    mr_dataset_unref(ds);
}

MR_TEST(what_cannot_be_cut_is_refused)
{
    mr_drive_bad("range(9).shuffle(3).split()", "shuffle is not indexed");
    mr_drive_bad("range(9).repeat(2).split()", "repeat is not indexed");
    mr_drive_bad("range(9).split([0.5, 0.6])", "at most 1");
    mr_drive_bad("range(9).split([-0.1, 0.6])", "at least 0");
    mr_drive_bad("range(9).split([0.5, 0.5], index=2)", "index must be 0 to 1");
    mr_drive_bad("range(9).split([0.5, 0.5], index=-1)", "index must be 0 to 1");
}

/* The function of this name is still there. */
MR_TEST(strings_are_split_too)
{
    mr_drive("from_tensor_slices([\"a b\", \"c d\"]).map(x => split(x)[1]).split([1.0])",
             "\"b\" \"d\"");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).split([0.5, 0.5], seed=1).batch(3)");
}
