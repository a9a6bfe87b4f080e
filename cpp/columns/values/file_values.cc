#include "columns/values/file_values.h"

#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "base/errors.h"
#include "kernels/encodings/byte_arrays.h"

namespace torchparquet {
namespace {

constexpr int64_t kLengthBytes = sizeof(uint32_t);

class FileByteArrayReader : public kernels::ByteArrayReader {
 public:
  explicit FileByteArrayReader(const ValueBytes& bytes)
      : file_(bytes.file()), next_(bytes.range().offset), end_(bytes.range().end()) {}

  // Values that end within a piece are read as those of a page. Others go from the file
  // to their place.
  void Read(int64_t num_values, uint32_t* lengths, kernels::ByteSink* sink) override {
    while (num_values > 0) {
      const Whole whole = WholeIn(num_values, kFilePieceBytes);
      if (whole.num_values > 0) {
        kernels::PlainByteArrayReader(whole.bytes).Read(whole.num_values, lengths, sink);
        next_ += std::ssize(whole.bytes);
      } else {
        *lengths = TakeLength();
        file_->Copy({next_, *lengths}, sink->Extend(*lengths));
        next_ += *lengths;
      }
      const int64_t num_read = std::max<int64_t>(1, whole.num_values);
      lengths += num_read;
      num_values -= num_read;
    }
  }

  // Of long values, little more than their lengths is read.
  void Skip(int64_t num_values) override {
    constexpr int64_t kFewBytes = int64_t{4} << 10;
    while (num_values > 0) {
      const Whole whole =
          WholeIn(num_values, length_ > kFewBytes ? kFewBytes : kFilePieceBytes);
      next_ += std::ssize(whole.bytes);
      num_values -= whole.num_values;
      if (whole.num_values == 0) {
        const int64_t length = TakeLength();
        next_ += length;
        --num_values;
      }
    }
  }

 private:
  struct Whole {
    std::span<const uint8_t> bytes;
    int64_t num_values = 0;
  };

  // The next values, of at most `max_values`, that are held. If the next one is not, and
  // is no longer than a piece of the file, the piece that it begins is read.
  Whole WholeIn(int64_t max_values, int64_t piece_bytes) {
    if (kLengthBytes > end_ - next_) throw TooFewValues();
    const int64_t ahead_end = std::min(next_ + piece_bytes, end_);
    std::memcpy(&length_, file_->View({next_, kLengthBytes}, ahead_end).data(),
                sizeof(length_));
    const ByteRange value{next_, kLengthBytes + length_};
    if (value.end() <= ahead_end) file_->View(value, ahead_end);
    auto piece = file_->HeldFrom(next_);
    piece = piece.first(std::min(piece.size(), static_cast<size_t>(end_ - next_)));
    Whole whole;
    size_t size = 0;
    while (whole.num_values < max_values) {
      const auto left = piece.subspan(size);
      uint32_t length = 0;
      if (left.size() < sizeof(length)) break;
      std::memcpy(&length, left.data(), sizeof(length));
      if (length > left.size() - sizeof(length)) break;
      size += sizeof(length) + length;
      ++whole.num_values;
    }
    whole.bytes = piece.first(size);
    return whole;
  }

  // Passes the length of the value that WholeIn has found to be too long, and returns it.
  uint32_t TakeLength() {
    next_ += kLengthBytes;
    if (length_ > end_ - next_) {
      throw CorruptFile("length of a value goes beyond its page: ", length_);
    }
    return length_;
  }

  ReadAhead* const file_;
  int64_t next_;  // in the file
  const int64_t end_;
  // Of the value that WholeIn has met first. Before that, values may be long.
  uint32_t length_ = std::numeric_limits<uint32_t>::max();
};

}  // namespace

std::unique_ptr<kernels::ByteArrayReader> OpenFileByteArrays(const ValueBytes& bytes) {
  return std::make_unique<FileByteArrayReader>(bytes);
}

}  // namespace torchparquet
