/* SPDX-License-Identifier: Apache-2.0
 *
 * linger.h: the ends of sending sockets. A socket that is closed while what was sent is still on its way loses that
 * when something comes from the peer: the kernel then resets the connection. So it stays open until the peer's kernel
 * has acknowledged everything, which may take it 40 ms: for all sockets at the same time, and nobody waits meanwhile.
 */
#ifndef ARFUSION_NET_LINGER_H_
#define ARFUSION_NET_LINGER_H_

/* Says to the peer that nothing more is sent, and closes the socket as soon as that loses nothing, the peer has ended,
 * or a second has passed: now, or during a later call. What the peer sends meanwhile is thrown away. */
void linger_begin(int fd);

/* Waits until none of the sockets that linger now is open. Happens by itself when the process ends, or the plugin is
 * unloaded. */
void linger_end(void);

#endif
