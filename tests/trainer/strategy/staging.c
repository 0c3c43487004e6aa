/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy/staging.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/device_doubles.h"

static mr_status st;

enum { ROWS = 53, WIDTH = 6 };
static float features[ROWS * WIDTH];
static int64_t labels[ROWS];

static batches rows_of(size_t rows, size_t batch)
{
    test_fill(features, ROWS * WIDTH, 77);
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = (int64_t)i;
    return (batches){
        .rows = rows,
        .batch = batch,
        .n_columns = 2,
        .columns = {
            {.dtype = MR_FLOAT32,
             .rows = 1,
             .rank = 3,
             .shape = {(int64_t)rows, 2, WIDTH / 2},
             .data = features},
            {.dtype = MR_INT64, .rows = 1, .rank = 1, .shape = {(int64_t)rows}, .data = labels}}};
}

/* A ring over the steps of a dataset. */
typedef struct bench {
    mr_strategy *s;
    mr__staging *ring;
    mr_dataset *ds;
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
} bench;

/* devices NULL: the accelerators, or else the processor, whose memory is the host's. */
static void open_over(bench *x, size_t replicas, const char *const *devices)
{
    mr_strategy_opts o = {
        .num_replicas = replicas, .devices = devices, .n_devices = devices ? replicas : 0};
    mr_ok(mr_strategy_mirrored(&x->s, &o, &st), &st);
    mr_ok(mr__staging_new(&x->ring, x->s, 2, &st), &st);
    mr_ok(mr_distribute_dataset(
              x->ds, &(mr_distribute_opts){.replicas = (int64_t)replicas, .owns_slots = true},
              &x->dd, &st),
          &st);
    mr_ok(mr_dist_iterator_open(&x->it, x->dd, NULL, &st), &st);
}

static bench open_bench(size_t replicas, const batches *b)
{
    bench x = {.ds = test_batches(b)};
    open_over(&x, replicas, NULL);
    return x;
}

static void close_bench(bench *x)
{
    mr__staging_free(x->ring);
    mr_dist_iterator_close(x->it);
    mr_dist_dataset_free(x->dd);
    mr_dataset_unref(x->ds);
    mr_strategy_free(x->s);
}

/* The next step of the data into the ring. *wished: the ring asked for rows in place. */
static size_t put_next(bench *x, bool *wished)
{
    const mr_destination *destination;
    mr_step step;
    size_t slot;
    mr_ok(mr__staging_reserve(x->ring, &destination, &st), &st);
    *wished = destination != NULL;
    mr_ok(mr_dist_iterator_next(x->it, destination, &step, &st), &st);
    mr_ok(mr__staging_put(x->ring, &step, &slot, &st), &st);
    return slot;
}

/* A slot that a step is about. */
typedef struct place {
    mr__staging *ring;
    size_t slot;
} place;

static mr_code look_at_slot(mr_replica *r, void *ctx, mr_status *status)
{
    const place *p = ctx;
    MR_TRY(mr__staging_acquire(p->ring, p->slot, mr_replica_id(r), status));
    return mr__staging_release(p->ring, p->slot, mr_replica_id(r), status);
}

/* Checks that the slot holds rows [first, ...) of the data, sliced; returns how many. */
static size_t check_slot(bench *x, size_t slot, size_t replicas, size_t first)
{
    size_t row = first;
    mr_ok(mr_strategy_run(x->s, look_at_slot, &(place){x->ring, slot}, &st), &st);
    for (size_t r = 0; r < replicas; r++) {
        mr_array f, l;
        float seen[ROWS * WIDTH];
        int64_t seen_labels[ROWS];
        mr__staging_tensor(x->ring, slot, r, 0, &f);
        mr__staging_tensor(x->ring, slot, r, 1, &l);
        mr_eq_i64(mr__staging_first_row(x->ring, slot, r), (int64_t)(row - first));
        mr_eq_i64(f.shape[0], l.shape[0]);
        test_read(x->s, r, f.data, mr_array_row_bytes(&f), seen);
        test_read(x->s, r, l.data, mr_array_row_bytes(&l), seen_labels);
        mr_eq_mem(seen, features + row * WIDTH, (size_t)f.shape[0] * WIDTH * sizeof(float));
        mr_eq_mem(seen_labels, labels + row, (size_t)l.shape[0] * sizeof(int64_t));
        row += (size_t)f.shape[0];
    }
    mr_eq_u64(mr__staging_rows(x->ring, slot), row - first);
    return row - first;
}

