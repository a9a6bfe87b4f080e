#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ceil_divide.h"

namespace torchparquet::kernels {

// The shape of a permutation of the rows [0, n). Positions are cut into buckets: 2^k
// ranges whose sizes differ by at most one. Rows are cut into strips of one size and a
// tail. Every strip has one run of as many rows in each bucket. So every part of the
// order draws on all rows alike, and rows are brought to their buckets in stores of whole
// runs.
class PermutationShape {
 public:
  // Places have 32 bits, and some are left out between buckets.
  static constexpr int64_t kMostRows = int64_t{1} << 31;

  // Throws Error(kInvalidArgument) unless 1 <= n <= kMostRows.
  explicit PermutationShape(int64_t n);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_buckets() const { return int64_t{1} << (strip_bits_ - run_bits_); }
  // At most 2^16. The first buckets may have one row more than the last one.
  int64_t BucketRows(int64_t bucket) const {
    return bucket_rows_ + (bucket < num_large_ ? 1 : 0);
  }
  // The first position of the bucket, or n for one past the last bucket.
  int64_t BucketBegin(int64_t bucket) const;
  int64_t BucketAt(int64_t position) const;

  // Powers of two, as is the number of buckets. With one bucket there are no strips: all
  // rows are in the tail.
  int64_t strip_rows() const { return int64_t{1} << strip_bits_; }
  int64_t run_rows() const { return int64_t{1} << run_bits_; }
  int strip_bits() const { return strip_bits_; }
  int run_bits() const { return run_bits_; }
  int64_t num_strips() const { return num_strips_; }
  int64_t tail_begin() const { return num_strips_ << strip_bits_; }
  // The strips of a block, whose runs stand side by side in each bucket. The last block
  // may have fewer strips; it then stands last.
  static constexpr int64_t kBlockStrips = 8;
  int64_t num_blocks() const { return CeilDivide(num_strips_, kBlockStrips); }

  // The tables that a permutation reads: a power of two of each, or none.
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

// A permutation of rows, by key. A few tables say which rows each run of a strip has, and
// in which order a bucket has its rows. Strips read their table from different runs on,
// buckets from different entries on. Tables stay in the cache; one place per row would
// not. Before a bucket is permuted, its runs stand in an order of strips that is drawn
// for each bucket, so no two buckets have strips in the same sequence. All tables are
// shuffled by the method of Fisher and Yates with words of SplitMix64.
//
// The order of epochs depends on it, so it never changes. Once its tables are made, it is
// immutable, so safe to share among threads. Sources: Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014; Lemire, "Fast Random Integer
// Generation in an Interval", 2019, without its rejections: for numbers up to 2^16, odds
// are off by at most 2^-16.
class Permutation {
 public:
  // Lays tables out in `tables`, which has room for them and must outlive the
  // permutation.
  Permutation(uint64_t key, const PermutationShape& shape, std::span<uint16_t> tables);
  Permutation(const Permutation&) = delete;
  Permutation& operator=(const Permutation&) = delete;

  // Makes some tables, one part of `num_parts()`. Several threads may each make another
  // one. All must be made before rows, positions or slots are asked for. Throws nothing.
  void MakePart(int64_t part) noexcept;
  int64_t num_parts() const;

  const PermutationShape& shape() const { return shape_; }

  // The place of a row in its bucket before the bucket is permuted. The strip at place i
  // has its run in the slots from i * run_rows() on; rows of the tail come last.
  struct Slot {
    int64_t bucket;
    int64_t index;
  };
  // Writes the slots of the rows [first, first + count).
  void SlotsOf(int64_t first, int64_t count, Slot* out) const;
  // The slots at the positions of a bucket from `first` on, up to the end of the bucket
  // or of its table. After the end of the table, positions continue at its begin. May be
  // called before the tables are made.
  std::span<const uint16_t> SlotsFrom(int64_t bucket, int64_t first) const;

  // The rows of a strip, counted within it, by bucket: bucket b has run b ^ turn of
  // `rows`, and the strip's block has place `block_places[b]` there.
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
  // A table of `size` entries, of which the first `num_permuted` are permuted and the
  // rest stay where they are. After it, its inverse.
  struct Table {
    uint64_t words = 0;
    int64_t num_permuted = 0;
    int64_t size = 0;
    uint16_t* entries = nullptr;
    uint16_t* inverse = nullptr;
  };
  // The order of one bucket: position p has slot table[(p + first) % size].
  struct BucketOrder {
    const uint16_t* table;
    const uint16_t* inverse;
    int64_t size;
    int64_t first;
  };

  const Table& tail_table() const {
    return tables_[static_cast<size_t>(shape_.num_strip_tables())];
  }
  void MakeBlockPlaces(int64_t first_bucket, int64_t end_bucket) noexcept;
  int64_t RowOf(const Slot& slot) const;

  const uint64_t key_;
  const PermutationShape shape_;
  std::vector<Table> tables_;  // of strips, of the tail, of buckets
  std::vector<BucketOrder> bucket_orders_;
  uint16_t* block_places_ = nullptr;  // by block, in each bucket
  uint16_t* blocks_at_ = nullptr;     // by bucket, at each place
};

// Writes the rows of a window in permuted order, as many as `out` has.
void PermutedRows(uint64_t key, std::span<uint32_t> out);

}  // namespace torchparquet::kernels
