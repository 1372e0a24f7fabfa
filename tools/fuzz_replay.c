/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main function of a fuzz target when no fuzzer is linked: it feeds the corpus, and then the
 * same fixed set of mutated inputs, to the target. So every configuration, the sanitizers above
 * all, runs the target as an ordinary test, and a found crash that became a corpus file stays
 * found. Arguments: the corpus files.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

/* Inputs of the targets are descriptors and messages; larger ones would only repeat. */
#define INPUT_BYTES_MAX ((size_t)65536)
/* Per corpus file; with the sanitizers a target stays below a few seconds. */
#define MUTATIONS_COUNT 400
#define EDITS_MAX 8

struct input {
    size_t size_bytes;
    uint8_t bytes[INPUT_BYTES_MAX];
};

/* xorshift64: the same inputs on every machine and in every run. */
static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static bool read_input(const char *path, struct input *out_input) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    out_input->size_bytes = fread(out_input->bytes, 1, sizeof(out_input->bytes), file);
    bool good = ferror(file) == 0;
    (void)fclose(file); /* Opened for reading only: nothing can be lost. */
    return good;
}

/* The target gets an allocation of exactly the input's size, so that the address sanitizer sees a
 * read of one byte too many. */
static void feed(const struct input *input) {
    uint8_t *exact = malloc(input->size_bytes > 0 ? input->size_bytes : 1);
    if (exact == NULL)
        abort();
    memcpy(exact, input->bytes, input->size_bytes);
    (void)LLVMFuzzerTestOneInput(exact, input->size_bytes); /* Always 0 by libFuzzer's contract. */
    free(exact);
}

/* A few edits of the kinds that break parsers: flipped bits, extreme bytes, truncation, growth. */
static void mutate(struct input *input, uint64_t *seed) {
    static const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint64_t edits_count = 1 + next_random(seed) % EDITS_MAX;
    for (uint64_t i = 0; i < edits_count; i++) {
        uint64_t choice = next_random(seed) % 8;
        if (choice == 0) {
            input->size_bytes = next_random(seed) % (input->size_bytes + 1);
        } else if (choice == 1 && input->size_bytes < INPUT_BYTES_MAX) {
            input->bytes[input->size_bytes++] = (uint8_t)next_random(seed);
        } else if (input->size_bytes > 0) {
            size_t offset = next_random(seed) % input->size_bytes;
            if (choice < 5)
                input->bytes[offset] ^= (uint8_t)(1u << next_random(seed) % 8);
            else
                input->bytes[offset] = extremes[next_random(seed) % sizeof(extremes)];
        }
    }
}

int main(int argc, char **argv) {
    struct input *original = malloc(sizeof(*original));
    struct input *mutated = malloc(sizeof(*mutated));
    bool good = original != NULL && mutated != NULL && argc > 1;
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

    if (argc <= 1)
        fprintf(stderr, "no corpus: a fuzz target needs at least one input\n");
    for (int i = 1; good && i < argc; i++) {
        /* Named before, so that the log of a crash ends with the input. */
        printf("input %s\n", argv[i]);
        (void)fflush(stdout); /* Only a help for reading the log. */
        good = read_input(argv[i], original);
        if (good)
            feed(original);
        for (int round = 0; good && round < MUTATIONS_COUNT; round++) {
            *mutated = *original;
            mutate(mutated, &seed);
            feed(mutated);
        }
    }
    puts(good ? "PASS corpus_and_mutations" : "FAIL corpus_and_mutations");
    free(original);
    free(mutated);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
