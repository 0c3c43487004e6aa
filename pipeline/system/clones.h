/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_CLONES_H
#define MR_PIPELINE_CLONES_H
/* Put before a function whose loop is worth it: it is compiled for several instruction sets, and
 * the one that the processor has is chosen when the library is loaded. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(__clang__)
/* The resolver of a clone runs before a sanitizer's runtime is up; clang 14 knows no levels. */
#define MR__CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MR__CLONES
#endif
#endif
