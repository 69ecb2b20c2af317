/* faults.c: calls that fail because a test ordered it.

   A rule names a function (or * for all) and when its calls fail:

       aclrtMalloc:nth=3:code=207001      the third call from now, once
       aclrtMapMem:every=5                each fifth call
       *:p=0.01:seed=7:times=20           one call in a hundred, 20 times at most
       device1:lost=507899                the device answers each call with the code

   Without nth, every and p, each call fails.  The default code is 207001 (out of memory) for
   functions that get memory and 507899 (driver) for the rest.  Rules are separated by commas.

   Thread rule: the rules are under one leaf mutex; only calls made while there are rules come
   here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"
#include "exports.h"

enum { RULES = 64, ANY_FUNCTION = -1, TEXT_MAX = 128 };

typedef struct Rule {
    bool used;
    int function; /* ANY_FUNCTION, or its number */
    aclError code;
    uint64_t nth;   /* fails the call of that number; 0: no such rule */
    uint64_t every; /* fails each call whose number is a multiple; 0: no such rule */
    double chance;  /* fails calls with this probability; negative: no such rule */
    uint64_t random;
    uint64_t times; /* how many more failures there may be */
    uint64_t calls;
    uint64_t hits;
} Rule;

static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static Rule rules[RULES];
static uint64_t removed_hits[RULES];

static int function_find(const char *name)
{
    for (int i = 0; i < FN_COUNT; i++) {
        if (strcmp(function_names[i], name) == 0) {
            return i;
        }
    }
    return ANY_FUNCTION - 1;
}

static aclError default_code(const char *function)
{
    bool memory = strstr(function, "Malloc") != NULL || strstr(function, "MapMem") != NULL ||
                  strstr(function, "ReserveMem") != NULL || strstr(function, "MemPool") != NULL;
    return memory ? ACL_ERROR_RT_MEMORY_ALLOCATION : ACL_ERROR_RT_DRV_INTERNAL_ERROR;
}

/* xorshift64*: a rule's own sequence, the same for the same seed. */
static double chance_draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0;
}

/* The rule is asked about one call; the lock is held. */
static bool rule_strikes(Rule *rule)
{
    rule->calls++;
    bool due = true;
    if (rule->nth != 0) {
        due = rule->calls == rule->nth;
    } else if (rule->every != 0) {
        due = rule->calls % rule->every == 0;
    } else if (rule->chance >= 0) {
        due = chance_draw(&rule->random) < rule->chance;
    }
    if (!due || rule->times == 0) {
        return false;
    }
    rule->times--;
    rule->hits++;
    return true;
}

aclError fault_due(unsigned function)
{
    aclError code = ACL_SUCCESS;
    uint64_t call = 0;
    pthread_mutex_lock(&rules_lock);
    for (size_t i = 0; i < RULES; i++) {
        Rule *rule = &rules[i];
        bool concerned = rule->used &&
                         (rule->function == ANY_FUNCTION || rule->function == (int)function);
        if (concerned && rule_strikes(rule) && code == ACL_SUCCESS) {
            code = rule->code != 0 ? rule->code : default_code(function_names[function]);
            call = rule->calls;
        }
    }
    pthread_mutex_unlock(&rules_lock);
    if (code == ACL_SUCCESS) {
        return ACL_SUCCESS;
    }
    return error_set(function_names[function], code, "a fault was ordered for this call (%llu)",
                     (unsigned long long)call);
}

static bool number_read(const char *text, uint64_t *number)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    *number = value;
    return end != text && *end == '\0' && *text != '-';
}

static bool chance_read(const char *text, double *chance)
{
    char *end;
    *chance = strtod(text, &end);
    return end != text && *end == '\0' && *chance >= 0 && *chance <= 1;
}

/* One key=value of a rule. */
static bool key_read(Rule *rule, const char *key, const char *value)
{
    uint64_t number;
    if (strcmp(key, "p") == 0) {
        return chance_read(value, &rule->chance);
    }
    if (!number_read(value, &number)) {
        return false;
    }
    if (strcmp(key, "nth") == 0) {
        rule->nth = number;
        return number != 0;
    }
    if (strcmp(key, "every") == 0) {
        rule->every = number;
        return number != 0;
    }
    if (strcmp(key, "seed") == 0) {
        rule->random = number * 0x9e3779b97f4a7c15u + 1;
        return true;
    }
    if (strcmp(key, "times") == 0) {
        rule->times = number;
        return true;
    }
    if (strcmp(key, "code") == 0) {
        rule->code = (aclError)number;
        return number != 0 && number <= INT32_MAX;
    }
    return false;
}

static aclError rule_read(const char *text, Rule *rule)
{
    char copy[TEXT_MAX];
    if (text == NULL || strlen(text) >= sizeof copy) {
        return fail(ACL_ERROR_INVALID_PARAM, "a fault's text is missing or longer than %d bytes",
                    TEXT_MAX - 1);
    }
    strcpy(copy, text);
    char *rest = NULL;
    const char *name = strtok_r(copy, ":", &rest);
    *rule = (Rule){.used = true, .chance = -1, .random = 0x9e3779b97f4a7c15u, .times = UINT64_MAX};
    rule->function = name == NULL               ? ANY_FUNCTION - 1
                     : strcmp(name, "*") == 0 ? ANY_FUNCTION
                                                : function_find(name);
    if (rule->function < ANY_FUNCTION) {
        return fail(ACL_ERROR_INVALID_PARAM, "'%s': the simulator has no function %s", text,
                    name != NULL ? name : "''");
    }
    for (char *part; (part = strtok_r(NULL, ":", &rest)) != NULL;) {
        char *equals = strchr(part, '=');
        if (equals != NULL) {
            *equals = '\0';
        }
        if (equals == NULL || !key_read(rule, part, equals + 1)) {
            return fail(ACL_ERROR_INVALID_PARAM,
                        "'%s': expected FUNCTION:KEY=NUMBER with the keys nth, every, p, seed, "
                        "times and code", text);
        }
    }
    return ACL_SUCCESS;
}

