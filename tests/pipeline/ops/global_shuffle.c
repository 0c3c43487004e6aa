/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/engine/permutation.h"
#include "pipeline/formats/tfrecord/record_index.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

/* File `name` with an index and the records "<name>0", "<name>1", ... */
static void write_records(const char *name, int n)
{
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    char record[64];
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name), NULL, &st), &st);
    for (int i = 0; i < n; i++) {
        int size = snprintf(record, sizeof record, "%s%d", name, i);
        mr_ok(mr_tfrecord_writer_append(w, record, (size_t)size, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    mr_ok(mr_record_index_write(mr_test_path(name), NULL, NULL, &st), &st);
}

static void write_three(void)
{
    write_records("a", 3);
    write_records("b", 0);
    write_records("c", 5);
}

/* Flips a bit of byte `at`; the file does not look younger than its index. */
static void damage(const char *name, off_t at)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    int fd = open(mr_test_path(name), O_RDWR);
    char c;
    mr_check(pread(fd, &c, 1, at) == 1);
    c ^= 1;
    mr_check(pwrite(fd, &c, 1, at) == 1);
    close(fd);
    mr_check(utimensat(AT_FDCWD, mr_test_path(name), old, 0) == 0);
}

/* The events of a graph, sorted. Owned: free. */
static char *sorted(const char *text)
{
    char *all = mr_drive_show(text), *words[64], *out = calloc(1, 4096);
    int n = 0;
    for (char *w = strtok(all, " "); w && n < 64; w = strtok(NULL, " ")) {
        int i = n++;
        for (; i > 0 && strcmp(words[i - 1], w) > 0; i--)
            words[i] = words[i - 1];
        words[i] = w;
    }
    for (int i = 0; i < n; i++)
        sprintf(out + strlen(out), "%s%s", i ? " " : "", words[i]);
    free(all);
    return out;
}

MR_TEST(the_order_is_a_permutation_of_any_size)
{
    static const uint64_t pair[] = {42, 7};
    for (uint64_t n = 1; n < 1500; n = n * 3 / 2 + 1) {
        mr__permutation p;
        char *seen = calloc(1, n);
        mr__permutation_init(&p, pair, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = mr__permutation_at(&p, i);
            mr_check(at < n && !seen[at]);
            seen[at] = 1;
        }
        free(seen);
    }
}

MR_TEST(orders_of_few_numbers_are_all_about_as_frequent)
{
    enum { DRAWS = 24000 };
    int count[256] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        mr__permutation p;
        mr__permutation_init(&p, (uint64_t[]){seed, seed * 7}, 4);
        unsigned order = 0;
        for (uint64_t i = 0; i < 4; i++)
            order = order << 2 | (unsigned)mr__permutation_at(&p, i);
        count[order]++;
    }
    int orders = 0;
    for (int i = 0; i < 256; i++)
        if (count[i]) {
            orders++;
            mr_check(count[i] > 800 && count[i] < 1200); /* 1000 each, 6 deviations */
        }
    mr_eq_i64(orders, 24);
}

MR_TEST(emits_every_record_once_in_an_order_of_the_seed)
{
    write_three();
    char *plain = sorted(mr_drive_path("tfrecord(\"@/?\")"));
    char *shuffled = sorted(mr_drive_path("tfrecord(\"@/?\").global_shuffle(seed=1)"));
    mr_eq_str(shuffled, plain);
    free(plain);
    free(shuffled);
    mr_drive(mr_drive_path("tfrecord(\"@/?\").global_shuffle(seed=1)"),
             "\"c2\" \"c3\" \"c0\" \"a1\" \"a2\" \"a0\" \"c4\" \"c1\""); /* as docs/files.md says */
    mr_drive_alike(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1).repeat(3).batch(5)"));
    mr_drive_alike(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1).skip(2).prefetch(1)"));
    mr_drive_alike(mr_drive_path("range(3).flat_map(x => tfrecord(\"@/a\", "
                                 "\"@/c\").global_shuffle(x))"));
    mr_drive_count(mr_drive_path("tfrecord(\"@/?\").global_shuffle()"), 8);
}

