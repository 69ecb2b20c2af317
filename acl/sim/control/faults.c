/* faults.c: makes calls fail, by rules that a test sets.

   A rule names a function (or * for all) and when its calls fail:

       aclrtMalloc:nth=3:code=207001      the third call from now fails, once
       aclrtMapMem:every=5                each fifth call fails
       *:p=0.01:seed=7:times=20           one call in a hundred fails, 20 times at most
       device1:lost=507899                each call for device 1 fails with that code

   Without nth, every and p, each call fails.  The default code is 207001 (out of memory) for functions with
   Malloc, MemAlloc, MapMem, ReserveMem or MemPool in their name, and 507899 (driver) for all other functions.
   Rules are separated by commas.

   A rule's number is never given to another rule.  So to remove a rule a second time, or after all rules were
   cleared, never ends a newer rule.  The hits of a removed rule can be read until its slot is reused.

   Thread rule: one mutex guards the rules and the bit GATE_FAULTS of gate_watch; no other lock is taken
   while it is held.  A call takes it only while there are rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_api.h"
#include "generated/exports.h"

enum { RULES = 64, ANY_FUNCTION = -1, UNKNOWN_FUNCTION = -2, DEVICE_LOST = -3, TEXT_MAX = 128 };

typedef struct Rule {
    bool used;
    uint32_t number; /* 0: the slot was never used */
    int function;    /* number of the function, or ANY_FUNCTION; DEVICE_LOST: the rule is about a device */
    int32_t device;  /* the device; valid only if `function` is DEVICE_LOST */
    aclError code;
    uint64_t nth;   /* the call of this number (from 1) fails; 0: not used */
    uint64_t every; /* each call whose number is a multiple of this fails; 0: not used */
    double chance;  /* probability that a call fails; negative: not used */
    uint64_t random; /* state of the rule's random sequence */
    uint64_t times; /* number of failures that are still allowed */
    uint64_t calls; /* calls of the function since the rule was added; if DEVICE_LOST: device_refusals() at that time */
    uint64_t hits;  /* failures so far */
} Rule;

FILE_LOCK(rules_lock);
static Rule rules[RULES];
static uint32_t newest; /* number of the newest rule */

static int function_find(const char *name)
{
    for (int i = 0; i < FN_COUNT; i++) {
        if (strcmp(function_names[i], name) == 0) {
            return i;
        }
    }
    return UNKNOWN_FUNCTION;
}

static aclError default_code(const char *function)
{
    bool memory = strstr(function, "Malloc") != NULL || strstr(function, "MemAlloc") != NULL ||
                  strstr(function, "MapMem") != NULL || strstr(function, "ReserveMem") != NULL ||
                  strstr(function, "MemPool") != NULL;
    return memory ? ACL_ERROR_RT_MEMORY_ALLOCATION : ACL_ERROR_RT_DRV_INTERNAL_ERROR;
}

/* Returns the next number of the rule's random sequence (xorshift64*); equal seeds give equal sequences. */
static double chance_draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0;
}

/* Counts a call for the rule. True if the rule makes it fail; the lock is held. */
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

