/* SPDX-License-Identifier: Apache-2.0
 *
 * one_line.h: what files, peers and the environment say is quoted in errors, log lines and tables, and must neither end
 * a line there nor steer a terminal.
 */
#ifndef ARFUSION_TOPO_ONE_LINE_H_
#define ARFUSION_TOPO_ONE_LINE_H_

/* Control characters become blanks; UTF-8 stays. */
static inline void text_one_line(char* text) {
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = ' ';
  }
}

#endif
