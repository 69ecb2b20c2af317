/* The counters of a front as torch has them: current value, peak, sum of the increases, sum of the decreases. */
#include "adapters/pluggable/door.h"

enum { SMALL_BYTES = 1 << 20 }; /* largest block in torch's pool of small blocks */

static void stat_add(DoorStat *stat, int64_t amount) {
    stat->current += amount;
    stat->increased += amount;
    if (stat->current > stat->peak) {
        stat->peak = stat->current;
    }
}

static void stat_drop(DoorStat *stat, int64_t amount) {
    stat->current -= amount;
    stat->decreased += amount;
}

void stats_add(DoorStats *stats, size_t size, size_t bytes) {
    int kind = bytes <= SMALL_BYTES ? 1 : 2;
    for (int i = 0; i <= kind; i += kind) {
        stat_add(&stats->blocks[i], 1);
        stat_add(&stats->bytes[i], (int64_t)bytes);
        stat_add(&stats->requested[i], (int64_t)size);
    }
}

void stats_drop(DoorStats *stats, size_t size, size_t bytes) {
    int kind = bytes <= SMALL_BYTES ? 1 : 2;
    for (int i = 0; i <= kind; i += kind) {
        stat_drop(&stats->blocks[i], 1);
        stat_drop(&stats->bytes[i], (int64_t)bytes);
        stat_drop(&stats->requested[i], (int64_t)size);
    }
}

static DoorStat stat_scaled(const DoorStat *stat, int64_t unit) {
    return (DoorStat){stat->current * unit, stat->peak * unit, stat->increased * unit,
                      stat->decreased * unit};
}

void stats_pages(DoorStats *stats, int64_t granule) {
    DoorStat *pages = stats->pages;
    int64_t small = (stats->bytes[1].current + granule - 1) / granule;
    int64_t large = (stats->bytes[2].current + granule - 1) / granule;
    if (small > pages[0].current - large) {
        small = pages[0].current > large ? pages[0].current - large : 0;
    }
    pages[1] = (DoorStat){small, small, small, 0};
    pages[2] = (DoorStat){pages[0].current - small, pages[0].peak - small,
                          pages[0].increased - small, pages[0].decreased};
    for (int i = 0; i < DOOR_KINDS; i++) {
        stats->reserved[i] = stat_scaled(&pages[i], granule);
    }
}

static void stat_reset(DoorStat *stat, bool peaks) {
    if (peaks) {
        stat->peak = stat->current;
    } else {
        stat->increased = stat->decreased = 0;
    }
}

void stats_reset(DoorStats *stats, bool peaks) {
    for (int i = 0; i < DOOR_KINDS; i++) {
        stat_reset(&stats->blocks[i], peaks);
        stat_reset(&stats->bytes[i], peaks);
        stat_reset(&stats->requested[i], peaks);
    }
    if (!peaks) {
        stats->ooms = stats->retries = 0;
    }
}