/* Reads one key=value of a rule; false if the key is unknown or the value is invalid. */
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
    rule->function = name == NULL               ? UNKNOWN_FUNCTION
                     : strcmp(name, "*") == 0 ? ANY_FUNCTION
                                                : function_find(name);
    if (rule->function == UNKNOWN_FUNCTION) {
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

/* ---- the rules in force ---------------------------------------------------------------------- */

/* Reads a rule of the form "device1:lost=507899"; false if the text has another form. */
static bool lost_read(const char *text, int32_t *device, aclError *code)
{
    int length = 0;
    return sscanf(text, "device%d:lost=%d%n", device, code, &length) == 2 && text[length] == '\0';
}

/* Returns the slot of the rule, which may be in force or removed; NULL if no slot has this number.  The lock is
 * held. */
static Rule *rule_find(uint32_t number)
{
    for (size_t i = 0; number != 0 && i < RULES; i++) {
        if (rules[i].number == number) {
            return &rules[i];
        }
    }
    return NULL;
}

/* Stores the rule in a slot that was never used, or else in that of the oldest removed rule. Returns the rule's number;
 * 0 if rules in force use all slots. */
static uint32_t rule_put(const Rule *rule)
{
    Rule *slot = NULL;
    for (size_t i = 0; i < RULES; i++) {
        if (!rules[i].used && (slot == NULL || rules[i].number < slot->number)) {
            slot = &rules[i];
        }
    }
    if (slot == NULL) {
        return 0;
    }
    *slot = *rule;
    slot->number = ++newest;
    return slot->number;
}

/* Returns how many calls the rule has made fail so far. */
static uint64_t rule_hits(const Rule *rule)
{
    bool lost = rule->used && rule->function == DEVICE_LOST;
    return lost ? device_refusals(rule->device) - rule->calls : rule->hits;
}

/* Makes the device lost with the code of the newest rule about it. If there is no such rule, repairs the device. */
static void device_follow(int32_t device)
{
    const Rule *last = NULL;
    for (size_t i = 0; i < RULES; i++) {
        bool concerned = rules[i].used && rules[i].function == DEVICE_LOST &&
                         rules[i].device == device;
        if (concerned && (last == NULL || rules[i].number > last->number)) {
            last = &rules[i];
        }
    }
    device_set_lost(device, last == NULL ? ACL_SUCCESS : last->code);
}

/* Ends a rule that is in force; the lock is held. */
static void rule_end(Rule *rule)
{
    rule->hits = rule_hits(rule);
    rule->used = false;
    if (rule->function == DEVICE_LOST) {
        device_follow(rule->device);
    }
}

/* Sets GATE_FAULTS if a rule about a function is in force, else clears it; the lock is held. */
static void gate_follow(void)
{
    bool some = false;
    for (size_t i = 0; i < RULES; i++) {
        some = some || (rules[i].used && rules[i].function != DEVICE_LOST);
    }
    if (some) {
        atomic_fetch_or(&gate_watch, GATE_FAULTS);
    } else {
        atomic_fetch_and(&gate_watch, ~(unsigned)GATE_FAULTS);
    }
}

aclError acl_sim_fault_add(const char *text, uint32_t *number)
{
    Rule rule = {.used = true, .function = DEVICE_LOST};
    if (text != NULL && lost_read(text, &rule.device, &rule.code)) {
        TRY(device_check(rule.device));
        if (rule.code <= 0) {
            return fail(ACL_ERROR_INVALID_PARAM, "'%.64s': expected a status above 0, such as 507899", text);
        }
        rule.calls = device_refusals(rule.device);
    } else {
        TRY(rule_read(text, &rule));
    }
    pthread_mutex_lock(&rules_lock);
    uint32_t given = rule_put(&rule);
    if (given != 0 && rule.function == DEVICE_LOST) {
        device_follow(rule.device);
    }
    gate_follow();
    pthread_mutex_unlock(&rules_lock);
    if (given == 0) {
        return fail(ACL_ERROR_STORAGE_OVER_LIMIT, "more than %d faults at a time", RULES);
    }
    *number = given;
    return ACL_SUCCESS;
}

aclError acl_sim_fault_remove(uint32_t number)
{
    pthread_mutex_lock(&rules_lock);
    Rule *rule = rule_find(number);
    bool known = rule != NULL && rule->used;
    if (known) {
        rule_end(rule);
        gate_follow();
    }
    pthread_mutex_unlock(&rules_lock);
    return known ? ACL_SUCCESS
                 : fail(ACL_ERROR_INVALID_PARAM, "no fault in force has number %u", number);
}

uint64_t acl_sim_fault_hits(uint32_t number)
{
    pthread_mutex_lock(&rules_lock);
    const Rule *rule = rule_find(number);
    uint64_t hits = rule == NULL ? 0 : rule_hits(rule);
    pthread_mutex_unlock(&rules_lock);
    return hits;
}

bool fault_in_force(uint32_t number)
{
    pthread_mutex_lock(&rules_lock);
    const Rule *rule = rule_find(number);
    bool used = rule != NULL && rule->used;
    pthread_mutex_unlock(&rules_lock);
    return used;
}

void acl_sim_fault_clear(void)
{
    pthread_mutex_lock(&rules_lock);
    for (size_t i = 0; i < RULES; i++) {
        if (rules[i].used) {
            rule_end(&rules[i]);
        }
    }
    gate_follow();
    pthread_mutex_unlock(&rules_lock);
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
    STREAM_REF(stream);
    TRY(stream_resolve_any(handle, &stream));
    return stream_submit(stream, &failing_task, &code, sizeof code);
}
