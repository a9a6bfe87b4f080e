#include "kernels/shuffle/permutation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <string>
#include <utility>

#include "base/ceil_divide.h"
#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

// Up to 2^22 rows, a bucket of 4 bytes a row fits the first cache, and at most 2^9
// buckets are written to side by side. Up to 2^25 rows, buckets are larger. With more
// rows there are more buckets, since slots have 16 bits.
constexpr int kBucketBits = 13;
constexpr int kSideBySideBits = 9;
constexpr int kMostBucketBits = 16;

// Up to 2^21 rows, a strip of 8 bytes a row fits the first cache. Up to 2^29 rows, runs
// have 8 rows or more: runs of 4-byte items cost a third of single stores.
constexpr int kLeastStripBits = 11;
constexpr int kMostStripBits = 16;
constexpr int kLeastRunBits = 3;

constexpr int64_t kBlockStrips = PermutationShape::kBlockStrips;
constexpr int64_t kMostStripTables = 32;
constexpr int64_t kMostBucketTables = 16;
// The buckets whose blocks one part places: a cache line of places of each block.
constexpr int64_t kPartBuckets = 32;

// The streams of words that a key has.
constexpr uint64_t kStripWords = 1;
constexpr uint64_t kBucketWords = 2;
constexpr uint64_t kTailTable = 3;
constexpr uint64_t kBucketTables = 16;
constexpr uint64_t kStripTables = 64;
constexpr uint64_t kBlockPlaces = 128;  // and one more for each bucket

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The start of one of the key's streams.
uint64_t StreamOf(uint64_t key, uint64_t stream) { return Mix(key + stream * kGolden); }

uint32_t WordAt(uint64_t stream, int64_t number) {
  return static_cast<uint32_t>(
      Mix(stream + (static_cast<uint64_t>(number) + 1) * kGolden) >> 32);
}

uint32_t Below(uint32_t word, uint32_t bound) {
  return static_cast<uint32_t>(uint64_t{word} * bound >> 32);
}

// Writes the numbers below `size` in random order.
void Shuffle(uint64_t words, int64_t size, uint16_t* out) {
  for (int64_t i = 0; i < size; ++i) {
    out[i] = static_cast<uint16_t>(i);
    std::swap(out[i], out[Below(WordAt(words, i), static_cast<uint32_t>(i + 1))]);
  }
}

}  // namespace

PermutationShape::PermutationShape(int64_t n) : num_rows_(n) {
  if (n < 1 || n > kMostRows) {
    throw InvalidArgument(
        "a shuffle window must have at least one row and at most 2^31: ", n);
  }
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const int buckets_bits = std::clamp(bits - kBucketBits, 0,
                                      std::max(kSideBySideBits, bits - kMostBucketBits));
  bucket_rows_ = n >> buckets_bits;
  num_large_ = n - (bucket_rows_ << buckets_bits);
  strip_bits_ = std::clamp(buckets_bits + kLeastRunBits, kLeastStripBits, kMostStripBits);
  run_bits_ = strip_bits_ - buckets_bits;
  if (buckets_bits > 0) num_strips_ = n >> strip_bits_;
  const auto at_most = [](int64_t number, int64_t most) {
    return static_cast<int64_t>(
        std::bit_floor(static_cast<uint64_t>(std::min(number, most))));
  };
  num_strip_tables_ = at_most(CeilDivide(num_strips_, 4), kMostStripTables);
  num_bucket_tables_ = at_most(num_buckets(), kMostBucketTables);
}

int64_t PermutationShape::BucketBegin(int64_t bucket) const {
  return bucket * bucket_rows_ + std::min(bucket, num_large_);
}

int64_t PermutationShape::BucketAt(int64_t position) const {
  const int64_t large_end = BucketBegin(num_large_);
  if (position < large_end) return position / (bucket_rows_ + 1);
  return num_large_ + (position - large_end) / bucket_rows_;
}

int64_t PermutationShape::num_table_entries() const {
  return 2 * (num_strip_tables_ * strip_rows() + tail_table_rows() +
              num_bucket_tables_ * bucket_table_rows() + num_blocks() * num_buckets());
}

