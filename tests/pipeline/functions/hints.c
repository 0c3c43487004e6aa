/* SPDX-License-Identifier: Apache-2.0 */
/* What people bring from other languages is refused with what to write instead. */
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/files/remote.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static const char *refusal(const char *text, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    mr_dataset_unref(ds);
    mr_code_is(rc, MR_INVALID_ARGUMENT, st);
    return st->message;
}

MR_TEST(habits_of_other_languages_get_a_hint)
{
    static const char *const cases[][2] = {
        {"range(3).map(lambda x: x + 1)", "a function is written x => x + 1"},
        {"range(3).map(lambda x, y: x)", "a function is written x => x + 1"},
        {"range(3).map(x -> x)", "a function is written x => x + 1"},
        {"range(3).map(def f(x) x)", "a function is written x => x + 1"},
        {"range(3).batch(2, drop_remainder=True)", "unknown name 'True'; write true"},
        {"range(3).map(x => x == False)", "unknown name 'False'; write false"},
        {"range(3).map(x => None)", "unknown name 'None'; write none"},
        {"range(3).map(x => null)", "write none"},
        {"range(3).prefetch(AUTOTUNE)", "write auto"},
        {"range(3).prefetch(tf.data.AUTOTUNE)", "write auto"},
        {"range(3).prefetch(tf.data.experimental.AUTOTUNE)", "write auto"},
        {"range(3).filter(x => x > 1 && x < 2)", "no such character in an expression; write and"},
        {"range(3).filter(x => x > 1 || x < 2)", "write or"},
        {"range(3).filter(x => (x > 1) & (x < 2))", "write and"},
        {"range(3).filter(x => (x > 1) | (x < 2))", "write or"},
        {"range(3).filter(x => !(x > 1))", "write 'not x' to negate"},
        {"range(3).filter(x => x <> 1)", "write !="},
        {"range(3).filter(x => x === 1)", "write =="},
        {"range(3).filter(x => x is 1)", "write =="},
        {"range(3).filter(x => x in [1, 2])", "write x == a or x == b"},
        {"range(3).map(x => x ? 1 : 2)", "write a if condition else b"},
        {"range(3).map(x => x ^ 2)", "write ** for a power"},
        {"range(3).map(x => x += 2)", "write x + 1"},
        {"range(3);", "without a semicolon"},
        {"range(3).map(x => len(x))", "unknown function 'len'; write length(x)"},
        {"range(3).map(x => float(x))", "write cast(x, \"float32\")"},
        {"range(3).map(x => tf.cast(x, tf.float32))", "functions and ops have no prefix"},
        {"range(3).map(x => np.sum(x))", "functions and ops have no prefix"},
        {"range(3).map(x => x.shape)", "length(x) is the size of axis 0"},
        {"tf.data.Dataset.range(3)", "a pipeline begins with a source"},
        {"Dataset.range(3)", "a pipeline begins with a source"},
        {"range(3).map(x => str(x))", "write format(\"{}\", x)"},
        {"range(3).map(x => tf.reduce_sum(x))", "write sum(x)"},
        {"range(3).map(x => reduce_mean([x]))", "write mean(x)"},
        {"range(3).reduce(0, (s, x) => s + x)", "use the command millrace reduce"},
        {"range(3).cardinality()", "'millrace explain' prints"},
        {"range(3).element_spec", "'millrace show --spec' prints it"},
        {"from_generator(3)", "by mr_from_generator"},
        {"TFRecordDataset(\"a\")", "write tfrecord(files)"},
        {"tf.data.TFRecordDataset(\"a\")", "write tfrecord(files)"},
        {"text_line(\"a\", compression=\"gzip\")", "not \"gzip\"; write \"GZIP\""},
        {"tfrecord(\"a\", compression=\"Zlib\")", "write \"ZLIB\""},
        {"tfrecord(a.tfrecord)", "a file name is written in quotes"},
        {"tfrecord(/data/a)", "a file name is written in quotes"},
        {"tfrecord(data/a-*.tfrecord)", "a file name is written in quotes"},
        {"tfrecord(s3://bucket/a.tfrecord)", "a file name is written in quotes"},
        {"text_line(~/a.txt)", "a file name is written in quotes"},
        {"text_line(../a.txt)", "a file name is written in quotes"},
        {"range(3).map(x => x.label)", "a component of a record is written x[\"label\"]"},
        {"range(3).map(x => (x.image, 1))", "a component of a record is written x[\"label\"]"},
        {"range(3).flat_map(x => text_line(data/a.txt))", "a file name is written in quotes"},
        {"webdataset(\"a-{0..9}.tar\")", "archives of samples are read by tar(files)"},
        {"wds.WebDataset(\"a.tar\")", "archives of samples are read by tar(files)"},
        {"arrayrecord(\"a\")", "ArrayRecord files cannot be read; convert them"},
        {"grain.ArrayRecordDataSource(\"a\")", "ArrayRecord files cannot be read; convert them"},
        {"mds(\"a\")", "MDS files cannot be read; convert them"},
        {"StreamingDataset(\"a\")", "MDS files cannot be read; convert them"},
        {"load_dataset(\"imdb\")", "datasets are read from files"},
        {"pd.read_csv(\"a\")", "write csv(files, columns)"},
        {"range(3).map(x => decode_webp(x))", "WebP images cannot be decoded; convert them"},
        {"range(3).map(x => tf.image.decode_gif(x))", "GIF images cannot be decoded"},
        {"parquet(hf://datasets/a)", "a file name is written in quotes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_test_context("%s", cases[i][0]);
        mr_has_str(refusal(cases[i][0], &st), cases[i][1]);
    }
}

MR_TEST(other_errors_get_no_hint)
{
    static const char *const texts[] = {
        "range(3).bach(2)",        "range(3).map(x => y)", "range(3",
        "range(3).map(x => x + )", "range(3) range",       "range(3).map(x => x.batch(2))",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_status st;
        char first[1024];
        mr_test_context("%s", texts[i]);
        snprintf(first, sizeof first, "%s", refusal(texts[i], &st));
        first[strcspn(first, "\n")] = '\0';
        mr_check(!strstr(first, "write") && !strstr(first, "written") && !strstr(first, "begins"));
    }
}

#define RECORDS "range(6).map(x => {\"a\": x, \"b\": x}).window(2)"

MR_TEST(a_window_of_records_says_which_dataset_to_take)
{
    static const char *const cases[][2] = {
        {RECORDS ".flat_map(w => w.batch(2))", "w is a record of datasets, one for each component: "
                                               "write w[\"a\"], or zip(w[\"a\"], w[\"b\"])"},
        {RECORDS ".map(v => v.batch(2))", "write v[\"a\"], or zip(v[\"a\"], v[\"b\"])"},
        {RECORDS ".flat_map(w => zip(w))", "write w[\"a\"], or zip(w[\"a\"], w[\"b\"])"},
        {RECORDS ".flat_map(w => w)", "write w[\"a\"], or zip(w[\"a\"], w[\"b\"])"},
        {RECORDS ".map(w => sum(w))", "write w[\"a\"], or zip(w[\"a\"], w[\"b\"])"},
        {RECORDS ".map(w => w + 1)", "write w[\"a\"], or zip(w[\"a\"], w[\"b\"])"},
        {"range(6).map(x => {\"a\": x}).window(2).flat_map(w => w.batch(2))",
         "w is a record of datasets: write w[\"a\"]"},
        {"range(6).map(x => {\"b\": {\"c\": x}}).window(2).flat_map(w => w[\"b\"].batch(2))",
         "w[\"b\"] is a record of datasets: write w[\"b\"][\"c\"]"},
        {"range(6).map(x => (x, x)).window(2).flat_map(w => w.batch(2))",
         "w is a tuple of datasets, one for each component: write w[0], or zip(w[0], w[1])"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        mr_test_context("%s", cases[i][0]);
        mr_has_str(refusal(cases[i][0], &st), cases[i][1]);
    }
}

MR_TEST(names_of_other_machines_say_what_to_do)
{
    static const char *const texts[] = {
        "tfrecord(\"s3a://bucket/a\")", "tfrecord(\"az://b/a-*\")", "text_line(\"hdfs://host/a\")",
        "range(1).flat_map(x => text_line(\"abfss://a\" + \"/b\"))"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        mr_test_context("%s", texts[i]);
        mr_dataset *ds = mr_test_graph(texts[i]);
        mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
        if (rc == MR_OK)
            rc = mr_iterator_next(it, 1, &b, &st);
        mr_code_is(rc, MR_NOT_FOUND, &st);
        mr_has_str(st.message, "local files and the schemes s3, gs, hf, https and http are read");
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    mr_has_str(mr__remote_hint("file:///a"), "without file://");
    mr_has_str(mr__remote_hint("abfss://c@a/b"), "local files and");
    mr_eq_str(mr__remote_hint("s3://bucket/a"), "");
    mr_has_str(mr__remote_hint("hf:/a"), "pass a string");
    mr_eq_str(mr__remote_hint("hf:a"), "");
    mr_eq_str(mr__remote_hint("s3/a"), "");
}
