/* The guest's end of one session. */
#ifndef GPUTAX_SESSION_SERVE_H
#define GPUTAX_SESSION_SERVE_H

#include "session/stream.h"

/* Takes the request, runs its program and tells how it ended. When dom0's end is gone the program is killed. */
void session_serve(struct stream *stream);

#endif
