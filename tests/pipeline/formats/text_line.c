/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/reader.h"

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

static void expect(const char *text, size_t n, const char *rows)
{
    static const size_t wants[] = {1, 3, 1024};
    write_file(mr_test_path("t"), text, n);
    for (size_t k = 0; k < 3; k++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        byte_string b = {0};
        mr_code rc;
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("t"), NULL, &st), &st);
        put(&b, "", 0);
        b.data[0] = '\0';
        while ((rc = mr_reader_read(r, wants[k], 1 << 18, &a, &st)) == MR_OK) {
            put_rows(&b, &a);
            mr_array_reset(&a);
        }
        mr_code_is(rc, MR_END, &st);
        mr_eq_str((char *)b.data, rows);
        mr_reader_close(r);
    }
}

MR_TEST(lines_are_split_as_tensorflow_does)
{
    expect("", 0, "");
    expect("a\nb\nc", 5, "a|b|c|");
    expect("a\nb\n", 4, "a|b|");
    expect("a\n\nb\n\n", 6, "a||b||");
    expect("a\rb\r\n", 5, "ab|");
    expect("\r\r\n", 3, "|");
    expect("a\n\r", 3, "a|");
    expect("a\n\rb\r", 5, "a|b|");
}

MR_TEST(long_lines_go_over_chunks_and_positions_restore)
{
    enum { N = 9 };
    static const size_t sizes[N] = {5, 300000, 0, 262143, 262144, 1, 1500000, 3, 70000};
    byte_string file = {0};
    for (int i = 0; i < N; i++) {
        char *line = malloc(sizes[i] + 1);
        memset(line, 'a' + i, sizes[i]);
        line[sizes[i]] = '\n';
        put(&file, line, sizes[i] + 1);
        free(line);
    }
    byte_string z = deflated(file.data, file.n, 31);
    for (int gzip = 0; gzip < 2; gzip++) {
        mr_status st;
        mr_file_opts opts = {.compression = gzip ? MR_COMPRESSION_GZIP : MR_COMPRESSION_NONE};
        write_file(mr_test_path("l"), gzip ? z.data : file.data, gzip ? z.n : file.n);
        mr_file_position at[N];
        mr_reader *r = NULL;
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("l"), &opts, &st), &st);
        for (int pass = 0; pass < 2; pass++)
            for (int i = 0; i < N; i++) {
                mr_array a = {0};
                int k = pass ? N - 1 - i : i;
                if (pass)
                    mr_ok(mr_reader_seek(r, &at[k], &st), &st);
                else
                    mr_reader_position(r, &at[k]);
                mr_ok(mr_reader_read(r, 1, 1, &a, &st), &st);
                const mr_bytes *v = a.data;
                mr_eq_i64(at[k].record, k);
                mr_eq_u64(v->size, sizes[k]);
                if (v->size)
                    mr_check(v->data[0] == 'a' + k && v->data[v->size - 1] == 'a' + k);
                mr_array_reset(&a);
            }
        mr_reader_close(r);
    }
}

MR_TEST(lines_are_numbered_whatever_the_blocks_are)
{
    for (size_t want = 1; want <= 6; want++) {
        mr_status st;
        mr_reader *r = NULL;
        mr_array a = {0};
        mr_file_position at;
        write_file(mr_test_path("n"), "a\nb\n\nc\nd", 8);
        mr_ok(mr_reader_open(&r, &mr_format_text_line, mr_test_path("n"), NULL, &st), &st);
        for (int64_t lines = 0; lines < 5;) {
            mr_reader_position(r, &at);
            mr_eq_i64(at.record, lines);
            mr_ok(mr_reader_read(r, want, 1 << 18, &a, &st), &st);
            lines += (int64_t)a.rows;
            mr_array_reset(&a);
        }
        mr_reader_position(r, &at);
        mr_eq_i64(at.record, 5);
        mr_reader_close(r);
    }
}
