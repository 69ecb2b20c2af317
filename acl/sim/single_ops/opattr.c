/* opattr.c: aclopAttr: an operator's attributes.

   A handle points at a set. If queued calls share the set, setting an attribute copies the set first. A handle is
   changed by one thread at a time. */
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "single_ops/opapi.h"

struct aclopAttr {
    AttrSet *set;
};

/* --- sets --- */

static void attr_free(const Attr *attr)
{
    free((char *)(uintptr_t)attr->name);
    free((char *)(uintptr_t)attr->s);
    free((int64_t *)(uintptr_t)attr->ints);
    free((float *)(uintptr_t)attr->floats);
    for (int64_t i = 0; attr->strings != NULL && i < attr->count; i++) {
        free((char *)(uintptr_t)attr->strings[i]);
    }
    free((char **)(uintptr_t)attr->strings);
}

void attrs_release(AttrSet *set)
{
    if (set == NULL || atomic_fetch_sub(&set->references, 1) != 1) {
        return;
    }
    for (int i = 0; i < set->list.count; i++) {
        attr_free(&set->items[i]);
    }
    free(set->items);
    free(set);
}

static void *bytes_copy(const void *from, size_t bytes)
{
    void *copy = from == NULL ? NULL : malloc(bytes + 1);
    if (copy != NULL) {
        memcpy(copy, from, bytes);
    }
    return copy;
}

static const char *const *strings_copy(const char *const *from, int64_t count)
{
    char **copy = calloc((size_t)count + 1, sizeof *copy);
    for (int64_t i = 0; copy != NULL && i < count; i++) {
        copy[i] = strdup(from[i]);
    }
    return (const char *const *)copy;
}

/* Returns a copy that owns all memory it points at; its name is NULL if there is no host memory. */
static Attr attr_copy(const Attr *from)
{
    Attr copy = {.kind = from->kind, .i = from->i, .f = from->f, .count = from->count};
    size_t count = (size_t)from->count;
    copy.s = from->s == NULL ? NULL : strdup(from->s);
    copy.ints = bytes_copy(from->ints, count * sizeof *from->ints);
    copy.floats = bytes_copy(from->floats, count * sizeof *from->floats);
    copy.strings = from->strings == NULL ? NULL : strings_copy(from->strings, from->count);
    bool whole = (from->s == NULL) == (copy.s == NULL)
        && (from->ints == NULL) == (copy.ints == NULL)
        && (from->floats == NULL) == (copy.floats == NULL)
        && (from->strings == NULL) == (copy.strings == NULL);
    copy.name = whole ? strdup(from->name) : NULL;
    return copy;
}

static AttrSet *set_new(void)
{
    AttrSet *set = calloc(1, sizeof *set);
    if (set != NULL) {
        atomic_init(&set->references, 1);
    }
    return set;
}

/* Adds an attribute, or replaces the one of the same name. The set takes over the attribute's memory. */
static bool set_put(AttrSet *set, const Attr *attr)
{
    for (int i = 0; i < set->list.count; i++) {
        if (strcmp(set->items[i].name, attr->name) == 0) {
            attr_free(&set->items[i]);
            set->items[i] = *attr;
            return true;
        }
    }
    Attr *items = realloc(set->items, ((size_t)set->list.count + 1) * sizeof *items);
    if (items == NULL) {
        return false;
    }
    items[set->list.count] = *attr;
    set->items = items;
    set->list = (AttrList){items, set->list.count + 1};
    return true;
}

/* Returns the handle's set after making sure that no call shares it. */
static AttrSet *set_own(aclopAttr *attr)
{
    if (atomic_load(&attr->set->references) == 1) {
        return attr->set;
    }
    AttrSet *own = set_new();
    for (int i = 0; own != NULL && i < attr->set->list.count; i++) {
        Attr copy = attr_copy(&attr->set->items[i]);
        if (copy.name == NULL || !set_put(own, &copy)) {
            attr_free(&copy);
            attrs_release(own);
            own = NULL;
        }
    }
    if (own != NULL) {
        attrs_release(attr->set);
        attr->set = own;
    }
    return own;
}

