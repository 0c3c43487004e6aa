/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_CLONES_H
#define MR_PIPELINE_SYSTEM_CLONES_H
/* An attribute for functions with a hot loop: compiles them for several instruction sets, among
 * which the loader chooses by processor. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(__clang__)
/* Resolvers run before the runtime of a sanitizer is initialized; clang 14 has no x86-64 levels. */
#define MR__CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MR__CLONES
#endif
#endif
