/* A program in a guest: started with its own stdio, alone, as the first process of a container, or in one that runs. */
#ifndef GPUTAX_SESSION_PROGRAM_H
#define GPUTAX_SESSION_PROGRAM_H

#include "session/request.h"

struct program {
    pid_t process;
    int ended;                 /* a descriptor that is readable once the program has ended (pidfd) */
    int input, output, errors; /* never wait; with a terminal all is input and output, and one descriptor */
};

/* False with the reason: nothing runs. What fails later, in the new process, is told on its stderr. */
bool program_start(struct program *program, const struct request *request, char *why, size_t why_size);

/* Its exit code, 128 + N after signal N. Waits. */
int program_wait(const struct program *program, const struct request *request);

#endif
