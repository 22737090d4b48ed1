/* dom0's end of a session: its own stdio is the session's, its exit code the program's. */
#ifndef GPUTAX_SESSION_CARRIER_H
#define GPUTAX_SESSION_CARRIER_H

#include "session/stream.h"

enum { CARRIER_BROKEN = 255 }; /* the guest is gone or breaks the rules */

/* Blocks the signals that go to the program in the guest, from now on; the descriptor tells them. */
int carrier_signals(void);

/* Runs the request to its end and returns the exit code. `is_gone` is asked at least every second. */
int carrier_run(struct stream *stream, int signals, const char *request, size_t bytes, bool (*is_gone)(void));

#endif
