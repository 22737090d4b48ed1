/* Places: a folder with sockets of its own for each tenant. Who has the folder is known by it, whatever its user, process
 * and namespaces: a container gets one folder mounted and sees no other. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/broker.h"

enum { PATH_BYTES = 512 };

/* FOLDER/places/PLACE/NAME for the socket FOLDER/NAME; with place 0 and no suffix FOLDER/places. */
static void path_of(char *path, const char *socket, unsigned int place, const char *suffix)
{
    const char *slash = strrchr(socket, '/');
    const char *name = slash == NULL ? socket : slash + 1;
    int folder = (int)(name - socket);
    if (place == 0)
        snprintf(path, PATH_BYTES, "%.*splaces", folder, socket);
    else if (suffix == NULL)
        snprintf(path, PATH_BYTES, "%.*splaces/%u", folder, socket, place);
    else
        snprintf(path, PATH_BYTES, "%.*splaces/%u/%s%s", folder, socket, place, name, suffix);
}

/* The folder is kept if it is there: a container has it mounted, and would never see another one of the same name. */
static bool make_folder(const char *path, mode_t mode, char *why, size_t why_size)
{
    struct stat facts;
    if (mkdir(path, mode) != 0 && errno != EEXIST) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return false;
    }
    if (lstat(path, &facts) != 0 || !S_ISDIR(facts.st_mode) || facts.st_uid != geteuid()) {
        snprintf(why, why_size, "%s is not a folder of our user; remove it", path);
        return false;
    }
    if (chmod(path, mode) != 0) { /* whatever the umask, and whoever made it */
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

static int listen_at(const char *socket, unsigned int place, const char *suffix, char *why, size_t why_size)
{
    char path[PATH_BYTES];
    path_of(path, socket, place, suffix);
    return wire_listen(path, 0666, why, why_size); /* the folder decides who can reach it */
}

bool places_begin(struct places *places, struct broker *broker, const char *socket, unsigned int count, char *why,
                  size_t why_size)
{
    char path[PATH_BYTES];
    *places = (struct places){.socket = socket};
    path_of(path, socket, 0, NULL);
    if (count > 0 && !make_folder(path, 0700, why, why_size)) /* users of the node stay outside */
        return false;
    for (unsigned int place = 1; place <= count; place++) {
        path_of(path, socket, place, NULL);
        if (!make_folder(path, 0755, why, why_size))
            return false;
        int listener = listen_at(socket, place, "", why, why_size);
        if (listener < 0)
            return false;
        places->listeners[places->count] = listener;
        places->status[places->count++] = -1;
        int status = listen_at(socket, place, ".status", why, why_size);
        if (status < 0)
            return false;
        places->status[place - 1] = status;
        if (!status_begin(broker, status, place)) {
            snprintf(why, why_size, "%s: %s", path, strerror(errno));
            return false;
        }
    }
    broker->places = count;
    return true;
}

void places_end(struct places *places)
{
    char path[PATH_BYTES];
    for (unsigned int at = 0; at < places->count; at++) {
        path_of(path, places->socket, at + 1, "");
        wire_unlisten(places->listeners[at], path);
        path_of(path, places->socket, at + 1, ".status");
        if (places->status[at] >= 0)
            wire_unlisten(places->status[at], path);
    }
    places->count = 0;
}