MR_TEST(each_epoch_has_its_order_unless_told_otherwise)
{
    write_three();
    char *one = mr_drive_show(mr_drive_path("tfrecord(\"@/?\").global_shuffle(3)"));
    char *two = mr_drive_show(mr_drive_path("tfrecord(\"@/?\").global_shuffle(3).repeat(2)"));
    char *same = mr_drive_show(mr_drive_path("tfrecord(\"@/?\").global_shuffle(3, "
                                             "reshuffle_each_iteration=false).repeat(2)"));
    size_t n = strlen(one);
    mr_check(strncmp(one, two, n) == 0 && strcmp(one, two + n + 1) != 0);
    mr_check(strncmp(same, same + n + 1, n) == 0);
    free(one);
    free(two);
    free(same);
}

MR_TEST(a_part_of_the_records_is_shuffled_by_itself)
{
    write_three();
    char *part = sorted(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 2]).global_shuffle(1)"));
    mr_eq_str(part, "\"c1\" \"c2\" \"c3\" \"c4\"");
    free(part);
    mr_drive_alike(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 2]).global_shuffle(1)"));
    mr_drive(mr_drive_path("tfrecord(\"@/b\").global_shuffle(1)"), "");
}

MR_TEST(many_records_of_many_files_come_once)
{
    enum { FILES = 150, EACH = 7 };
    static char seen[FILES][EACH];
    mr_status st;
    char name[16];
    mr_block b = MR_BLOCK_EMPTY;
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%03d-", i);
        write_records(name, EACH);
    }
    for (int mode = 0; mode < 4; mode++) {
        mr_iterator *it = NULL;
        mr_iterator_opts o = {.no_uring = mode == 2};
        mr_code rc;
        if (mode == 1 || mode == 2)
            mr_fault_uncached();
        if (mode == 3)
            mr_fault_short_reads(1);
        mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/f*\").global_shuffle(1)"));
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        memset(seen, 0, sizeof seen);
        while ((rc = mr_iterator_next(it, 1000, &b, &st)) == MR_OK)
            for (size_t i = 0; i < b.rows; i++) {
                const mr_bytes *v = (const mr_bytes *)b.columns[0].data + i;
                mr_eq_u64(v->size, 6);
                int file = atoi(v->data + 1), record = v->data[5] - '0';
                mr_check(!seen[file][record]);
                seen[file][record] = 1;
            }
        mr_code_is(rc, MR_END, &st);
        for (int i = 0; i < FILES * EACH; i++)
            mr_check(seen[i / EACH][i % EACH]);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr_fault_off();
    }
    mr_block_reset(&b);
}

MR_TEST(a_position_is_small_and_needs_the_same_records)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *position;
    size_t size;
    const mr_iterator_opts o = {.positions = true};
    write_records("a", 3000);
    mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/a\").global_shuffle(1)"));
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(it, 200, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_check(size < 512);
    mr_iterator_close(it);
    write_records("a", 2999);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_restore(it, position, size, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "3000 records");
    mr_free(position);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_damaged_record_is_an_error_in_its_place)
{
    write_three();
    damage("c", 2 * 18 + 12); /* the data of its third record */
    mr_drive(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1)"),
             "!corrupted \"c3\" \"c0\" \"a1\" \"a2\" \"a0\" \"c4\" \"c1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", on_corrupt=\"error\").global_shuffle(1)"),
             "!corrupted \"c3\" \"c0\" \"a1\" \"a2\" \"a0\" \"c4\" \"c1\"");
    damage("c", 18); /* the length of its second, which no look at the index finds */
    mr_drive(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1)"),
             "!corrupted \"c3\" \"c0\" \"a1\" \"a2\" \"a0\" \"c4\" !stale");
    mr_status st;
    mr_drive_error(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1)"), &st);
    mr_eq_i64(st.record, 1);
    mr_eq_i64(st.offset, 18);
}

