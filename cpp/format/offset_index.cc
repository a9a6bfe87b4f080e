#include "format/offset_index.h"

#include <algorithm>
#include <atomic>

#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

struct Location {
  int64_t offset = -1;
  int64_t num_bytes = -1;
  int64_t first_row = -1;
};

// PageLocation.
Location ReadLocation(ThriftCompactReader* reader, int struct_type) {
  Location location;
  reader->ReadFields(struct_type, reader->I64(1, &location.offset),
                     reader->I32(2, &location.num_bytes),
                     reader->I64(3, &location.first_row));
  return location;
}

std::vector<Location> ReadLocations(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  std::vector<Location> locations;
  reader.ReadFields(reader.List(
      1, [&](int element) { locations.push_back(ReadLocation(&reader, element)); }));
  return locations;
}

}  // namespace

std::optional<OffsetIndex> OffsetIndex::Parse(std::span<const uint8_t> bytes,
                                              const ByteRange& chunk, int64_t num_rows) {
  std::vector<Location> locations;
  const bool is_sound =
      ThriftCompactReader::IsSound([&] { locations = ReadLocations(bytes); });
  if (!is_sound || locations.empty()) return std::nullopt;
  std::vector<Page> pages;
  pages.reserve(locations.size() + 1);
  int64_t offset = locations.front().offset;
  int64_t first_row = 0;
  if (offset < chunk.offset) return std::nullopt;
  for (const Location& location : locations) {
    const bool follows = location.offset == offset && location.num_bytes > 0 &&
                         location.num_bytes <= chunk.end() - offset;
    const bool has_rows = pages.empty() ? location.first_row == 0
                                        : location.first_row > pages.back().first_row;
    if (!follows || !has_rows) return std::nullopt;
    first_row = location.first_row;
    pages.push_back({location.offset, first_row});
    offset += location.num_bytes;
  }
  if (offset != chunk.end() || first_row >= num_rows) return std::nullopt;
  pages.push_back({offset, num_rows});
  return OffsetIndex(std::move(pages));
}

size_t OffsetIndex::PageOfRow(int64_t row) const {
  const auto after = std::ranges::upper_bound(pages_, row, {}, &Page::first_row);
  return static_cast<size_t>(after - pages_.begin()) - 1;
}

std::optional<size_t> OffsetIndex::PageAt(int64_t offset) const {
  const auto found = std::ranges::lower_bound(pages_, offset, {}, &Page::offset);
  const auto page = static_cast<size_t>(found - pages_.begin());
  if (page >= num_pages() || found->offset != offset) return std::nullopt;
  return page;
}

namespace {

std::atomic<int64_t> num_kept_bytes = 0;  // of all files

}  // namespace

OffsetIndexes::~OffsetIndexes() { num_kept_bytes -= num_bytes_; }

std::optional<OffsetIndexes::Index> OffsetIndexes::Find(int64_t row_group,
                                                        int column) const {
  const std::lock_guard lock(mutex_);
  const auto used = is_used_.find({row_group, column});
  if (used != is_used_.end() && !used->second) return Index();
  const auto found = indexes_.find({row_group, column});
  if (found == indexes_.end()) return std::nullopt;
  return found->second;
}

void OffsetIndexes::Keep(int64_t row_group, int column, Index index) {
  constexpr int64_t kEntryBytes = 96;
  const int64_t num_bytes = kEntryBytes + (index == nullptr ? 0 : index->MemoryBytes());
  const std::lock_guard lock(mutex_);
  if (num_kept_bytes + num_bytes > kMaxBytes) {
    indexes_.clear();
    num_kept_bytes -= num_bytes_;
    num_bytes_ = 0;
  }
  if (indexes_.emplace(std::pair(row_group, column), std::move(index)).second) {
    num_bytes_ += num_bytes;
    num_kept_bytes += num_bytes;
  }
}

bool OffsetIndexes::Use(int64_t row_group, int column) {
  const std::lock_guard lock(mutex_);
  return is_used_.try_emplace(Place(row_group, column), true).first->second;
}

bool OffsetIndexes::Refuse(int64_t row_group, int column) {
  const std::lock_guard lock(mutex_);
  return !is_used_.try_emplace(Place(row_group, column), false).first->second;
}

void OffsetIndexes::Leave(int64_t row_group, int column) {
  const std::lock_guard lock(mutex_);
  is_used_[Place(row_group, column)] = false;
}

}  // namespace torchparquet