aclError attrs_take(const aclopAttr *attr, AttrSet **set)
{
    *set = NULL;
    if (attr == NULL) {
        return ACL_SUCCESS;
    }
    REQUIRE(handle_is(attr, HANDLE_OP_ATTR));
    atomic_fetch_add(&attr->set->references, 1);
    *set = attr->set;
    return ACL_SUCCESS;
}

static bool attr_same(const Attr *a, const Attr *b)
{
    size_t count = (size_t)a->count;
    if (strcmp(a->name, b->name) != 0 || a->kind != b->kind || a->i != b->i || a->count != b->count
        || memcmp(&a->f, &b->f, sizeof a->f) != 0 || (a->s != NULL && strcmp(a->s, b->s) != 0)) {
        return false;
    }
    for (int64_t i = 0; a->strings != NULL && i < a->count; i++) {
        if (strcmp(a->strings[i], b->strings[i]) != 0) {
            return false;
        }
    }
    return (a->ints == NULL || memcmp(a->ints, b->ints, count * sizeof *a->ints) == 0)
        && (a->floats == NULL || memcmp(a->floats, b->floats, count * sizeof *a->floats) == 0);
}

/* Returns the set's attribute with the name of `wanted`, or NULL; the names in a set differ. */
static const Attr *attr_named_as(const AttrSet *set, const Attr *wanted)
{
    for (int i = 0; i < set->list.count; i++) {
        if (strcmp(set->items[i].name, wanted->name) == 0) {
            return &set->items[i];
        }
    }
    return NULL;
}

bool attrs_equal(const AttrSet *a, const AttrSet *b)
{
    int count = a == NULL ? 0 : a->list.count;
    if (count != (b == NULL ? 0 : b->list.count)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const Attr *other = attr_named_as(b, &a->items[i]);
        if (other == NULL || !attr_same(&a->items[i], other)) {
            return false;
        }
    }
    return true;
}

/* --- handles --- */

aclopAttr *sim_aclopCreateAttr(void)
{
    aclopAttr *attr = handle_new(HANDLE_OP_ATTR, sizeof *attr);
    if (attr != NULL && (attr->set = set_new()) == NULL) {
        handle_retire(attr);
        attr = NULL;
    }
    return attr;
}

aclopAttr *opattr_copy(const aclopAttr *attr)
{
    aclopAttr *copy = attr == NULL ? NULL : handle_new(HANDLE_OP_ATTR, sizeof *copy);
    if (copy != NULL) {
        atomic_fetch_add(&attr->set->references, 1);
        copy->set = attr->set;
    }
    return copy;
}

void sim_aclopDestroyAttr(const aclopAttr *attr)
{
    aclopAttr *own = (aclopAttr *)(uintptr_t)attr;
    if (handle_is(attr, HANDLE_OP_ATTR) && handle_kill(own)) {
        attrs_release(own->set);
        own->set = NULL;
        handle_retire(own);
    }
}

/* --- setting --- */

static aclError attr_set(aclopAttr *attr, const Attr *value)
{
    REQUIRE(handle_is(attr, HANDLE_OP_ATTR));
    REQUIRE(value->name);
    AttrSet *set = set_own(attr);
    Attr copy = set == NULL ? (Attr){0} : attr_copy(value);
    if (copy.name == NULL || !set_put(set, &copy)) {
        attr_free(&copy);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for attribute %s", value->name);
    }
    return ACL_SUCCESS;
}

aclError sim_aclopSetAttrBool(aclopAttr *attr, const char *attrName, uint8_t attrValue)
{
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_INT, .i = attrValue != 0});
}

aclError sim_aclopSetAttrInt(aclopAttr *attr, const char *attrName, int64_t attrValue)
{
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_INT, .i = attrValue});
}

aclError sim_aclopSetAttrFloat(aclopAttr *attr, const char *attrName, float attrValue)
{
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_FLOAT, .f = (double)attrValue});
}