MR_TEST(full_batches_are_written_in_place_by_the_pipeline)
{
    batches b = rows_of(ROWS, 10);
    bench x = open_bench(3, &b);
    for (size_t number = 0; number < 6; number++) {
        bool wished;
        size_t slot = put_next(&x, &wished);
        mr_check(wished == (number >= 2)); /* each slot's first batch is copied */
        mr_eq_u64(mr__staging_rows(x.ring, slot), number < 5 ? 10 : 3);
        check_slot(&x, slot, 3, number * 10);
    }
    mr_eq_u64(mr__staging_placed_bytes(x.ring), 33 * (WIDTH * sizeof(float) + sizeof(int64_t)));
    close_bench(&x);
}

MR_TEST(batches_that_the_replicas_do_not_divide_are_written_in_place_too)
{
    static const char text[] = "range(60).batch(10)";
    for (size_t replicas = 1; replicas <= 4; replicas++) {
        bench x = {0};
        x.ds = mr_test_graph(text);
        open_over(&x, replicas, NULL);
        mr_test_context("%zu replicas", replicas);
        for (int64_t number = 0; number < 6; number++) {
            bool wished;
            size_t slot = put_next(&x, &wished);
            int64_t row = 10 * number;
            mr_ok(mr_strategy_run(x.s, look_at_slot, &(place){x.ring, slot}, &st), &st);
            for (size_t r = 0; r < replicas; r++) {
                mr_array t;
                int64_t seen[10];
                mr__staging_tensor(x.ring, slot, r, 0, &t);
                test_read(x.s, r, t.data, mr_array_row_bytes(&t), seen);
                for (int64_t i = 0; i < t.shape[0]; i++)
                    mr_eq_i64(seen[i], row++);
            }
            mr_eq_i64(row, 10 * number + 10);
        }
        mr_eq_u64(mr__staging_placed_bytes(x.ring), 4 * 10 * sizeof(int64_t));
        close_bench(&x);
    }
}

MR_TEST(a_smaller_batch_is_cut_within_the_slots_of_the_larger)
{
    /* 10 rows on 4 replicas are 3, 3, 3 and 1; 8 rows are 2 each, the last more than before. */
    for (size_t replicas = 1; replicas <= 7; replicas++)
        for (size_t rows = 11; rows < 20; rows++)
            for (int copied = 0; copied < 2; copied++) {
                bool wished;
                batches b = rows_of(rows, 10);
                b.never_place = copied;
                bench x = open_bench(replicas, &b);
                mr_test_context("%zu replicas, 10 and %zu rows", replicas, rows - 10);
                for (int pass = 0; pass < 3; pass++) {
                    mr_eq_u64(check_slot(&x, put_next(&x, &wished), replicas, 0), 10);
                    mr_eq_u64(check_slot(&x, put_next(&x, &wished), replicas, 10), rows - 10);
                    mr_ok(mr_dist_iterator_rewind(x.it, &st), &st);
                }
                close_bench(&x);
            }
}

typedef struct slow_reader {
    place at;
    mr_array rows[2]; /* of each replica, in device memory */
    float seen[2][4 * WIDTH];
    atomic_int reading; /* replicas whose reading is submitted */
} slow_reader;

static void rest(void *ctx)
{
    (void)ctx;
    usleep(30000);
}

static mr_code read_late(mr_replica *r, void *ctx, mr_status *status)
{
    slow_reader *x = ctx;
    size_t id = mr_replica_id(r);
    mr_stream *s = mr_replica_stream(r);
    MR_TRY(mr__staging_acquire(x->at.ring, x->at.slot, id, status));
    MR_TRY(mr_stream_host_call(s, rest, NULL, status));
    MR_TRY(mr_stream_copy(s, x->seen[id], x->rows[id].data, sizeof x->seen[id], status));
    MR_TRY(mr__staging_release(x->at.ring, x->at.slot, id, status));
    atomic_fetch_add(&x->reading, 1);
    return MR_OK;
}

static void check_late_reading(const char *const *devices)
{
    batches b = rows_of(48, 8);
    bench x = {.ds = test_batches(&b)};
    open_over(&x, 2, devices);
    bool wished;
    slow_reader late;
    for (size_t round = 0; round < 2; round++) {
        size_t slot = put_next(&x, &wished);
        for (size_t r = 0; r < 2; r++)
            mr__staging_tensor(x.ring, slot, r, 0, &late.rows[r]);
        late.at = (place){x.ring, slot};
        atomic_store(&late.reading, 0);
        mr_ok(mr_strategy_start(x.s, read_late, &late, &st), &st);
        while (atomic_load(&late.reading) < 2)
            sched_yield();
        put_next(&x, &wished);
        mr_eq_u64(put_next(&x, &wished), slot); /* the same memory again */
        mr_ok(mr_strategy_join(x.s, &st), &st);
        for (size_t r = 0; r < 2; r++)
            mr_eq_mem(late.seen[r], features + (round * 24 + r * 4) * WIDTH,
                      4 * WIDTH * sizeof(float));
    }
    close_bench(&x);
}

