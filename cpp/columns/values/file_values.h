#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "columns/values/value_reader.h"
#include "kernels/byte_array.h"
#include "kernels/values/conversion.h"
#include "pages/page_parts.h"

namespace torchparquet {

// Values of a long page that stay in the file until they are read: PLAIN ones, since
// these need nothing of the page but themselves. A page of any length then takes a piece
// of so many bytes, and a reader that begins within it reads nothing twice.
inline constexpr int64_t kFilePieceBytes = int64_t{256} << 10;

// PLAIN values of a fixed width, as PlainReader.
template <typename T>
class FilePlainReader : public ValueReader<T> {
 public:
  FilePlainReader(const ValueBytes& bytes, const kernels::Conversion& conversion)
      : file_(bytes.file()), left_(bytes.range()), conversion_(conversion) {}

  void Read(T* out, int64_t num_values) override {
    ForPieces(num_values, &out,
              [](PlainReader<T>& piece, T* to, int64_t count) { piece.Read(to, count); });
  }
  void ReadStreaming(T* out, int64_t num_values) override {
    ForPieces(num_values, &out, [](PlainReader<T>& piece, T* to, int64_t count) {
      piece.ReadStreaming(to, count);
    });
  }
  void Skip(int64_t num_values) override { Take(num_values); }
  bool may_refuse() const override { return conversion_.may_refuse(); }

 private:
  ByteRange Take(int64_t num_values) {
    const ByteRange taken{left_.offset, num_values * conversion_.stored_bytes()};
    if (taken.num_bytes > left_.num_bytes) throw TooFewValues();
    left_ = {taken.end(), left_.num_bytes - taken.num_bytes};
    return taken;
  }

  template <typename ReadPiece>
  void ForPieces(int64_t num_values, T** out, ReadPiece read) {
    const int64_t piece_values =
        kFilePieceBytes /
        std::clamp<int64_t>(conversion_.stored_bytes(), 1, kFilePieceBytes);
    const int64_t value_items = conversion_.is_cell() ? conversion_.stored_bytes() : 1;
    int64_t done = 0;
    ReadParts(done, [&] {
      while (done < num_values) {
        const int64_t count = std::min(num_values - done, piece_values);
        const ByteRange piece = Take(count);
        const int64_t ahead = std::min(piece.offset + kFilePieceBytes, left_.end());
        PlainReader<T> values(file_->View(piece, ahead), conversion_);
        read(values, *out, count);
        *out += count * value_items;
        done += count;
      }
    });
  }

  ReadAhead* const file_;
  ByteRange left_;
  const kernels::Conversion conversion_;
};

// PLAIN strings and bytes.
std::unique_ptr<kernels::ByteArrayReader> OpenFileByteArrays(const ValueBytes& bytes);

}  // namespace torchparquet
