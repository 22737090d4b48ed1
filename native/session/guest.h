/* The agent of a guest: serves what dom0 asks for, each session in a process of its own. */
#ifndef GPUTAX_SESSION_GUEST_H
#define GPUTAX_SESSION_GUEST_H

/* Never returns while XenStore answers. */
int guest_agent(unsigned int host);

#endif