aclError sim_aclopSetAttrString(aclopAttr *attr, const char *attrName, const char *attrValue)
{
    REQUIRE(attrValue);
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_STRING, .s = attrValue});
}

aclError sim_aclopSetAttrDataType(aclopAttr *attr, const char *attrName, aclDataType attrValue)
{
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_INT, .i = attrValue});
}

aclError sim_aclopSetAttrListInt(
    aclopAttr *attr, const char *attrName, int numValues, const int64_t *values)
{
    REQUIRE(numValues >= 0);
    REQUIRE(numValues == 0 || values != NULL);
    const int64_t none = 0;
    return attr_set(attr,
        &(Attr){.name = attrName,
            .kind = ATTR_INTS,
            .count = numValues,
            .ints = numValues == 0 ? &none : values});
}

aclError sim_aclopSetAttrListFloat(
    aclopAttr *attr, const char *attrName, int numValues, const float *values)
{
    REQUIRE(numValues >= 0);
    REQUIRE(numValues == 0 || values != NULL);
    const float none = 0;
    return attr_set(attr,
        &(Attr){.name = attrName,
            .kind = ATTR_FLOATS,
            .count = numValues,
            .floats = numValues == 0 ? &none : values});
}

static aclError list_set(aclopAttr *attr, const char *name, int count,
    int64_t (*get)(const void *, int), const void *values)
{
    REQUIRE(count >= 0);
    REQUIRE(count == 0 || values != NULL);
    int64_t *wide = malloc(((size_t)count + 1) * sizeof *wide);
    if (wide == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (int i = 0; i < count; i++) {
        wide[i] = get(values, i);
    }
    aclError status =
        attr_set(attr, &(Attr){.name = name, .kind = ATTR_INTS, .count = count, .ints = wide});
    free(wide);
    return status;
}

static int64_t bool_at(const void *values, int i)
{
    return ((const uint8_t *)values)[i] != 0;
}

static int64_t type_at(const void *values, int i)
{
    return ((const aclDataType *)values)[i];
}

aclError sim_aclopSetAttrListBool(
    aclopAttr *attr, const char *attrName, int numValues, const uint8_t *values)
{
    return list_set(attr, attrName, numValues, bool_at, values);
}

aclError sim_aclopSetAttrListDataType(
    aclopAttr *attr, const char *attrName, int numValues, const aclDataType values[])
{
    return list_set(attr, attrName, numValues, type_at, values);
}

aclError sim_aclopSetAttrListString(
    aclopAttr *attr, const char *attrName, int numValues, const char **values)
{
    REQUIRE(numValues >= 0);
    REQUIRE(numValues == 0 || values != NULL);
    for (int i = 0; i < numValues; i++) {
        REQUIRE(values[i]);
    }
    const char *const none = NULL;
    return attr_set(attr, &(Attr){.name = attrName, .kind = ATTR_STRINGS, .count = numValues,
        .strings = numValues == 0 ? &none : (const char *const *)values});
}

/* A list of lists is stored as one list, because no operator of the simulator distinguishes them. */
aclError sim_aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists,
    const int *numValues, const int64_t *const values[])
{
    size_t total = 0, used = 0;
    REQUIRE(numLists >= 0);
    REQUIRE(numLists == 0 || (numValues != NULL && values != NULL));
    for (int i = 0; i < numLists; i++) {
        REQUIRE(numValues[i] >= 0);
        REQUIRE(numValues[i] == 0 || values[i] != NULL);
        total += (size_t)numValues[i];
    }
    int64_t *flat = malloc((total + 1) * sizeof *flat);
    if (flat == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (int i = 0; i < numLists; i++) {
        memcpy(flat + used, values[i], (size_t)numValues[i] * sizeof *flat);
        used += (size_t)numValues[i];
    }
    aclError status = attr_set(
        attr, &(Attr){.name = attrName, .kind = ATTR_INTS, .count = (int64_t)total, .ints = flat});
    free(flat);
    return status;
}
