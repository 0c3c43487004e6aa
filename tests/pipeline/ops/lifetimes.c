/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives what: blocks their iterators and graphs, caches the iterators that filled them. The
 * allocator of tests/fault.h overwrites what is freed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/functions/compiler/function.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "tests/events.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

static mr_iterator *open_one(mr_dataset *ds)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    return it;
}

MR_TEST(a_block_outlives_its_iterator_and_its_graph)
{
    static const struct {
        const char *text, *wanted;
    } graphs[] = {
        {"from_tensors([\"x\"]).concatenate(from_tensors([\"yy\", \"z\"])).padded_batch(2, "
         "padding_values=\"the padding of a batch\")",
         "[[\"x\",\"the padding of a batch\"],[\"yy\",\"z\"]]"},
        {"from_tensor_slices([\"a\", \"bb\"]).map(s => s + \" and what was added to it\").batch(2)",
         "[\"a and what was added to it\",\"bb and what was added to it\"]"},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).shuffle(3, seed=1).batch(3)",
         "[\"bb\",\"c\",\"a\"]"},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).map(s => concat([s], [s + \"!\"])).map(v => "
         "v[1])",
         "\"a!\" \"bb!\" \"c!\""},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).map(s => concat([s], [s + \"!\"]))",
         "[\"a\",\"a!\"] [\"bb\",\"bb!\"] [\"c\",\"c!\"]"},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).map(s => [s, s + s][1]).cache()",
         "\"aa\" \"bbbb\" \"cc\""},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).map(s => concat([s], [s + \"!\"])).batch(2)",
         "[[\"a\",\"a!\"],[\"bb\",\"bb!\"]]"},
        {"from_tensor_slices([[\"a\", \"b\"], [\"c\", \"d\"]]).map(v => (v + v)[1])",
         "\"bb\" \"dd\""},
        {"from_tensor_slices([[\"a\", \"b\"], [\"c\", \"d\"]]).unbatch().enumerate()",
         "(0,\"a\") (1,\"b\") (2,\"c\") (3,\"d\")"},
        {"from_tensor_slices([\"a\", \"bb\", \"c\"]).window(2).flat_map(w => w)",
         "\"a\" \"bb\" \"c\""},
    };
    mr_fault_count();
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        mr_test_context("%s", graphs[i].text);
        mr_dataset *ds = mr_drive_build(graphs[i].text);
        mr_iterator *it = open_one(ds);
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        mr_ok(mr_iterator_next(it, 1024, &b, &st), &st);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr_buffer_pool_trim();
        mr_events e = {0};
        mr_events_block(&e, &b);
        char *got = mr_events_join(&e);
        if (!*got || strncmp(graphs[i].wanted, got, strlen(got)) != 0) /* the first block */
            mr_fail_test("expected the start of %s, got %s", graphs[i].wanted, got);
        free(got);
        mr_events_reset(&e, 0);
        mr_block_reset(&b);
    }
}

/* One cache in three places of a graph, over an input that draws another order for each: the first
 * place completes it, the second reads it row by row, the third completes it again meanwhile. */
MR_TEST(a_complete_cache_is_not_replaced)
{
    mr_fault_count();
    mr_dataset *c = mr_drive_build("range(60).shuffle(60).cache()");
    mr_dataset *first = mr_unbatch(mr_batch(mr_dataset_ref(c), 60, NULL));
    mr_dataset *second = mr_concatenate(mr_take(mr_dataset_ref(c), 0), mr_dataset_ref(c));
    mr_dataset *third = mr_unbatch(mr_batch(mr_dataset_ref(c), 20, NULL));
    mr_dataset *ds = mr_zip((mr_dataset *[]){first, second, third}, 3);
    mr_dataset_unref(c);
    mr_iterator *it = open_one(ds);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    for (int i = 0; i < 60; i++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(const int64_t *)b.columns[1].data, *(const int64_t *)b.columns[0].data);
        mr_buffer_pool_trim();
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* Outputs that are drawn together and do not fit into one block. */
MR_TEST(shuffle_delivers_long_strings_once_each_and_in_order)
{
    char text[1024];
    const char *head =
        "from_tensor_slices([\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", "
        "\"i\", \"j\"])";
    const char *tail = ".shuffle(6, seed=3).map(s => decode_raw(s, \"uint8\")[0])";
    snprintf(text, sizeof text, "%s%s", head, tail);
    char *wanted = mr_drive_show(text);
    size_t n = (size_t)snprintf(text, sizeof text, "%s", head);
    for (int doubled = 0; doubled < 17; doubled++)
        n += (size_t)snprintf(text + n, sizeof text - n, ".map(s => s + s)");
    snprintf(text + n, sizeof text - n, "%s", tail);
    mr_dataset *ds = mr_drive_build(text);
    for (size_t want = 1; want <= 64; want *= 4) {
        mr_events e = {0};
        mr_iterator *it = open_one(ds);
        mr_events_run(&e, it, want, SIZE_MAX);
        mr_iterator_close(it);
        mr_eq_u64(e.n, 10);
        if (want == 1) { /* later passes draw other orders */
            char *got = mr_events_join(&e);
            mr_eq_str(got, wanted);
            free(got);
        } else {
            mr_events_sort(&e);
            for (size_t i = 0; i < e.n; i++)
                mr_eq_i64(strtol(e.v[i].text, NULL, 10) >= 97, 1);
            for (size_t i = 1; i < e.n; i++)
                mr_check(strcmp(e.v[i].text, e.v[i - 1].text) != 0);
        }
        mr_events_reset(&e, 0);
    }
    free(wanted);
    mr_dataset_unref(ds);
}

/* What cannot be produced again, with ops between it and the queue that must save its rows. */
MR_TEST(unordered_calls_below_other_ops_lose_nothing)
{
    mr_drive_any("range(-2, 20).map(x => 12 // x, num_parallel_calls=4, deterministic=false)"
                 ".map(x => x).prefetch(3)",
                 "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0");
    mr_drive_any("range(12).map(x => x, num_parallel_calls=4, deterministic=false).enumerate()"
                 ".map((i, x) => x).shuffle(4, seed=1)",
                 "0 1 2 3 4 5 6 7 8 9 10 11");
}

static mr_code slow_first(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    if (*(const int64_t *)in->columns[0].data == 0)
        nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    return mr_block_slice(out, in, 0, in->rows, st);
}

/* The last of the calls under way is done first, and delivered first. */
MR_TEST(a_slow_call_is_not_lost_where_order_does_not_matter)
{
    mr_dataset *ds = mr_map(mr_drive_build("range(200)"), mr_fn_element(slow_first, NULL, NULL),
                            &(mr_map_opts){.num_parallel_calls = 2, .deterministic = MR_NO});
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    int64_t sum = 0, rows = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = 2, .has_threads = true}, &st),
          &st);
    while (mr_iterator_next(it, 1024, &b, &st) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, rows++)
            sum += ((const int64_t *)b.columns[0].data)[i];
    mr_eq_i64(rows, 200);
    mr_eq_i64(sum, 199 * 100);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
