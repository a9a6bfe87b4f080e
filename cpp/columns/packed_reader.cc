#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/readers.h"
#include "kernels/packing/packer.h"
#include "kernels/packing/sequences.h"
#include "kernels/streaming_stores.h"

namespace torchparquet {
namespace {

// Documents are read in steps of about so many bytes, which stay in the second cache
// until they are copied to their sequences.
constexpr int64_t kStepBytes = int64_t{256} << 10;
constexpr int64_t kFirstStepDocuments = 16;
// The documents before say little of the next ones, which may be much longer.
constexpr int64_t kMaxStepDocuments = 256;

// The values of some documents, one after the other. Out is the bit pattern of a token.
template <typename Out>
class DocumentValues : public DecodeProgress {
 public:
  // Appends the values of the next documents of `lists`.
  void Read(ColumnReader& lists, const RowRange& documents, ColumnTarget target,
            DecodeScratch* scratch) {
    const int64_t begin = num_values();
    starts_.resize(static_cast<size_t>(documents.num_rows) + 1);
    const Segment segment{.values = reinterpret_cast<uint8_t*>(starts_.data()),
                          .num_rows = documents.num_rows};
    target.segments = {&segment, 1};
    lists.Read(documents, target, scratch, this);
    starts_.back() = num_values();
    lengths_.clear();
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      lengths_.push_back(starts_[i + 1] - starts_[i]);
    }
    if (starts_.front() != begin) {
      throw Error(ErrorKind::kInternal, "documents do not begin where others end");
    }
  }

  // Of the documents that were read last.
  std::span<const int64_t> lengths() const { return lengths_; }
  int64_t num_bytes() const {
    return static_cast<int64_t>(values_->capacity() + spare_.capacity());
  }

  // The values from `begin` on, counted over all documents.
  const Out* From(int64_t begin) const {
    // The sink holds only items of this type, so all are aligned.
    return reinterpret_cast<const Out*>(values_->bytes().data()) + (begin - first_value_);
  }

  // Forgets the values before `value`, counted over all documents.
  void DropBefore(int64_t value) {
    const int64_t count = value - first_value_;
    if (count == 0) return;
    const int64_t num_left = num_values() - count;
    kernels::ByteSink left = std::move(spare_);
    left.Clear();
    if (num_left > 0) {
      const auto num_bytes = static_cast<size_t>(num_left) * sizeof(Out);
      std::memcpy(left.Extend(num_bytes), From(value), num_bytes);
    }
    spare_ = std::exchange(*values_, std::move(left));
    first_value_ = value;
  }

 private:
  int64_t num_values() const {
    return static_cast<int64_t>(values_->size() / sizeof(Out));
  }

  JaggedItems BeginItems() override {
    JaggedItems items;
    items.num_items = {num_values()};
    items.values = std::move(values_);
    return items;
  }
  void EndItems(JaggedItems items) override { values_ = std::move(items.values); }
  void SegmentDone() override {}

  SinkPool::Lease values_;
  kernels::ByteSink spare_;
  int64_t first_value_ = 0;  // counted over all documents
  std::vector<int64_t> starts_;
  std::vector<int64_t> lengths_;
};

template <typename Out>
class PackedReader : public ColumnReader {
 public:
  PackedReader(const ColumnRequest& column, ColumnStart start_at,
               std::unique_ptr<ColumnReader> lists)
      : ColumnReader(column, std::move(start_at)),
        pack_(*column.pack),
        num_documents_(
            start().selection == nullptr
                ? file().row_groups()[static_cast<size_t>(start().row_group)].num_rows
                : start().selection->num_rows()),
        lists_(std::move(lists)),
        packer_(pack_.packing) {}

  int64_t row() const override { return first_sequence_ + taken_; }
  // Another reader would begin with the row group's first document.
  int64_t restart_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  ColumnBuffers TakeBuffers() override { return lists_->TakeBuffers(); }

