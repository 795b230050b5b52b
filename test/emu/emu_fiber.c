/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_fiber.c: the context switch: a few instructions on x86-64, ucontext (which asks the kernel for the signal mask)
 * elsewhere.
 */
#include "test/emu/emu_fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* Stacks begin at different places, else their first lines would all contend for the same sets of the caches. */
enum { STACK = 64 << 10, STACKS_AT_ONCE = 64, COLOURS = 61, COLOUR = 256 };

/* Free stacks, each with a pointer to the next at its start. */
static unsigned char* free_stacks;
static struct fiber_context* entered;

static unsigned char* stack_take(void) {
  if (free_stacks == NULL) {
    unsigned char* block = mmap(NULL, (size_t)STACK * STACKS_AT_ONCE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
      perror("emulator: stacks");
      exit(1);
    }
    for (int i = 0; i < STACKS_AT_ONCE; ++i) {
      *(unsigned char**)(block + (size_t)i * STACK) = free_stacks;
      free_stacks = block + (size_t)i * STACK;
    }
  }
  unsigned char* stack = free_stacks;
  free_stacks = *(unsigned char**)stack;
  return stack;
}

void fiber_release(struct fiber_context* fiber) {
  if (fiber->stack == NULL) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber->stack, STACK); /* frames that were never left */
#endif
  *(unsigned char**)fiber->stack = free_stacks;
  free_stacks = fiber->stack;
  fiber->stack = NULL;
}

/* ---------------------------------------------------------------- what ASan must know */

static void* scheduler_fake_stack;
static const void* scheduler_bottom;
static size_t scheduler_size;

/* `fake`: where the stack that is left keeps what is ASan's; NULL: it ends. */
static void switch_begins(void** fake, const void* bottom, size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake, bottom, size);
#else
  (void)fake, (void)bottom, (void)size;
#endif
}

static void switch_ends(void* fake, const void** bottom, size_t* size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, bottom, size);
#else
  (void)fake, (void)bottom, (void)size;
#endif
}

static void fiber_begin(void) {
  switch_ends(NULL, &scheduler_bottom, &scheduler_size);
  entered->run(entered->argument);
  abort(); /* the contract of fiber_start */
}

/* ---------------------------------------------------------------- the switch */

#if defined(__x86_64__)

static void* scheduler;

/* Saves what a function must preserve, and the stack pointer in *from; goes on where `to` was saved. */
void emu_fiber_switch(void** from, void* to);
__asm__(
    ".text\n"
    ".type emu_fiber_switch, @function\n"
    "emu_fiber_switch:\n"
    "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
    "  ret\n"
    ".size emu_fiber_switch, . - emu_fiber_switch\n");

static void context_make(struct fiber_context* fiber) {
  static unsigned colour;
  colour = (colour + 1) % COLOURS;
  void** top = (void**)(fiber->stack + STACK - colour * COLOUR); /* a multiple of 16; functions begin 8 below one */
  *--top = NULL;                                                 /* fiber_begin returns to nowhere */
  *--top = (void*)fiber_begin;
  for (int i = 0; i < 6; ++i) *--top = NULL;
  fiber->context = top;
}
static void switch_to_fiber(struct fiber_context* fiber) { emu_fiber_switch(&scheduler, fiber->context); }
static void switch_to_scheduler(struct fiber_context* fiber) { emu_fiber_switch(&fiber->context, scheduler); }

#else
#include <ucontext.h>

static ucontext_t scheduler;

/* The context lies at the far end of the stack. */
static void context_make(struct fiber_context* fiber) {
  ucontext_t* context = (ucontext_t*)(fiber->stack + 64);
  fiber->context = context;
  getcontext(context);
  context->uc_stack.ss_sp = fiber->stack + 64 + sizeof *context;
  context->uc_stack.ss_size = STACK - 64 - sizeof *context;
  context->uc_link = NULL;
  makecontext(context, fiber_begin, 0);
}
static void switch_to_fiber(struct fiber_context* fiber) { swapcontext(&scheduler, fiber->context); }
static void switch_to_scheduler(struct fiber_context* fiber) { swapcontext(fiber->context, &scheduler); }

#endif

void fiber_start(struct fiber_context* fiber, void (*run)(void* argument), void* argument) {
  fiber->run = run;
  fiber->argument = argument;
  fiber->stack = stack_take();
  context_make(fiber);
}

void fiber_enter(struct fiber_context* fiber) {
  entered = fiber;
  switch_begins(&scheduler_fake_stack, fiber->stack, STACK);
  switch_to_fiber(fiber);
  switch_ends(scheduler_fake_stack, NULL, NULL);
}

void fiber_leave(struct fiber_context* fiber) {
  void* fake = NULL;
  switch_begins(&fake, scheduler_bottom, scheduler_size);
  switch_to_scheduler(fiber);
  switch_ends(fake, &scheduler_bottom, &scheduler_size);
}

void fiber_end(struct fiber_context* fiber) {
  switch_begins(NULL, scheduler_bottom, scheduler_size);
  switch_to_scheduler(fiber);
  abort(); /* nobody enters it again */
}
