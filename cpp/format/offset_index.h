#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/byte_range.h"

namespace torchparquet {

// The places of one column chunk's data pages, and the rows in them. Rows begin and end
// with pages. Immutable.
class OffsetIndex {
 public:
  struct Page {
    int64_t offset = 0;  // in the file, of its header
    int64_t first_row = 0;
  };

  // Reads the index of a column chunk with `num_rows` rows. Nothing for bytes that are
  // no index, and unless its pages fill the end of `chunk` and hold all rows: reading
  // goes on without it then.
  // Source: parquet-format, PageIndex.md and parquet.thrift.
  static std::optional<OffsetIndex> Parse(std::span<const uint8_t> bytes,
                                          const ByteRange& chunk, int64_t num_rows);

  size_t num_pages() const { return pages_.size() - 1; }
  int64_t first_offset() const { return pages_.front().offset; }
  int64_t first_row(size_t page) const { return pages_[page].first_row; }
  int64_t end_row(size_t page) const { return pages_[page + 1].first_row; }
  ByteRange bytes(size_t page) const {
    return {pages_[page].offset, pages_[page + 1].offset - pages_[page].offset};
  }
  // The page that holds a row of the row group.
  size_t PageOfRow(int64_t row) const;
  // Nothing if no page begins there.
  std::optional<size_t> PageAt(int64_t offset) const;
  int64_t MemoryBytes() const {
    return static_cast<int64_t>(sizeof(*this) + pages_.capacity() * sizeof(Page));
  }

 private:
  explicit OffsetIndex(std::vector<Page> pages) : pages_(std::move(pages)) {}

  std::vector<Page> pages_;  // and the end of the last
};

// The offset indexes of a file that were read. Thread-safe.
class OffsetIndexes {
 public:
  // The limit on the memory of those of all files. Beyond it, a file forgets its own:
  // they are read again when they are needed.
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;

  OffsetIndexes() = default;
  ~OffsetIndexes();
  OffsetIndexes(const OffsetIndexes&) = delete;
  OffsetIndexes& operator=(const OffsetIndexes&) = delete;

  using Index = std::shared_ptr<const OffsetIndex>;

  // Nothing if it was not read; null if there is none that is sound, and after Leave.
  std::optional<Index> Find(int64_t row_group, int column) const;
  void Keep(int64_t row_group, int column, Index index);

  // A reader is about to find rows by the index. Returns whether it may: not after Leave.
  bool Use(int64_t row_group, int column);
  // No reader goes by the index from now on.
  void Leave(int64_t row_group, int column);
  // The same, but not if a reader has found rows by the index; returns false then.
  bool Refuse(int64_t row_group, int column);

 private:
  using Place = std::pair<int64_t, int>;

  mutable std::mutex mutex_;
  std::map<Place, Index> indexes_;  // guarded by mutex_
  std::map<Place, bool> is_used_;   // guarded by mutex_; false after Leave
  int64_t num_bytes_ = 0;           // guarded by mutex_
};

}  // namespace torchparquet
