/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.S: every function of functions.txt that is not defined in C. Each jumps to the real one with all argument
 * registers and the stack as they came, so that functions whose arguments nobody here knows are passed on too. Before
 * the first call the real one is looked for: forward_slots[index] is filled by real_resolve(index, return address)
 * (real.h).
 */
#define HERE(name, index)
#define FORWARD(name, index) forward name, index

  .hidden forward_slots
  .hidden real_resolve

#if defined(__x86_64__)

.macro forward name, index
  .globl \name, p\name
  .type \name, @function
  .type p\name, @function
  .p2align 4
\name:
p\name:
  .cfi_startproc
  endbr64
  mov forward_slots + 8 * \index(%rip), %r11
  test %r11, %r11
  jz 1f
  jmp *%r11
1:
  mov $\index, %r11d
  jmp forward_first
  .cfi_endproc
  .size \name, . - \name
  .size p\name, . - p\name
.endm

  .text
/* r11d: index; all else as the caller left it. */
  .type forward_first, @function
forward_first:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  sub $192, %rsp
  mov %rdi, 0(%rsp)
  mov %rsi, 8(%rsp)
  mov %rdx, 16(%rsp)
  mov %rcx, 24(%rsp)
  mov %r8, 32(%rsp)
  mov %r9, 40(%rsp)
  mov %rax, 48(%rsp)
  mov %r10, 56(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  mov %r11d, %edi
  mov 8(%rbp), %rsi
  call real_resolve
  mov %rax, %r11
  mov 0(%rsp), %rdi
  mov 8(%rsp), %rsi
  mov 16(%rsp), %rdx
  mov 24(%rsp), %rcx
  mov 32(%rsp), %r8
  mov 40(%rsp), %r9
  mov 48(%rsp), %rax
  mov 56(%rsp), %r10
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  jmp *%r11
  .cfi_endproc
  .size forward_first, . - forward_first

#elif defined(__aarch64__)

.macro forward name, index
  .globl \name, p\name
  .type \name, %function
  .type p\name, %function
  .p2align 4
\name:
p\name:
  .cfi_startproc
  hint #34 /* bti c */
  adrp x16, forward_slots + 8 * \index
  ldr x16, [x16, :lo12:forward_slots + 8 * \index]
  cbz x16, 1f
  br x16
1:
  mov w17, #\index
  b forward_first
  .cfi_endproc
  .size \name, . - \name
  .size p\name, . - p\name
.endm

  .text
/* w17: index; all else as the caller left it. x8 is where a struct is returned. */
  .type forward_first, %function
forward_first:
  .cfi_startproc
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  mov x1, x30
  bl real_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc
  .size forward_first, . - forward_first

#else
#error "forward.S has no code for this processor"
#endif

#include "nccl_functions.h"

  .section .note.GNU-stack, "", %progbits
