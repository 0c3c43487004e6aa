/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

/* dog is made before cat; between them files that are not images, are hidden or in no folder. */
static void make_folders(void)
{
    static const char *const folders[] = {"dog", "cat", "empty", ".cache", "cat-2", "dog/inner"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        mr_check(mkdir(mr_test_path(folders[i]), 0777) == 0);
    mr_drive_file("dog/2.jpg", "d2");
    mr_drive_file("dog/1.JPG", "d1");
    mr_drive_file("dog/notes.txt", "no");
    mr_drive_file("dog/inner/3.jpg", "no");
    mr_drive_file("cat/x.jpeg", "cx");
    mr_drive_file("cat/.hidden.jpg", "no");
    mr_drive_file("cat-2/y.png", "cy");
    mr_drive_file(".cache/z.png", "no");
    mr_drive_file("top.jpg", "no");
}

MR_TEST(labels_are_the_numbers_of_sorted_folders)
{
    make_folders();
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => (x[\"image\"], x[\"label\"]))"),
             "(\"cy\",1) (\"cx\",0) (\"d1\",2) (\"d2\",2)");
    mr_drive(mr_drive_path("image_folder(\"@/\", extensions=[\"TXT\"]).map(x => x[\"label\"])"),
             "2");
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"]).repeat(2).batch(3)"),
             "[1,0,2] [2,1,0] [2,2]");
    char *shown = mr_drive_show(mr_drive_path("image_folder(\"@\").map(x => x[\"path\"]).take(1)"));
    mr_has_str(shown, mr_test_path("cat-2/y.png"));
    free(shown);
}

MR_TEST(a_folder_may_have_a_patterns_name)
{
    mr_check(mkdir(mr_test_path("[a]*"), 0777) == 0);
    mr_check(mkdir(mr_test_path("[a]*/one"), 0777) == 0);
    mr_drive_file("[a]*/one/1.png", "p");
    mr_drive(mr_drive_path("image_folder(\"@/[a]*\").map(x => x[\"image\"])"), "\"p\"");
}

MR_TEST(nothing_there_is_an_error_when_run)
{
    mr_drive(mr_drive_path("image_folder(\"@/none\").map(x => x[\"label\"])"),
             "!no_folders_of_images");
    mr_check(mkdir(mr_test_path("one"), 0777) == 0);
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"])"), "!");
    mr_drive_file("one/a.gif", "g");
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"])"),
             "!no_images_in_the_folders");
    mr_drive_bad("image_folder(\"\")", "must be the name of a folder");
    mr_drive_bad("image_folder(\"a\", extensions=[\".jpg\"])", "without the dot");
}

MR_TEST(what_cannot_be_read_is_one_error)
{
    make_folders();
    mr_check(truncate(mr_test_path("cat/x.jpeg"), (off_t)5 << 30) == 0); /* none of it is read */
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"])"), "1 ! 2 2");
    mr_check(unlink(mr_test_path("cat/x.jpeg")) == 0);
    mr_check(mkdir(mr_test_path("cat/x.jpeg"), 0777) == 0);
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"])"), "1 !Is_a_directory");
}

MR_TEST(a_link_to_nothing_ends_the_pipeline)
{
    make_folders();
    mr_check(symlink("gone.jpg", mr_test_path("dog/0.jpg")) == 0);
    mr_check(symlink("gone", mr_test_path("dog/0.txt")) == 0); /* no image */
    mr_check(symlink("gone", mr_test_path(".link")) == 0);     /* hidden */
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"]).ignore_errors()"),
             "1 0 !cannot_open");
    mr_check(symlink("gone", mr_test_path("bird")) ==
             0); /* a class whose number others would get */
    mr_drive(mr_drive_path("image_folder(\"@\").map(x => x[\"label\"]).ignore_errors()"),
             "!bird:_not_found:");
}

/* A position is refused where there is another folder, whose number others took over. */
MR_TEST(a_position_needs_the_same_folders)
{
    make_folders();
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes = NULL;
    size_t size = 0;
    const mr_iterator_opts opts = {.positions = true};
    mr_dataset *ds = mr_drive_build(mr_drive_path("image_folder(\"@\")"));
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_check(mkdir(mr_test_path("bird"), 0777) == 0);
    ds = mr_drive_build(mr_drive_path("image_folder(\"@\")"));
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_code_is(mr_iterator_restore(it, bytes, size, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "are not those of when the position was saved");
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_free(bytes);
}

MR_TEST(every_failed_allocation_is_reported)
{
    mr_check(mkdir(mr_test_path("one"), 0777) == 0);
    mr_drive_file("one/1.png", "p");
    mr_drive_file("one/2.png", "q");
    mr_drive_faults(mr_drive_path("image_folder(\"@\").batch(2)"));
}

MR_TEST(the_constructor_is_the_text)
{
    mr_bytes v[] = {{"jpg", 3}};
    mr_dataset *ds =
        mr_image_folder("pets", &(mr_image_folder_opts){.extensions = {.v = v, .n = 1}});
    char *text = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "image_folder(\"pets\", extensions=\"jpg\")");
    mr_free(text);
    mr_dataset_unref(ds);
}

static void count_reads(void *ctx, size_t bytes)
{
    *(size_t *)ctx += bytes > 0;
}

/* Each worker reads its own images. */
MR_TEST(a_shard_reads_no_image_of_the_others)
{
    enum { CLASSES = 2, IMAGES = 6 };
    char name[64], text[300];
    for (int c = 0; c < CLASSES; c++) {
        snprintf(name, sizeof name, "%s/c%d", mr_test_path("dir"), c);
        mkdir(mr_test_path("dir"), 0700);
        mr_check(mkdir(name, 0700) == 0);
        for (int i = 0; i < IMAGES; i++) {
            snprintf(name, sizeof name, "dir/c%d/%d.jpg", c, i);
            mr_drive_bytes(name, name, strlen(name));
        }
    }
    for (int i = 0; i < 4; i++) {
        size_t reads = 0, rows = 0;
        const mr_iterator_opts o = {
            .has_threads = true, .on_read = count_reads, .on_read_ctx = &reads};
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        mr_status st;
        snprintf(text, sizeof text, "image_folder(\"@/dir\").shard(4, %d).map(x => x[\"label\"])",
                 i);
        mr_drive_alike(mr_drive_path(text));
        mr_dataset *ds = mr_drive_build(mr_drive_path(text));
        mr_eq_i64(mr_dataset_cardinality(ds), 3);
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        while (mr_iterator_next(it, 100, &b, &st) == MR_OK)
            rows += b.rows;
        mr_eq_i64((int64_t)rows, 3);
        mr_eq_i64((int64_t)reads, 3);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
    }
    mr_drive_alike(
        mr_drive_path("image_folder(\"@/dir\").global_shuffle(1).map(x => x[\"path\"])"));
    mr_drive_alike(
        mr_drive_path("image_folder(\"@/dir\").split([0.5, 0.5]).map(x => x[\"path\"])"));
    mr_drive_count(mr_drive_path("image_folder(\"@/dir\").batch(5)"), 3);
}
