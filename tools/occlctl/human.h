/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for people. All write at most bytes, always end the text, and return out_text. */
#ifndef TOOLS_OCCLCTL_HUMAN_H
#define TOOLS_OCCLCTL_HUMAN_H

#include <stddef.h>
#include <stdint.h>

/* Longest text of these functions, with its NUL. */
#define OCCL_HUMAN_BYTES 32

/* "512 B", "1.5 KiB", "9.0 MiB": at most three digits before the point from KiB on. */
const char *occl_human_size(uint64_t size_bytes, char *out_text, size_t bytes);
/* "850 ns", "12.3 us", "4.50 ms", "3.2 s", "4 min 05 s", "2 h 03 min", "3 d 04 h". */
const char *occl_human_duration(uint64_t duration_ns, char *out_text, size_t bytes);

#endif