 private:
  int64_t other_bytes() const override {
    return lists_->held_bytes() + documents_.num_bytes();
  }

  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(Out) || target.cell_items != pack_.packing.length ||
        target.stride != 1) {
      throw Error(ErrorKind::kInternal, "a field's cells are not packed sequences");
    }
    const ColumnTarget documents{.segments = {},
                                 .item_bytes = target.item_bytes,
                                 .nulls = target.nulls,
                                 .fill_bits = target.fill_bits};
    streaming_ = target.streaming;
    while (row() < rows.begin) {
      MakeReady(rows, documents, scratch);
      taken_ = std::min(packer_.num_sequences(), rows.begin - first_sequence_);
    }
    for (const Segment& segment : target.segments) {
      auto* values = reinterpret_cast<Out*>(segment.values);
      uint8_t* marks = segment.valid;
      for (int64_t i = 0; i < segment.num_rows; ++i) {
        MakeReady(rows, documents, scratch);
        Write(packer_.sequence(taken_++), values, marks);
        values += pack_.packing.length;
        if (marks != nullptr) marks += pack_.packing.length;
      }
      if (streaming_) kernels::EndStreamingStores();
      // Before the last batch is handed over, after which no error would be seen.
      if (row() == pack_.planned_sequences) CheckEnd(rows, documents, scratch);
      progress->SegmentDone();
    }
  }

  // Throws if documents are left over after the planned sequences.
  void CheckEnd(const RowRange& rows, const ColumnTarget& documents,
                DecodeScratch* scratch) {
    if (ReadUntilReady(rows, documents, scratch)) {
      throw CorruptFile("the lists of a row group fill more than the ",
                        pack_.planned_sequences,
                        " sequences that were planned; the file has changed, or its "
                        "footer tells another number of values");
    }
  }

  void MakeReady(const RowRange& rows, const ColumnTarget& target,
                 DecodeScratch* scratch) {
    if (!ReadUntilReady(rows, target, scratch)) ThrowEnded(rows);
  }

  // Reads on until a sequence is ready that was not taken; false if none is left.
  bool ReadUntilReady(const RowRange& rows, const ColumnTarget& target,
                      DecodeScratch* scratch) {
    while (taken_ == packer_.num_sequences()) {
      if (next_document_ == num_documents_) {
        if (std::exchange(is_finished_, true)) return false;
        packer_.Finish();
        continue;
      }
      first_sequence_ += std::exchange(taken_, 0);
      packer_.Clear();
      documents_.DropBefore(packer_.first_open_value());
      ReadStep(rows.row_group, target, scratch);
    }
    return true;
  }

  void ReadStep(int64_t row_group, const ColumnTarget& target, DecodeScratch* scratch) {
    const int64_t count = std::min(step_documents_, num_documents_ - next_document_);
    documents_.Read(*lists_, {row_group, next_document_, count}, target, scratch);
    next_document_ += count;
    const auto num_values = std::accumulate(documents_.lengths().begin(),
                                            documents_.lengths().end(), int64_t{1});
    packer_.Add(documents_.lengths());
    constexpr double kStepItems = kStepBytes / double{sizeof(Out)};
    const double fitting =
        kStepItems * static_cast<double>(count) / static_cast<double>(num_values);
    const int64_t most = std::min(2 * step_documents_, kMaxStepDocuments);
    step_documents_ = std::max<int64_t>(
        1, static_cast<int64_t>(std::min(fitting, static_cast<double>(most))));
  }

  void Write(std::span<const kernels::PackedPart> parts, Out* values, uint8_t* marks) {
    kernels::WriteSequence<Out>(
        parts, pack_.packing,
        {.separator = static_cast<Out>(pack_.separator_bits),
         .padding = static_cast<Out>(pack_.padding_bits)},
        [this](int64_t begin, int64_t count, Out* out) {
          const Out* in = documents_.From(begin);
          if (!streaming_) {
            std::copy_n(in, count, out);
          } else {
            kernels::StreamCopy(reinterpret_cast<const uint8_t*>(in), count * sizeof(Out),
                                reinterpret_cast<uint8_t*>(out));
          }
        },
        values, marks);
  }

  [[noreturn]] void ThrowEnded(const RowRange& rows) const {
    throw CorruptFile("the lists of a row group fill ", row(), " sequences, but ",
                      rows.end(),
                      " were planned; the file has changed, or its footer tells another "
                      "number of values");
  }

  const PackRequest pack_;
  const int64_t num_documents_;
  const std::unique_ptr<ColumnReader> lists_;
  DocumentValues<Out> documents_;
  kernels::Packer packer_;
  int64_t next_document_ = 0;
  int64_t step_documents_ = kFirstStepDocuments;
  int64_t first_sequence_ = 0;  // of the packer's
  int64_t taken_ = 0;           // of the packer's sequences
  bool is_finished_ = false;
  bool streaming_ = false;
};

}  // namespace

std::unique_ptr<ColumnReader> MakePackedReader(const ColumnRequest& column,
                                               ColumnStart start,
                                               std::unique_ptr<ColumnReader> lists) {
  return MakeForItems<PackedReader>(column, std::move(start), std::move(lists));
}

}  // namespace torchparquet