Permutation::Permutation(uint64_t key, const PermutationShape& shape,
                         std::span<uint16_t> tables)
    : key_(key), shape_(shape) {
  uint16_t* out = tables.data();
  tables_.reserve(
      static_cast<size_t>(shape.num_strip_tables() + 1 + shape.num_bucket_tables()));
  const auto add = [&](uint64_t stream, int64_t num_permuted, int64_t size) {
    tables_.push_back({.words = StreamOf(key, stream),
                       .num_permuted = num_permuted,
                       .size = size,
                       .entries = out,
                       .inverse = out + size});
    out += 2 * size;
  };
  for (int64_t i = 0; i < shape.num_strip_tables(); ++i) {
    add(kStripTables + static_cast<uint64_t>(i), shape.strip_rows(), shape.strip_rows());
  }
  add(kTailTable, shape.tail_table_rows(), shape.tail_table_rows());
  const Table* bucket_tables = tables_.data() + tables_.size();
  // The extra entry of large buckets stays where it is.
  for (int64_t i = 0; i < shape.num_bucket_tables(); ++i) {
    add(kBucketTables + static_cast<uint64_t>(i),
        shape.BucketRows(shape.num_buckets() - 1), shape.bucket_table_rows());
  }
  const uint64_t words = StreamOf(key, kBucketWords);
  bucket_orders_.reserve(static_cast<size_t>(shape.num_buckets()));
  for (int64_t bucket = 0; bucket < shape.num_buckets(); ++bucket) {
    const int64_t size = shape.BucketRows(bucket);
    const Table& table = bucket_tables[bucket % shape.num_bucket_tables()];
    bucket_orders_.push_back(
        {.table = table.entries,
         .inverse = table.inverse,
         .size = size,
         .first = Below(WordAt(words, bucket), static_cast<uint32_t>(size))});
  }
  block_places_ = out;
  blocks_at_ = out + shape.num_blocks() * shape.num_buckets();
}

int64_t Permutation::num_parts() const {
  return std::ssize(tables_) + CeilDivide(shape_.num_buckets(), kPartBuckets);
}

void Permutation::MakePart(int64_t part) noexcept {
  if (part >= std::ssize(tables_)) {
    const int64_t first = (part - std::ssize(tables_)) * kPartBuckets;
    return MakeBlockPlaces(first, std::min(first + kPartBuckets, shape_.num_buckets()));
  }
  const Table& table = tables_[static_cast<size_t>(part)];
  Shuffle(table.words, table.num_permuted, table.entries);
  for (int64_t i = table.num_permuted; i < table.size; ++i) {
    table.entries[i] = static_cast<uint16_t>(i);
  }
  for (int64_t i = 0; i < table.size; ++i) {
    table.inverse[table.entries[i]] = static_cast<uint16_t>(i);
  }
}

// Data that is read together is stored together: the places of a block, and the blocks of
// a bucket.
void Permutation::MakeBlockPlaces(int64_t first_bucket, int64_t end_bucket) noexcept {
  const int64_t num_blocks = shape_.num_blocks();
  const int64_t num_whole = shape_.num_strips() / kBlockStrips;
  for (int64_t bucket = first_bucket; bucket < end_bucket; ++bucket) {
    const uint64_t words = StreamOf(key_, kBlockPlaces + static_cast<uint64_t>(bucket));
    uint16_t* blocks = blocks_at_ + bucket * num_blocks;
    Shuffle(words, num_whole, blocks);
    if (num_blocks > num_whole) blocks[num_whole] = static_cast<uint16_t>(num_whole);
    for (int64_t place = 0; place < num_blocks; ++place) {
      block_places_[blocks[place] * shape_.num_buckets() + bucket] =
          static_cast<uint16_t>(place);
    }
  }
}

Permutation::StripRuns Permutation::RunsOf(int64_t strip) const {
  const uint64_t words = StreamOf(key_, kStripWords);
  const int64_t number = WordAt(words, 2 * strip) & (shape_.num_strip_tables() - 1);
  const uint32_t turn =
      WordAt(words, 2 * strip + 1) & static_cast<uint32_t>(shape_.num_buckets() - 1);
  const Table& table = tables_[static_cast<size_t>(number)];
  return {.rows = table.entries,
          .places = table.inverse,
          .turn = turn,
          .block_places = block_places_ + strip / kBlockStrips * shape_.num_buckets()};
}

