/* The timed consumer's inner work, one call per batch, and arithmetic that needs no memory;
   consumption.py compiles and calls both. */

#include <stdint.h>
#include <string.h>

enum { WORD_BYTES = 8 };

/* Adds all bytes of each column, as 64-bit words on a little-endian host and the last of them
   padded with zeros, to the column's sum modulo 2**64. Data need not be aligned. */
void add_words(uint64_t num_columns, const unsigned char *const *data, const uint64_t *num_bytes,
               uint64_t *sums) {
    for (uint64_t column = 0; column < num_columns; ++column) {
        const unsigned char *bytes = data[column];
        uint64_t num_words = num_bytes[column] / WORD_BYTES;
        uint64_t tail_bytes = num_bytes[column] % WORD_BYTES;
        uint64_t sum = 0;
        for (uint64_t i = 0; i < num_words; ++i) {
            uint64_t word;
            memcpy(&word, bytes + i * WORD_BYTES, WORD_BYTES);
            sum += word;
        }
        if (tail_bytes != 0) {
            uint64_t word = 0;
            memcpy(&word, bytes + num_words * WORD_BYTES, tail_bytes);
            sum += word;
        }
        sums[column] += sum;
    }
}

/* Keeps a core's multiplier busy for num_rounds rounds of eight independent products. */
uint64_t multiply(uint64_t num_rounds) {
    enum { NUM_CHAINS = 8 };
    uint64_t values[NUM_CHAINS] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (uint64_t round = 0; round < num_rounds; ++round) {
        for (int i = 0; i < NUM_CHAINS; ++i) values[i] = values[i] * 6364136223846793005u + 1;
    }
    uint64_t sum = 0;
    for (int i = 0; i < NUM_CHAINS; ++i) sum += values[i];
    return sum;
}
