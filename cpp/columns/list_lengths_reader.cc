#include <cstring>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/readers.h"
#include "columns/row_walk.h"

namespace torchparquet {
namespace {

// Values stay encoded.
class NoValues : public EntryValues {
  void ReadDictionary(const PageHeader&, std::span<const uint8_t>) override {}
  void Open(const PageHeader&, const ValueBytes&) override {}
  void Skip(int64_t) override {}
  void Select(std::span<const kernels::BitWord>, int64_t) override {}
  void EndSelected() override {}
};

class ListLengthsReader : public RowWalk {
 public:
  ListLengthsReader(const ColumnRequest& column, ColumnStart start, ColumnBuffers buffers)
      : RowWalk(column, std::move(start), std::move(buffers)) {}

 private:
  EntryValues& values() override { return values_; }

  void WriteRows(const ColumnTarget& target, DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(int64_t) || target.cell_items != 1 ||
        target.stride != 1) {
      throw Error(ErrorKind::kInternal, "lengths of lists need a field of int64");
    }
    for (const Segment& segment : target.segments) {
      lengths_.clear();
      TakeRows(segment.num_rows);
      std::memcpy(segment.values, lengths_.data(), lengths_.size() * sizeof(int64_t));
      if (segment.valid != nullptr) {
        std::memset(segment.valid, 1, static_cast<size_t>(segment.num_rows));
      }
      progress->SegmentDone();
    }
  }

  // Entries before the first row are of the row before.
  void WriteEntries(const LevelBlock& block, int64_t) override {
    const int element_level = leaf().element_levels.front();
    int64_t begin = 0;
    const auto end_row = [&](int64_t end) {
      if (!lengths_.empty() && !is_missing_) lengths_.back() += end - begin;
      begin = end;
    };
    block.ForEachRow([&](int64_t i) {
      end_row(i);
      // An empty list has an entry too.
      is_missing_ = block.definition != nullptr && block.definition[i] < element_level;
      lengths_.push_back(0);
    });
    end_row(block.size);
  }

  NoValues values_;
  std::vector<int64_t> lengths_;  // of the rows of a segment
  bool is_missing_ = false;       // the last row has no element
};

}  // namespace

std::unique_ptr<ColumnReader> MakeListLengthsReader(const ColumnRequest& column,
                                                    ColumnStart start,
                                                    ColumnBuffers buffers) {
  return std::make_unique<ListLengthsReader>(column, std::move(start),
                                             std::move(buffers));
}

}  // namespace torchparquet
