/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "replay.h"
#include "tests/harness.h"

static void touch(const char *name)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f != NULL);
    fclose(f);
}

/* The graph with the test's directory for @, each element cut to its last byte. */
static const char *last_bytes(const char *graph)
{
    static char text[8192];
    size_t n = 0;
    for (; *graph; graph++)
        n += (size_t)snprintf(text + n, sizeof text - n, *graph == '@' ? "%s" : "%.1s",
                              *graph == '@' ? mr_test_dir() : graph);
    snprintf(text + n, sizeof text - n,
             ".map(x => decode_raw(x, \"uint8\")[-1] - cast(48, \"uint8\"))");
    return text;
}

MR_TEST(all_matches_are_sorted_together)
{
    touch("f3"), touch("f1"), touch("f2"), touch("g0");
    check_graph(last_bytes("list_files(\"@/f*\")"), "1 2 3");
    check_graph(last_bytes("list_files(\"@/g*\", \"@/f[12]\", \"@/f2\")"), "1 2 2 0");
    check_graph(last_bytes("list_files(\"@/none*\", \"@/g?\")"), "0");
    check_graph(last_bytes("list_files(\"@/none*\")"), "!");
}

MR_TEST(shuffle_follows_tf_data_and_changes_with_the_epoch)
{
    for (char name[] = "f0"; name[1] <= '9'; name[1]++)
        touch(name);
    /* As range(10).shuffle(10, seed=42), which TensorFlow gives so. */
    check_graph(last_bytes("list_files(\"@/f*\", shuffle=true, seed=42).repeat(2)"),
                "5 9 6 4 7 1 2 8 3 0 3 7 6 5 8 4 0 1 9 2");
    check_graph(last_bytes("list_files(\"@/f*\", shuffle=true, seed=42).take(4)"), "5 9 6 4");
}

MR_TEST(without_a_seed_nothing_is_lost)
{
    for (char name[] = "f0"; name[1] <= '5'; name[1]++)
        touch(name);
    char *out = run_graph(last_bytes("list_files(\"@/f*\", shuffle=true).prefetch(2)"), NULL, NULL);
    mr_eq_u64(strlen(out), 11);
    for (char c = '0'; c <= '5'; c++)
        mr_check(strchr(out, c) != NULL);
    mr_free(out);
}

MR_TEST(an_empty_name_is_refused)
{
    check_refused("list_files(\"\")", "empty");
    check_refused("list_files()", "list_files");
}
