#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ceil_divide.h"

namespace torchparquet::kernels {

// How the rows [0, n) are permuted, as far as it follows from n. Positions are cut to
// buckets, 2^k consecutive parts of sizes that differ by one at most; rows to strips, all
// of the same size, and a tail. A strip has a run of as many rows in each bucket, so that
// every part of the order draws on all rows alike, and rows are brought to their buckets
// in stores of whole runs.
class PermutationShape {
 public:
  // So that places have 32 bits, with some left out between buckets.
  static constexpr int64_t kMostRows = int64_t{1} << 31;

  // Throws Error(kInvalidArgument) unless 1 <= n <= kMostRows.
  explicit PermutationShape(int64_t n);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_buckets() const { return int64_t{1} << (strip_bits_ - run_bits_); }
  // At most 2^16; the first buckets may have one row more than the last one.
  int64_t BucketRows(int64_t bucket) const {
    return bucket_rows_ + (bucket < num_large_ ? 1 : 0);
  }
  // Its first position, or n for the bucket behind the last.
  int64_t BucketBegin(int64_t bucket) const;
  int64_t BucketAt(int64_t position) const;

  // Powers of two, as is the number of buckets. With one bucket there are no strips: all
  // rows are the tail's.
  int64_t strip_rows() const { return int64_t{1} << strip_bits_; }
  int64_t run_rows() const { return int64_t{1} << run_bits_; }
  int strip_bits() const { return strip_bits_; }
  int run_bits() const { return run_bits_; }
  int64_t num_strips() const { return num_strips_; }
  int64_t tail_begin() const { return num_strips_ << strip_bits_; }
  // Of strips whose runs stand side by side in each bucket; the last one may have fewer,
  // and then stands last.
  static constexpr int64_t kBlockStrips = 8;
  int64_t num_blocks() const { return CeilDivide(num_strips_, kBlockStrips); }

  // What tables a permutation reads from, each a power of two in number or none.
  int64_t num_strip_tables() const { return num_strip_tables_; }
  int64_t num_bucket_tables() const { return num_bucket_tables_; }
  int64_t tail_table_rows() const {
    return num_buckets() == 1 ? 0 : num_rows_ - tail_begin();
  }
  int64_t bucket_table_rows() const { return BucketRows(0); }
  int64_t num_table_entries() const;

 private:
  int64_t num_rows_;
  int64_t bucket_rows_ = 0;  // of the small ones
  int64_t num_large_ = 0;    // of the first buckets, which have one row more
  int strip_bits_ = 0;
  int run_bits_ = 0;
  int64_t num_strips_ = 0;
  int64_t num_strip_tables_ = 0;
  int64_t num_bucket_tables_ = 0;
};

// A permutation of rows, by key. Which of a strip's rows each of its runs has, and in
// which order a bucket has its rows, is read from a few tables: by strips from different
// runs on, by buckets from different entries on. They stay in the cache, which a place
// for each row would not. Where in a bucket the runs stand before it is permuted is a
// permutation of strips of its own for each bucket, so that no two buckets have strips in
// the same sequence. All of these are made as Fisher and Yates do, by words of
// SplitMix64.
//
// The order of epochs rests on it, so it never changes. Immutable, so safe to share among
// threads.
// Sources: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014;
// Lemire, "Fast Random Integer Generation in an Interval", 2019, without its rejections:
// of 2^16 numbers at most, odds are off by 2^-16 at most.
class Permutation {
 public:
  // Makes the tables in `tables`, which has room for them and is to outlive it.
  Permutation(uint64_t key, const PermutationShape& shape, std::span<uint16_t> tables);

  const PermutationShape& shape() const { return shape_; }

  // Where in its bucket a row is before the bucket is permuted: strip i has its run in
  // the slots from i * run_rows() on, and the tail's rows come behind all of them.
  struct Slot {
    int64_t bucket;
    int64_t index;
  };
  // Of the rows [first, first + count).
  void SlotsOf(int64_t first, int64_t count, Slot* out) const;
  // Which slots of a bucket its positions have, from `first` on and up to the end of the
  // bucket or of the table, with whose begin they go on.
  std::span<const uint16_t> SlotsFrom(int64_t bucket, int64_t first) const;

  // What buckets have of a strip's rows, counted within it: bucket b the run of number
  // b ^ turn in `rows`, in the block of runs that has number `block_places[b]` there.
  struct StripRuns {
    const uint16_t* rows;
    const uint16_t* places;  // of each row, in `rows`
    uint32_t turn;
    const uint16_t* block_places;
  };
  StripRuns RunsOf(int64_t strip) const;

  // Writes the positions of the rows [first, first + count).
  void Positions(int64_t first, int64_t count, uint32_t* out) const;
  // Writes the rows at the positions [first, first + count).
  void Rows(int64_t first, int64_t count, uint32_t* out) const;

 private:
  // Behind a table's entries comes its inverse.
  struct Table {
    const uint16_t* entries = nullptr;
    const uint16_t* inverse = nullptr;
  };
  // Of one bucket: position p has slot table[(p + first) % size].
  struct BucketOrder {
    Table table;
    int64_t size;
    int64_t first;
  };

  Table MakeTable(uint64_t words, int64_t num_permuted, int64_t size, uint16_t** out);
  void MakeBlockPlaces(uint16_t* out);
  int64_t RowOf(const Slot& slot) const;

  const uint64_t key_;
  const PermutationShape shape_;
  std::vector<Table> strip_tables_;
  Table tail_table_;
  std::vector<BucketOrder> bucket_orders_;
  const uint16_t* block_places_ = nullptr;  // by block, in each bucket
  const uint16_t* blocks_at_ = nullptr;     // by bucket, at each place
};

}  // namespace torchparquet::kernels
