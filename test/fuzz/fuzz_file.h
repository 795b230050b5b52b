/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_file.h: bytes as a file that has a name, for readers that open one.
 */
#ifndef ARFUSION_TEST_FUZZ_FILE_H_
#define ARFUSION_TEST_FUZZ_FILE_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_NAME_BYTES 64

/* The name of a file with this content; the same one each time. */
static inline const char* fuzz_file(const uint8_t* data, size_t bytes) {
  static char name[FUZZ_NAME_BYTES];
  static int fd = -1;
  if (fd < 0) {
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  }
  if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) abort();
  return name;
}

#endif
