/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_SPIN_ONCE_H
#define MR_PIPELINE_SYSTEM_SPIN_ONCE_H

/* For each iteration of a busy-wait loop: yields resources of the core. */
static inline void mr__spin_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif
