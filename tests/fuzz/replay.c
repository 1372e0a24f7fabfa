/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without a fuzzer: every file of the folders given, and a fixed number of
 * mutations of each from a fixed seed. So the corpus is a regression test with any compiler.
 *
 *   TARGET NAME FOLDER... */
#include <dirent.h>
#include <stdio.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX 65536u
#define MUTATIONS 2000u

static uint32_t noise(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

/* An exact copy on the heap, so that the address sanitizer sees a read beyond the end. */
static void run(const uint8_t *data, size_t bytes) {
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void mutate_and_run(const uint8_t *data, size_t bytes, uint64_t *state) {
    static uint8_t changed[INPUT_BYTES_MAX];
    for (uint32_t i = 0; i < MUTATIONS; i++) {
        size_t length = bytes;
        memcpy(changed, data, bytes);
        if (noise(state) % 4 == 0)
            length = noise(state) % (bytes + 1);
        for (uint32_t n = noise(state) % 8; n > 0 && length > 0; n--) {
            uint32_t at = noise(state) % (uint32_t)length;
            if (noise(state) % 2)
                changed[at] = (uint8_t)noise(state);
            else
                changed[at] ^= (uint8_t)(1u << noise(state) % 8);
        }
        run(changed, length);
    }
}

static uint32_t run_folder(const char *path, uint64_t *state) {
    static uint8_t data[INPUT_BYTES_MAX];
    uint32_t files = 0;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(name, sizeof name, "%s/%s", path, entry->d_name) >= (int)sizeof name)
            continue;
        FILE *file = fopen(name, "rb");
        if (file == NULL)
            continue;
        size_t bytes = fread(data, 1, sizeof data, file);
        (void)fclose(file); /* only read */
        run(data, bytes);
        mutate_and_run(data, bytes, state);
        files++;
    }
    (void)closedir(folder);
    return files;
}

int main(int argc, char **argv) {
    uint64_t state = 1;
    uint32_t files = 0;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s NAME FOLDER...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        files += run_folder(argv[i], &state);
    if (files == 0) {
        (void)printf("FAIL %s: no corpus\n", argv[1]);
        return 1;
    }
    (void)printf("PASS %s: %u files and their mutations\n", argv[1], files);
    return 0;
}
