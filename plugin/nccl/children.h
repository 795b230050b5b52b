/* SPDX-License-Identifier: Apache-2.0
 *
 * children.h: communicators that NCCL splits off a parent that does not block. NCCL writes them when they are made, at
 * any time. The application may look only at its variable, or only at the parent's state, and may let the variable go
 * as soon as it has seen them. So NCCL writes to a place of ours, and what an application sees is known here already:
 * on every rank, however each waits for it.
 */
#ifndef ARFUSION_NCCL_CHILDREN_H_
#define ARFUSION_NCCL_CHILDREN_H_

struct child;

/* Before NCCL is called: where it is to write the child of `parent`, instead of `place`. NULL: out of memory. */
void** children_new(void* parent, void** place, int blocking);

/* After that: NCCL writes it there, now or later; or it never does. */
void children_expect(void** written);
void children_give_up(void** written);

/* Gives what has been written to the application; to be set up at its first allreduce. A thread does so too. */
void children_publish(void);

/* Around the end of a parent: what NCCL is still making of it, and the same once that has ended, with what it has
 * written until then; `lasts`: it goes on. */
struct child* children_take(void* parent);
void children_end(struct child* taken, int lasts);

#endif
