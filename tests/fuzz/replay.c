/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzzing target without a fuzzer: over the stored corpus, and over some mutations of each
 * input that depend only on the seed.
 *
 *     fuzz_x [--mutations=N] [--seed=S] [--last=FILE] PATH...
 *
 * A path is an input or a folder of inputs. --last keeps what was run last in FILE: after a crash,
 * the input to add to the corpus. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_ROOM = 1 << 20, FILES_ROOM = 10000 };

static uint64_t mutations, seed = 1, n_runs;
static int last = -1;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Runs one input from a block of exactly its size, so that reading past it is seen. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        exit(2);
    memcpy(copy, data, size);
    if (last >= 0 && (pwrite(last, data, size, 0) < 0 || ftruncate(last, (off_t)size) < 0))
        exit(2);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    n_runs++;
}

/* Changes data in place (room for `room` bytes) and returns its new size. */
static size_t mutate(uint8_t *data, size_t size, size_t room, uint64_t *random)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '"', '(', ')', '[', ']', '{', '0'};
    uint64_t r = draw(random);
    size_t at = size ? (size_t)(r >> 8) % size : 0, n = 1 + (size_t)(r >> 40) % 8;
    switch (r % 6) {
    case 0:
        if (size)
            data[at] ^= (uint8_t)(1u << ((r >> 32) % 8));
        return size;
    case 1:
        if (size)
            data[at] = telling[(r >> 32) % sizeof telling];
        return size;
    case 2: /* cut the end */
        return at;
    case 3: /* remove */
        if (n > size - at)
            n = size - at;
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 4: /* repeat */
        if (n > size - at)
            n = size - at;
        if (size + n > room)
            return size;
        memmove(data + at + n, data + at, size - at);
        return size + n;
    default: /* insert */
        if (size + 1 > room)
            return size;
        memmove(data + at + 1, data + at, size - at);
        data[at] = telling[(r >> 32) % sizeof telling];
        return size + 1;
    }
}

static void run_file(const char *path)
{
    static uint8_t input[INPUT_ROOM], changed[INPUT_ROOM + 64];
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    size_t size = fread(input, 1, sizeof input, f);
    fclose(f);
    run(input, size);
    /* Start from the input's own bytes, so that the order of files does not matter. */
    uint64_t random = seed;
    for (size_t i = 0; i < size; i++)
        random = random * 0x100000001b3u ^ input[i];
    for (uint64_t i = 0; i < mutations; i++) {
        size_t n = size;
        memcpy(changed, input, size);
        for (uint64_t k = 1 + draw(&random) % 4; k > 0; k--)
            n = mutate(changed, n, sizeof changed, &random);
        run(changed, n);
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        exit(2);
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    static char *names[FILES_ROOM];
    size_t n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && n < FILES_ROOM && (e = readdir(dir));)
        if (e->d_name[0] != '.' && asprintf(&names[n], "%s/%s", path, e->d_name) > 0)
            n++;
    if (dir)
        closedir(dir);
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n; i++) {
        run_file(names[i]);
        free(names[i]);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--mutations=", 12) == 0)
            mutations = strtoull(argv[i] + 12, NULL, 10);
        else if (strncmp(argv[i], "--seed=", 7) == 0)
            seed = strtoull(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "--last=", 7) == 0)
            last = open(argv[i] + 7, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
        else
            run_path(argv[i]);
    }
    printf("%" PRIu64 " inputs\n", n_runs);
    return n_runs ? 0 : 2;
}
