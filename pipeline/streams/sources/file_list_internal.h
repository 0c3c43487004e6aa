/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_INTERNAL_H
#define MR_PIPELINE_STREAMS_SOURCES_FILE_LIST_INTERNAL_H
/* File names of a graph, for the layers that rewrite graphs: shard/ and transport/.
 *
 * thread   any */
#include "pipeline/params/param.h"

/* true: name i is a pattern, which is a literal that contains * ? [. */
bool mr__file_is_pattern(const mr_strs *names, size_t i);
#endif
