/* SPDX-License-Identifier: Apache-2.0 */
/* What the sanitizers of the program learn of the double, which is built without them. By tsan.supp
 * ThreadSanitizer takes no notice of the calls that the double makes, of its locks above all: each
 * operation takes them, so that they would put everything in an order. Instead it learns what CUDA
 * promises: what a stream, an event or a wait of the host puts in an order, and nothing else. So it
 * finds a host that touches pinned memory without a wait, which the double cannot see. */
#include <dlfcn.h>
#include "tests/cuda_double/double.h"

typedef void sync_fn(void *at);
typedef void range_fn(const void *p, size_t bytes);
typedef void word_fn(const void *p);

static sync_fn *acquires, *releases;
static range_fn *reads, *writes, *poisons, *unpoisons;
/* Of a word; by its bytes ThreadSanitizer would remember less of others' accesses. */
static word_fn *reads_word, *writes_word;

/* Not by their names: kernels call functions of such names, which are the double's own. */
__attribute__((constructor)) static void find_them(void)
{
    *(void **)&acquires = dlsym(RTLD_DEFAULT, "__tsan_acquire");
    *(void **)&releases = dlsym(RTLD_DEFAULT, "__tsan_release");
    *(void **)&reads_word = dlsym(RTLD_DEFAULT, "__tsan_read4");
    *(void **)&writes_word = dlsym(RTLD_DEFAULT, "__tsan_write4");
    *(void **)&poisons = dlsym(RTLD_DEFAULT, "__asan_poison_memory_region");
    *(void **)&unpoisons = dlsym(RTLD_DEFAULT, "__asan_unpoison_memory_region");
    *(void **)&reads = dlsym(RTLD_DEFAULT, releases ? "__tsan_read_range" : "__asan_loadN");
    *(void **)&writes = dlsym(RTLD_DEFAULT, releases ? "__tsan_write_range" : "__asan_storeN");
}

bool cd_races_are_watched(void)
{
    return releases;
}

void cd_tell_done(const void *at)
{
    if (releases)
        releases((void *)(uintptr_t)at);
}

void cd_tell_after(const void *at)
{
    if (acquires)
        acquires((void *)(uintptr_t)at);
}

void cd_tell_access(const void *p, size_t bytes, bool write)
{
    range_fn *tell = write ? writes : reads;
    word_fn *tell_word = write ? writes_word : reads_word;
    if (tell_word && bytes == 4 && (uintptr_t)p % 4 == 0)
        tell_word(p);
    else if (tell && bytes > 0)
        tell(p, bytes);
}

void cd_tell_unusable(const void *p, size_t bytes, bool unusable)
{
    range_fn *tell = unusable ? poisons : unpoisons;
    if (tell && bytes > 0)
        tell(p, bytes);
}
