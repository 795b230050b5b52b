/* SPDX-License-Identifier: Apache-2.0
 *
 * last_error.h: whose error the calling thread met last, so that ncclGetLastError can give its text.
 */
#ifndef ARFUSION_NCCL_LAST_ERROR_H_
#define ARFUSION_NCCL_LAST_ERROR_H_

/* This library's error, with its text, or the plugin's; NULL: the text that has been logged with it. Returns
 * `result`. */
int last_error_keep(int result, const char* text);

/* The text, if the last error was not NCCL's; else NULL. */
const char* last_error_text(void);

/* A result of NCCL's, given on: an error is the last one now. Returns `result`. */
int last_error_is_nccls(int result);

#endif