/* With copies to the device's memory and without. */
MR_TEST(a_slot_is_not_overwritten_while_a_step_reads_it)
{
    test_register_doubles();
    check_late_reading(NULL);
    check_late_reading((const char *const[]){"strict:0", "strict:1"});
}

static void check_reading_at_the_end(const char *const *devices)
{
    batches b = rows_of(24, 8);
    bench x = {.ds = test_batches(&b)};
    open_over(&x, 2, devices);
    bool wished;
    slow_reader late = {.at.slot = put_next(&x, &wished)};
    late.at.ring = x.ring;
    for (size_t r = 0; r < 2; r++)
        mr__staging_tensor(x.ring, late.at.slot, r, 0, &late.rows[r]);
    mr_ok(mr_strategy_start(x.s, read_late, &late, &st), &st);
    while (atomic_load(&late.reading) < 2)
        sched_yield();
    mr__staging_free(x.ring);
    x.ring = NULL;
    for (size_t r = 0; r < 2; r++)
        mr_eq_mem(late.seen[r], features + r * 4 * WIDTH, 4 * WIDTH * sizeof(float));
    mr_ok(mr_strategy_join(x.s, &st), &st);
    close_bench(&x);
}

MR_TEST(memory_is_there_until_the_last_step_has_read_it)
{
    test_register_doubles();
    check_reading_at_the_end(NULL);
    check_reading_at_the_end((const char *const[]){"strict:0", "strict:1"});
}

static void put_fails(mr__staging *ring, mr_array *columns, size_t n, const char *says)
{
    mr_block block = {.rows = 1, .n_columns = n, .columns = columns};
    const bool has = true;
    const mr_step step = {0, 1, &block, &has};
    const mr_destination *destination;
    size_t slot;
    mr_ok(mr__staging_reserve(ring, &destination, &st), &st);
    mr_test_context("%s", says);
    mr_code_is(mr__staging_put(ring, &step, &slot, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, says);
}

MR_TEST(columns_that_cannot_be_staged_are_refused)
{
    mr_strategy *s = NULL;
    mr__staging *ring = NULL;
    mr_array x = {.dtype = MR_FLOAT32, .rows = 1, .rank = 1, .shape = {4}, .data = features};
    mr_array text = {.dtype = MR_STRING, .storage = MR_BYTES, .rows = 1, .rank = 1, .shape = {4}};
    mr_array shorter = x, scalar = x, two[2] = {x, x};
    shorter.shape[0] = 3;
    scalar.rank = 0;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    mr_ok(mr__staging_new(&ring, s, 2, &st), &st);
    two[1] = text;
    put_fails(ring, two, 2, "component 1 of the batches is not a dense tensor of numbers (string)");
    two[1] = shorter;
    put_fails(ring, two, 2, "component 1 has 3 rows where component 0 has 4");
    two[1] = scalar;
    put_fails(ring, two, 2,
              "component 1 is a scalar, expected a batch: end the data with .batch(N)");
    put_fails(ring, two, 1, "batches of 2 components, then of 1");
    mr__staging_free(ring);
    mr_strategy_free(s);
}

MR_TEST(every_failed_allocation_is_reported)
{
    mr_array x = {.dtype = MR_FLOAT32, .rows = 1, .rank = 1, .shape = {4}, .data = features};
    mr_block blocks[2] = {{.rows = 1, .n_columns = 1, .columns = &x},
                          {.rows = 1, .n_columns = 1, .columns = &x}};
    const bool has[2] = {true, true};
    const mr_step step = {0, 2, blocks, has};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_fault_each_allocation(n)
    {
        mr__staging *ring = NULL;
        const mr_destination *destination;
        size_t slot;
        mr_code rc = mr__staging_new(&ring, s, 2, &st);
        for (int i = 0; i < 3 && rc == MR_OK; i++) {
            rc = mr__staging_reserve(ring, &destination, &st);
            if (rc == MR_OK)
                rc = mr__staging_put(ring, &step, &slot, &st);
        }
        mr_fault_expect(rc, &st);
        mr__staging_free(ring);
    }
    mr_strategy_free(s);
}
