/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_FRAMES_H
#define MR_PIPELINE_FORMATS_FRAMES_H
/* Records that are each one zstd frame (RFC 8878), unpacked. Frames that were made with a
 * dictionary have its number. It is the one that was named, or PREFIX.dict beside the file
 * PREFIX-00000-of-0000N.tfrecord, as the shard writer leaves it.
 *
 * thread   one at a time per object
 * since    0.1 */
#include "../../memory/array.h"
#include "../../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_frames mr_frames;

/* dictionary: its path; NULL: none is named. cancel, kept: NULL: nothing.
 * errors   as open(2) · MR_INVALID_ARGUMENT: the dictionary is damaged · MR_OUT_OF_RANGE: it has
 *          more than 256 MiB · MR_NOT_FOUND: libzstd is not installed */
MR_API mr_code mr_frames_open(mr_frames **out, const char *dictionary, mr_cancel *cancel,
                              mr_status *st) MR_NODISCARD;
MR_API void mr_frames_close(mr_frames *f); /* NULL: nothing */
/* Does the record begin as a frame does? */
MR_API bool mr_is_frame(const mr_bytes *record);

/* The first of n frames, which are of the file `path`, that are good and together have not much
 * more than `most` bytes, at least one: *out are their records, to be reset by the caller.
 * errors   of the first frame: MR_DATA_LOSS: it is damaged, or none · MR_FAILED_PRECONDITION: its
 *          dictionary is another, or not known · MR_RESOURCE_EXHAUSTED: a record of more than
 *          1 GiB · those of opening */
MR_API mr_code mr_frames_read(mr_frames *f, const char *path, const mr_bytes *frames, size_t n,
                              size_t most, mr_array *out, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