MR_TEST(files_without_a_good_index_are_refused)
{
    write_three();
    mr_check(unlink(mr_test_path("a.idx")) == 0);
    mr_drive(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1)"), "!index");
    mr_drive(mr_drive_path("tfrecord(\"@/none*\").global_shuffle(1)"), "!none");
    mr_drive_bad("tfrecord(\"a\").filter(x => true).global_shuffle(1)", "filter is not indexed");
    mr_drive_bad("text_line(\"a\").global_shuffle(1)", "text_line is not indexed");
    mr_drive_bad("tfrecord(\"a\", compression=\"GZIP\").global_shuffle(1)", "compressed");
    mr_drive_bad("tfrecord(\"a\", num_parallel_reads=2).global_shuffle(1)", "num_parallel_reads");
    mr_drive_bad("tfrecord(\"a\", on_corrupt=\"skip\").global_shuffle(1)", "ignore_errors");
}

static void read_all(const char *text)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.has_threads = true};
    mr_dataset *ds = mr_drive_build(text);
    mr_code rc = mr_fault_expect(mr_iterator_open(&it, ds, &o, &st), &st);
    for (int i = 0; rc >= MR_OK && rc != MR_END && i < 100; i++)
        rc = mr_fault_expect(mr_iterator_next(it, 3, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_and_system_call_may_fail)
{
    write_three();
    const char *text = mr_drive_path("tfrecord(\"@/a\", \"@/c\").global_shuffle(1)");
    mr_drive_faults(text);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false) read_all(text);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false) read_all(text);
    write_records("d", 120); /* the last of them are read without asking whether they are cached */
    text = mr_drive_path("tfrecord(\"@/d\").global_shuffle(1)");
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false) read_all(text);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false) read_all(text);
}

MR_TEST(identities_are_those_of_the_reader)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.identities = true};
    write_three();
    mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/?\").global_shuffle(1)"));
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    int n = 0;
    while (mr_iterator_next(it, 3, &b, &st) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, n++) {
            const mr_bytes *v = (const mr_bytes *)b.columns[0].data + i;
            mr_eq_u64(b.ids.ids[i].source, 0);
            mr_eq_i64(b.ids.ids[i].file, v->data[0] - 'a');
            mr_eq_i64(b.ids.ids[i].ordinal, v->data[1] - '0');
        }
    mr_eq_i64(n, 8);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(the_numbers_of_a_range_come_in_an_order_of_the_seed)
{
    char *all = sorted("range(2, 20, 3).global_shuffle(seed=1)");
    mr_eq_str(all, "11 14 17 2 5 8");
    free(all);
    all = sorted("range(3, -3, -2).global_shuffle(seed=4)");
    mr_eq_str(all, "-1 1 3");
    free(all);
    all = sorted("range(4).global_shuffle().repeat(2)");
    mr_eq_str(all, "0 0 1 1 2 2 3 3");
    free(all);
    mr_drive("range(0).global_shuffle()", "");
    mr_drive_alike("range(40).global_shuffle(seed=5).repeat(2)");
    mr_drive_alike("range(40).global_shuffle(seed=5).skip(7).batch(4)");
    mr_drive_count("range(7, 9).global_shuffle()", 2);
    char *taken = sorted("range(5).take(2).global_shuffle(seed=1)");
    mr_eq_str(taken, "0 1");
    free(taken);
    mr_drive_faults("range(9).global_shuffle(seed=2).batch(2)");
}

MR_TEST(a_number_keeps_the_identity_that_it_has_in_the_range)
{
    mr_dataset *ds = mr_drive_build("range(10, 20).global_shuffle(seed=3)");
    mr_iterator *it;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.identities = true}, &st), &st);
    for (size_t n = 0; n < 10; n += b.rows) {
        mr_ok(mr_iterator_next(it, 4, &b, &st), &st);
        for (size_t i = 0; i < b.rows; i++)
            mr_eq_i64((int64_t)b.ids.ids[i].ordinal, ((int64_t *)b.columns[0].data)[i] - 10);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
