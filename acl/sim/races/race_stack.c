/* race_stack.c: the place in the program, from the C stack of the thread.
 *
 * Unwinding costs more than most calls of the API. So each thread keeps places that it has found, with the slots of
 * the stack that held the return addresses. If all slots hold the same addresses again, the place is the same.
 *
 * Thread rule: each thread has its own places. */
#include "races/race_inside.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unwind.h>

enum { WAYS = 8, SETS = 16, FRAMES_MOST = 32 };

typedef struct Known {
    const RaceSite *site;
    uintptr_t from; /* address of the frame of site_of_stack, from which the walk went outwards */
    size_t frames;
    struct {
        void *const *slot; /* where the return address is on the stack */
        void *address;
    } at[FRAMES_MOST];
} Known;

typedef struct Places {
    Known known[SETS][WAYS];
    unsigned next[SETS]; /* the entry of the set that is replaced next */
} Places;

/* A walk from the frame of site_of_stack outwards. */
typedef struct Walk {
    Known known;
    bool is_exact; /* each return address was found in its slot */
    int depth;     /* number of frames outside this library */
    void *at[SITE_FRAMES];
} Walk;

static struct {
    _Unwind_Reason_Code (*walk)(_Unwind_Trace_Fn step, void *argument);
    uintptr_t (*address)(struct _Unwind_Context *context);
    uintptr_t (*frame)(struct _Unwind_Context *context);
} unwinder; /* of libgcc_s, which is loaded when the first place is wanted */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t places_key;
static bool places_kept;

static void unwinder_open(void)
{
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    places_kept = pthread_key_create(&places_key, free) == 0;
    if (library != NULL) {
        *(void **)&unwinder.address = dlsym(library, "_Unwind_GetIP");
        *(void **)&unwinder.frame = dlsym(library, "_Unwind_GetCFA");
        *(void **)&unwinder.walk = dlsym(library, "_Unwind_Backtrace");
    }
}

/* ---- known places -------------------------------------------------------------------------------- */

/* From the same frame, equal return addresses lead to the same slots, because the compiler fixes the size of a frame.
 * So a slot is read only if those nearer to the caller are unchanged, and if the frames up to it exist. */
static bool known_is_here(const Known *known, uintptr_t from)
{
    if (known->from != from) {
        return false;
    }
    for (size_t i = 0; i < known->frames; i++) {
        if (*known->at[i].slot != known->at[i].address) {
            return false;
        }
    }
    return true;
}

static Places *places_here(void)
{
    Places *places = places_kept ? pthread_getspecific(places_key) : NULL;
    if (places == NULL && places_kept) {
        places = calloc(1, sizeof *places);
        if (pthread_setspecific(places_key, places) != 0) {
            free(places);
            places = NULL;
        }
    }
    return places;
}

/* ---- walking ------------------------------------------------------------------------------------- */

/* First and last address of this library, set by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_ours(uintptr_t address)
{
    return address - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start;
}

static _Unwind_Reason_Code frame_add(struct _Unwind_Context *context, void *argument)
{
    Walk *walk = argument;
    uintptr_t address = unwinder.address(context), frame = unwinder.frame(context);
    void *const *slot = (void *const *)(frame - sizeof *slot);
    if (address == 0 || walk->known.frames == FRAMES_MOST || walk->depth == SITE_FRAMES) {
        return _URC_END_OF_STACK;
    }
    if ((uintptr_t)slot >= walk->known.from) { /* slots below are gone when site_of_stack ends */
        walk->is_exact = walk->is_exact && *slot == (void *)address;
        walk->known.at[walk->known.frames].slot = slot;
        walk->known.at[walk->known.frames++].address = (void *)address;
    }
    if (walk->depth != 0 || !is_ours(address)) {
        walk->at[walk->depth++] = (void *)address;
    }
    return _URC_NO_REASON;
}

const RaceSite *site_of_stack(void)
{
    Walk walk;
    uintptr_t from = (uintptr_t)__builtin_frame_address(0);
    pthread_once(&once, unwinder_open);
    Places *places = places_here();
    size_t set = (from >> 4 ^ (uintptr_t)__builtin_return_address(0)) % SETS;
    for (size_t i = 0; places != NULL && i < WAYS; i++) {
        if (known_is_here(&places->known[set][i], from)) {
            return places->known[set][i].site;
        }
    }
    walk.known = (Known){.from = from};
    walk.is_exact = true;
    walk.depth = 0;
    if (unwinder.walk != NULL && unwinder.address != NULL && unwinder.frame != NULL) {
        unwinder.walk(frame_add, &walk);
    }
    walk.known.site = site_intern(walk.at, walk.depth, "");
    if (places != NULL && walk.is_exact && walk.known.site != NULL) {
        places->known[set][places->next[set]++ % WAYS] = walk.known;
    }
    return walk.known.site;
}
