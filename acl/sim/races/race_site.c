/* race_site.c: the places where tasks are queued: the C stack, and the Python stack if there is an
 * interpreter.
 *
 * Each different place is stored once and never freed, so places are compared by their addresses.
 *
 * Thread rule: any thread; a lock of its own guards the table. */
#include "base/json.h"
#include "races/race_inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SITES = 4096, TEXT_MOST = 4096 };

static RaceSite *sites[SITES];
FILE_LOCK(sites_lock);

static _Atomic(acl_sim_python_stack) python_stack;

void acl_sim_races_python(acl_sim_python_stack stack)
{
    atomic_store(&python_stack, stack);
}

static _Atomic(acl_sim_tag) tag_of;

void acl_sim_races_tags(acl_sim_tag tag)
{
    atomic_store(&tag_of, tag);
}

bool race_tag(uintptr_t address, char *text, size_t size)
{
    acl_sim_tag ask = atomic_load_explicit(&tag_of, memory_order_relaxed);
    text[0] = '\0';
    return ask != NULL && ask(address, text, size) != 0 && text[0] != '\0';
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

static uint64_t site_hash(void *const *at, int depth, const char *python)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < depth; i++) {
        hash = mix(hash, (uint64_t)(uintptr_t)at[i]);
    }
    for (const char *c = python; *c != '\0'; c++) {
        hash = mix(hash, (unsigned char)*c);
    }
    return hash ^ hash >> 32;
}

static bool site_is(const RaceSite *site, void *const *at, int depth, const char *python)
{
    return site->depth == depth && memcmp(site->at, at, (size_t)depth * sizeof *at) == 0
           && strcmp(site->python == NULL ? "" : site->python, python) == 0;
}

static RaceSite *site_new(void *const *at, int depth, const char *python, uint64_t hash)
{
    RaceSite *site = calloc(1, sizeof *site);
    if (site == NULL) {
        return NULL;
    }
    site->hash = hash;
    site->depth = depth;
    memcpy(site->at, at, (size_t)depth * sizeof *at);
    site->python = *python != '\0' ? strdup(python) : NULL;
    site->next = sites[hash % SITES];
    sites[hash % SITES] = site;
    return site;
}

const RaceSite *site_intern(void *const *at, int depth, const char *python)
{
    uint64_t hash = site_hash(at, depth, python);
    pthread_mutex_lock(&sites_lock);
    RaceSite *site = sites[hash % SITES];
    while (site != NULL && (site->hash != hash || !site_is(site, at, depth, python))) {
        site = site->next;
    }
    if (site == NULL) {
        site = site_new(at, depth, python, hash);
    }
    pthread_mutex_unlock(&sites_lock);
    return site;
}

const RaceSite *site_here(void)
{
    char python[TEXT_MOST];
    acl_sim_python_stack ask = atomic_load_explicit(&python_stack, memory_order_relaxed);
    python[0] = '\0';
    if (ask != NULL && ask(python, sizeof python) != 0) {
        void *const no_frame = NULL;
        return site_intern(&no_frame, 0, python); /* not NULL, which memcpy refuses also for 0 bytes */
    }
    return site_of_stack();
}

/* Writes a frame as "function+0x12 (library)". */
static void frame_text(const void *address, char *text, size_t size)
{
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        snprintf(text, size, "%p", address);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash != NULL ? slash + 1 : info.dli_fname;
    const void *from = info.dli_sname != NULL ? info.dli_saddr : info.dli_fbase;
    snprintf(text, size, "%s+0x%zx (%s)", info.dli_sname != NULL ? info.dli_sname : "",
             (size_t)((uintptr_t)address - (uintptr_t)from), file);
}

/* Returns the frames of a site as text, one line for each, which the caller frees; NULL without a site. */
static char *site_text(const RaceSite *site)
{
    if (site == NULL) {
        return NULL;
    }
    if (site->python != NULL) {
        return strdup(site->python);
    }
    char *text = calloc(1, TEXT_MOST);
    size_t used = 0;
    for (int i = 0; text != NULL && i < site->depth; i++) {
        char frame[256];
        frame_text(site->at[i], frame, sizeof frame);
        int more = snprintf(text + used, TEXT_MOST - used, "%s%s", i == 0 ? "" : "\n", frame);
        used += more > 0 && (size_t)more < TEXT_MOST - used ? (size_t)more : 0;
    }
    return text;
}

void site_print(FILE *file, const RaceSite *site)
{
    char *text = site_text(site);
    for (char *rest = text, *line; line = strsep(&rest, "\n"), line != NULL;) {
        if (*line != '\0') {
            fprintf(file, "      at %s\n", line);
        }
    }
    free(text);
}

void site_print_json(FILE *file, const RaceSite *site)
{
    char *text = site_text(site);
    const char *separator = "";
    fputc('[', file);
    for (char *rest = text, *line; line = strsep(&rest, "\n"), line != NULL;) {
        if (*line != '\0') {
            fputs(separator, file);
            json_print(file, line);
            separator = ", ";
        }
    }
    fputc(']', file);
    free(text);
}
