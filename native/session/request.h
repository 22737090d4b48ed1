/* What a session in a guest shall run: texts that each end with 0 and begin with a letter.
 *
 *   a TEXT  a word of the program's command line, in order     e NAME=VALUE  of its environment
 *   d PATH  its working directory                              u UID, g GID, G GID (a further group)
 *   c NAME  it is the first process of a new container         r DEVICE      with this root file system (erofs)
 *   x NAME  it runs in this container                          h NAME        host name of the container
 *   n       it can gain no privileges                          t             it has a terminal
 *   o       the root file system cannot be written             s             no program: hold the guest until a signal comes
 */
#ifndef GPUTAX_SESSION_REQUEST_H
#define GPUTAX_SESSION_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { REQUEST_BYTES = 256 * 1024, REQUEST_WORDS = 4096, REQUEST_GROUPS = 64, CONTAINER_NAME_MOST = 128 };

struct request {
    char *words[REQUEST_WORDS + 1], *environment[REQUEST_WORDS + 1];
    size_t word_count, environment_count, group_count;
    const char *folder, *container, *device, *joined, *hostname;
    uid_t user;
    gid_t group, groups[REQUEST_GROUPS];
    bool no_new_privileges, terminal, read_only, hold;
};

/* The request keeps pointers into the text, which must end with 0. False: it is not one. */
bool request_read(struct request *request, char *text, size_t bytes);

#endif
