/* SPDX-License-Identifier: Apache-2.0
 *
 * one_line.h: what files, peers and the environment say is quoted in errors, log lines and tables, and must neither end
 * a line there nor steer a terminal.
 */
#ifndef ARFUSION_TOPO_ONE_LINE_H_
#define ARFUSION_TOPO_ONE_LINE_H_

/* Control characters become blanks, also those that UTF-8 has in two bytes (U+0080 to U+009F); the rest of UTF-8
 * stays. */
static inline void text_one_line(char* text) {
  for (; *text != '\0'; text++) {
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first == 0xc2 && second >= 0x80 && second < 0xa0) text[0] = text[1] = ' ';
    if (first < 0x20 || first == 0x7f) *text = ' ';
  }
}

#endif
