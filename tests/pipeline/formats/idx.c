/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/images/idx.h"

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

static const uint8_t images[] = {0, 0, 0x0B, 3, 0, 0, 0, 3, 0, 0, 0, 1, 0,    0,
                                 0, 2, 0,    1, 0, 2, 0, 3, 0, 4, 1, 0, 0xff, 0xff};

static void expect_rows(const char *path)
{
    static const int16_t want[] = {1, 2, 3, 4, 256, -1};
    mr_status st;
    mr_idx_reader *r = NULL;
    int rank = 0;
    mr_ok(mr_idx_reader_open(&r, path, NULL, &st), &st);
    mr_eq_i64(mr_idx_reader_rows(r), 3);
    mr_eq_i64(mr_idx_reader_dtype(r), MR_INT16);
    const int64_t *shape = mr_idx_reader_shape(r, &rank);
    mr_eq_i64(rank, 2);
    mr_eq_i64(shape[0], 1);
    mr_eq_i64(shape[1], 2);
    size_t seen = 0;
    mr_array a = {0};
    mr_code rc;
    while ((rc = mr_idx_reader_read(r, 2, &a, &st)) == MR_OK) {
        mr_eq_mem(a.data, want + 2 * seen, a.rows * 4);
        seen += a.rows;
        mr_array_reset(&a);
    }
    mr_code_is(rc, MR_END, &st);
    mr_eq_u64(seen, 3);
    mr_idx_reader_close(r);
}

MR_TEST(rows_come_in_host_order_plain_and_gzipped)
{
    byte_string z = deflated(images, sizeof images, 31);
    write_file(mr_test_path("i"), images, sizeof images);
    write_file(mr_test_path("i.gz"), z.data, z.n);
    expect_rows(mr_test_path("i"));
    expect_rows(mr_test_path("i.gz"));
}

static mr_code read_all(const char *path, mr_status *st)
{
    mr_idx_reader *r = NULL;
    mr_array a = {0};
    mr_code rc = mr_idx_reader_open(&r, path, NULL, st);
    while (rc == MR_OK) {
        rc = mr_idx_reader_read(r, 2, &a, st);
        mr_array_reset(&a);
    }
    mr_idx_reader_close(r);
    return rc;
}

MR_TEST(every_cut_and_anything_behind_is_data_loss)
{
    mr_status st;
    for (size_t cut = 0; cut <= sizeof images + 1; cut++) {
        uint8_t file[sizeof images + 1] = {0};
        memcpy(file, images, sizeof images);
        byte_string z = deflated(file, cut, 31);
        if (cut == sizeof images)
            continue;
        mr_test_context("cut at %zu", cut);
        write_file(mr_test_path("c"), file, cut);
        mr_code_is(read_all(mr_test_path("c"), &st), MR_DATA_LOSS, &st);
        mr_has_str(st.file, "c");
        write_file(mr_test_path("c.gz"), z.data, z.n);
        mr_code_is(read_all(mr_test_path("c.gz"), &st), MR_DATA_LOSS, &st);
    }
}

MR_TEST(a_wrong_header_is_named)
{
    mr_status st;
    uint8_t file[sizeof images];
    for (size_t at = 0; at < 4; at++) {
        memcpy(file, images, sizeof images);
        file[at] = 0x77;
        write_file(mr_test_path("h"), file, sizeof file);
        mr_code_is(read_all(mr_test_path("h"), &st), MR_DATA_LOSS, &st);
        mr_has_str(st.message, "not an IDX file");
    }
}