// Rows of the tail are dealt to the buckets in turn, so that sizes differ by at most one.
void Permutation::SlotsOf(int64_t first, int64_t count, Slot* out) const {
  const int64_t in_run = shape_.run_rows() - 1;
  for (int64_t row = first; row < first + count;) {
    const int64_t strip = row >> shape_.strip_bits();
    if (strip >= shape_.num_strips()) {
      int64_t place = row++ - shape_.tail_begin();
      if (shape_.num_buckets() > 1) place = tail_table().inverse[place];
      *out++ = {.bucket = place & (shape_.num_buckets() - 1),
                .index = (shape_.num_strips() << shape_.run_bits()) +
                         (place >> (shape_.strip_bits() - shape_.run_bits()))};
      continue;
    }
    const StripRuns runs = RunsOf(strip);
    const int64_t strip_begin = strip << shape_.strip_bits();
    const int64_t end = std::min(first + count, strip_begin + shape_.strip_rows());
    for (; row < end; ++row) {
      const int64_t place = runs.places[row - strip_begin];
      const int64_t bucket = (place >> shape_.run_bits()) ^ runs.turn;
      const int64_t run = runs.block_places[bucket] * kBlockStrips + strip % kBlockStrips;
      *out++ = {.bucket = bucket, .index = (run << shape_.run_bits()) + (place & in_run)};
    }
  }
}

int64_t Permutation::RowOf(const Slot& slot) const {
  const int64_t run_place = slot.index >> shape_.run_bits();
  if (run_place < shape_.num_strips()) {
    const int64_t block =
        blocks_at_[slot.bucket * shape_.num_blocks() + run_place / kBlockStrips];
    const int64_t strip = block * kBlockStrips + run_place % kBlockStrips;
    const StripRuns runs = RunsOf(strip);
    const int64_t run = slot.bucket ^ runs.turn;
    const int64_t in_run = slot.index & (shape_.run_rows() - 1);
    return (strip << shape_.strip_bits()) +
           runs.rows[(run << shape_.run_bits()) + in_run];
  }
  const int64_t in_tail = slot.index - (shape_.num_strips() << shape_.run_bits());
  int64_t place = in_tail * shape_.num_buckets() + slot.bucket;
  if (shape_.num_buckets() > 1) place = tail_table().entries[place];
  return shape_.tail_begin() + place;
}

std::span<const uint16_t> Permutation::SlotsFrom(int64_t bucket, int64_t first) const {
  const BucketOrder& order = bucket_orders_[static_cast<size_t>(bucket)];
  const int64_t wraps_at = order.size - order.first;
  const int64_t entry = first < wraps_at ? order.first + first : first - wraps_at;
  const int64_t end = first < wraps_at ? order.size : order.first;
  return {order.table + entry, static_cast<size_t>(end - entry)};
}

void Permutation::Positions(int64_t first, int64_t count, uint32_t* out) const {
  std::array<Slot, 256> slots;
  while (count > 0) {
    const int64_t piece = std::min(count, std::ssize(slots));
    SlotsOf(first, piece, slots.data());
    for (int64_t i = 0; i < piece; ++i) {
      const Slot& slot = slots[static_cast<size_t>(i)];
      const BucketOrder& order = bucket_orders_[static_cast<size_t>(slot.bucket)];
      int64_t in_bucket = order.inverse[slot.index] - order.first;
      if (in_bucket < 0) in_bucket += order.size;
      *out++ = static_cast<uint32_t>(shape_.BucketBegin(slot.bucket) + in_bucket);
    }
    first += piece;
    count -= piece;
  }
}

void Permutation::Rows(int64_t first, int64_t count, uint32_t* out) const {
  while (count > 0) {
    const int64_t bucket = shape_.BucketAt(first);
    const std::span<const uint16_t> slots =
        SlotsFrom(bucket, first - shape_.BucketBegin(bucket));
    const int64_t piece = std::min(count, std::ssize(slots));
    for (const uint16_t slot : slots.first(static_cast<size_t>(piece))) {
      *out++ = static_cast<uint32_t>(RowOf({bucket, slot}));
    }
    first += piece;
    count -= piece;
  }
}

void PermutedRows(uint64_t key, std::span<uint32_t> out) {
  const PermutationShape shape(std::ssize(out));
  std::vector<uint16_t> tables(static_cast<size_t>(shape.num_table_entries()));
  Permutation permutation(key, shape, tables);
  for (int64_t i = 0; i < permutation.num_parts(); ++i) permutation.MakePart(i);
  permutation.Rows(0, std::ssize(out), out.data());
}

}  // namespace torchparquet::kernels
