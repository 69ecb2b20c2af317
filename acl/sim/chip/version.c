/* version.c: versions of the API, of CANN's packages and of the chip.

   All packages have the configured version of CANN, because the simulator is one library.  No function
   of this file needs aclInit or a device.  The state is read-only, so there is no lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

/* Factors of the three parts of a version number: 8.5.0 is 80500000. A pre-release has a smaller number than its
   release. */
enum { WEIGHT_MAJOR = 10000000, WEIGHT_MINOR = 100000, WEIGHT_PATCH = 1000 };

/* Names of the packages, in the order of aclCANNPackageName. */
static const char *const packages[] = {
    "CANN", "runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel", "driver",
};

#define PACKAGE_COUNT (sizeof packages / sizeof packages[0])

const char *sim_aclrtGetSocName(void)
{
    return config.soc;
}

aclError sim_aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion)
{
    REQUIRE(majorVersion);
    REQUIRE(minorVersion);
    REQUIRE(patchVersion);
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return ACL_SUCCESS;
}

/* Copies the text up to the next dot into `part`; returns the position behind that dot. */
static const char *part_take(const char *text, char *part, size_t size)
{
    size_t length = strcspn(text, ".");
    size_t kept = length < size ? length : size - 1;
    memcpy(part, text, kept);
    part[kept] = '\0';
    return text[length] == '.' ? text + length + 1 : text + length;
}

aclError sim_aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version)
{
    REQUIRE(version);
    REQUIRE((size_t)name < PACKAGE_COUNT);
    memset(version, 0, sizeof *version);
    snprintf(version->version, sizeof version->version, "%s", config.version);
    const char *rest = config.version;
    rest = part_take(rest, version->majorVersion, sizeof version->majorVersion);
    rest = part_take(rest, version->minorVersion, sizeof version->minorVersion);
    rest = part_take(rest, version->releaseVersion, sizeof version->releaseVersion);
    part_take(rest, version->patchVersion, sizeof version->patchVersion);
    return ACL_SUCCESS;
}

/* True if a package has that name; a '-' in `name` matches a '_' of the package's name. */
static bool package_known(const char *name)
{
    for (size_t i = 0; i < PACKAGE_COUNT; i++) {
        const char *known = packages[i];
        size_t k = 0;
        while (known[k] != '\0' && (name[k] == known[k] || (name[k] == '-' && known[k] == '_'))) {
            k++;
        }
        if (known[k] == '\0' && name[k] == '\0') {
            return true;
        }
    }
    return false;
}

aclError sim_aclsysGetVersionStr(char *pkgName, char *versionStr)
{
    REQUIRE(versionStr);
    REQUIRE(pkgName);
    if (!package_known(pkgName)) {
        return fail(ACL_ERROR_INVALID_FILE, "no package is called %.64s", pkgName);
    }
    snprintf(versionStr, ACL_PKG_VERSION_MAX_SIZE, "%s", config.version);
    return ACL_SUCCESS;
}

/* Gives the difference between the numbers of a release and of its pre-release: 300 - 2 for "-alpha.2", 0 if the suffix
   is empty. False if the suffix is not one of a pre-release. */
static bool prerelease_read(const char *suffix, int32_t *below)
{
    static const struct {
        const char *word;
        int32_t weight;
    } kinds[] = {{"alpha", 300}, {"beta", 200}, {"rc", 100}};
    if (*suffix == '\0') {
        *below = 0;
        return true;
    }
    suffix += *suffix == '-' || *suffix == '.';
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t length = strlen(kinds[i].word);
        if (strncasecmp(suffix, kinds[i].word, length) == 0) {
            suffix += length;
            bool empty = *suffix == '\0';
            suffix += *suffix == '-' || *suffix == '.';
            char *end;
            long number = strtol(suffix, &end, 10);
            *below = kinds[i].weight - (int32_t)number;
            return empty || (end != suffix && *end == '\0' && *suffix >= '0' && *suffix <= '9');
        }
    }
    return false;
}

aclError sim_aclsysGetVersionNum(char *pkgName, int32_t *versionNum)
{
    REQUIRE(versionNum);
    REQUIRE(pkgName);
    if (!package_known(pkgName)) {
        return fail(ACL_ERROR_INVALID_FILE, "no package is called %.64s", pkgName);
    }
    int major;
    int minor;
    int patch;
    int length = 0;
    int32_t below;
    if (sscanf(config.version, "%d.%d.%d%n", &major, &minor, &patch, &length) != 3 ||
        !prerelease_read(config.version + length, &below)) {
        return fail(ACL_ERROR_INTERNAL_ERROR, "the version %s is not of the form X.Y.Z",
                    config.version);
    }
    *versionNum = major * WEIGHT_MAJOR + minor * WEIGHT_MINOR + patch * WEIGHT_PATCH - below;
    return ACL_SUCCESS;
}

/* Gives 1 if the configured chip can run programs for another chip, that is if both have the same instruction set;
   else 0. */
aclError sim_aclrtCheckArchCompatibility(const char *socVersion, int32_t *canCompatible)
{
    REQUIRE_RT(socVersion);
    REQUIRE_RT(canCompatible);
    const Soc *other = soc_find(socVersion);
    if (other == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "no chip is called %.64s", socVersion);
    }
    *canCompatible = other->architecture == soc_current()->architecture;
    return ACL_SUCCESS;
}
