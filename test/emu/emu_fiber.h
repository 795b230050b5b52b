/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_fiber.h: contexts with stacks of their own, entered from the one scheduler and left to it.
 */
#ifndef ARFUSION_TEST_EMU_FIBER_H_
#define ARFUSION_TEST_EMU_FIBER_H_

#include <stddef.h>

/* Takes a stack and has the next fiber_enter call run(argument), which never returns, but ends with fiber_end. */
struct fiber_context {
  void* context; /* where it goes on */
  unsigned char* stack;
  void (*run)(void* argument);
  void* argument;
};

void fiber_start(struct fiber_context* fiber, void (*run)(void* argument), void* argument);
void fiber_enter(struct fiber_context* fiber); /* from the scheduler, until the fiber leaves or ends */
void fiber_leave(struct fiber_context* fiber); /* from the fiber */
void fiber_end(struct fiber_context* fiber);   /* from the fiber, for good */
/* From the scheduler: gives back the stack of a fiber that has ended, or that is given up. */
void fiber_release(struct fiber_context* fiber);

#endif