/* ---- lost devices: faults with the numbers after those of the rules -------------------------- */

typedef struct Loss {
    unsigned faults;      /* how many of them are in force */
    uint64_t begin, hits; /* refusals before the first of them; what they came to in the end */
} Loss;

static Loss losses[DEVICE_MAX]; /* under rules_lock */

/* "device1:lost=507899": true if the text is of that form. */
static bool lost_read(const char *text, int32_t *device, aclError *code)
{
    int length = 0;
    return sscanf(text, "device%d:lost=%d%n", device, code, &length) == 2 && text[length] == '\0';
}

static void loss_begin(int32_t device)
{
    pthread_mutex_lock(&rules_lock);
    Loss *loss = &losses[device];
    if (loss->faults++ == 0) {
        loss->begin = device_refusals(device);
    }
    pthread_mutex_unlock(&rules_lock);
}

/* The last fault's end repairs the device; false if none is in force. */
static bool loss_end(int32_t device)
{
    pthread_mutex_lock(&rules_lock);
    Loss *loss = &losses[device];
    bool known = loss->faults > 0;
    if (known && --loss->faults == 0) {
        loss->hits = device_refusals(device) - loss->begin;
        device_set_lost(device, ACL_SUCCESS);
    }
    pthread_mutex_unlock(&rules_lock);
    return known;
}

static uint64_t loss_hits(int32_t device)
{
    pthread_mutex_lock(&rules_lock);
    const Loss *loss = &losses[device];
    uint64_t hits = loss->faults > 0 ? device_refusals(device) - loss->begin : loss->hits;
    pthread_mutex_unlock(&rules_lock);
    return hits;
}

aclError acl_sim_fault_add(const char *text, uint32_t *number)
{
    Rule rule;
    int32_t device;
    aclError code;
    if (text != NULL && lost_read(text, &device, &code)) {
        TRY(acl_sim_device_lost(device, code));
        loss_begin(device);
        *number = RULES + (uint32_t)device;
        return ACL_SUCCESS;
    }
    TRY(rule_read(text, &rule));
    uint32_t free_slot = 0;
    pthread_mutex_lock(&rules_lock);
    while (free_slot < RULES && rules[free_slot].used) {
        free_slot++;
    }
    if (free_slot < RULES) {
        rules[free_slot] = rule;
    }
    pthread_mutex_unlock(&rules_lock);
    if (free_slot == RULES) {
        return fail(ACL_ERROR_STORAGE_OVER_LIMIT, "more than %d faults at a time", RULES);
    }
    atomic_fetch_or(&gate_watch, GATE_FAULTS);
    *number = free_slot;
    return ACL_SUCCESS;
}

aclError acl_sim_fault_remove(uint32_t number)
{
    bool known = false;
    bool left = false;
    if (number >= RULES && number < RULES + DEVICE_MAX) {
        return loss_end((int32_t)(number - RULES))
            ? ACL_SUCCESS
            : fail(ACL_ERROR_INVALID_PARAM, "no fault has number %u", number);
    }
    pthread_mutex_lock(&rules_lock);
    if (number < RULES && rules[number].used) {
        known = true;
        removed_hits[number] = rules[number].hits;
        rules[number].used = false;
    }
    for (size_t i = 0; i < RULES; i++) {
        left = left || rules[i].used;
    }
    pthread_mutex_unlock(&rules_lock);
    if (!left) {
        atomic_fetch_and(&gate_watch, ~(unsigned)GATE_FAULTS);
    }
    return known ? ACL_SUCCESS : fail(ACL_ERROR_INVALID_PARAM, "no fault has number %u", number);
}

uint64_t acl_sim_fault_hits(uint32_t number)
{
    if (number >= RULES) {
        return number < RULES + DEVICE_MAX ? loss_hits((int32_t)(number - RULES)) : 0;
    }
    pthread_mutex_lock(&rules_lock);
    uint64_t hits = rules[number].used ? rules[number].hits : removed_hits[number];
    pthread_mutex_unlock(&rules_lock);
    return hits;
}

void acl_sim_fault_clear(void)
{
    pthread_mutex_lock(&rules_lock);
    memset(rules, 0, sizeof rules);
    memset(losses, 0, sizeof losses);
    pthread_mutex_unlock(&rules_lock);
    atomic_fetch_and(&gate_watch, ~(unsigned)GATE_FAULTS);
    for (int32_t device = 0; device < (int32_t)config.devices; device++) {
        device_set_lost(device, ACL_SUCCESS);
    }
}

aclError acl_sim_device_lost(int32_t device, aclError code)
{
    TRY(device_check(device));
    device_set_lost(device, code);
    return ACL_SUCCESS;
}

static aclError failing_run(Stream *stream, const void *payload)
{
    (void)stream;
    return *(const aclError *)payload;
}

static const TaskClass failing_task = {.name = "ordered failure", .run = failing_run};

aclError acl_sim_stream_fail(aclrtStream handle, aclError code)
{
    Stream *stream;
    TRY(stream_resolve_any(handle, &stream));
    return stream_submit(stream, &failing_task, &code, sizeof code);
}
