#pragma once

#include <cstdint>
#include <span>

#include "base/scratch_buffer.h"
#include "columns/values/value_reader.h"
#include "kernels/encodings/dictionary.h"

namespace torchparquet {

// A dictionary of values of one size. It is looked up through a dictionary of indices,
// which checks them.
class FixedBytesDictionary {
 public:
  // Keeps its content in the two buffers.
  FixedBytesDictionary(ScratchBuffer* bytes, ScratchBuffer* indices)
      : bytes_(bytes), indices_(indices) {}

  void Assign(const uint8_t* values, int64_t num_values, int64_t value_bytes);

  const kernels::Dictionary<uint32_t>* indices() const { return &indices_; }
  int64_t value_bytes() const { return value_bytes_; }

  // Writes the values of checked indices, end to end.
  void LookUp(std::span<const uint32_t> checked, uint8_t* out) const;

 private:
  template <int64_t kMoved>
  void LookUpMoving(std::span<const uint32_t> checked, uint8_t* out) const;
  const uint8_t* value(uint32_t index) const {
    return bytes_->data() + static_cast<int64_t>(index) * value_bytes_;
  }

  ScratchBuffer* bytes_;
  kernels::Dictionary<uint32_t> indices_;
  int64_t value_bytes_ = 0;
};

// Indices into such a dictionary.
class FixedBytesDictionaryReader : public ValueReader<uint8_t> {
 public:
  // `bytes` starts at the bit-width byte.
  FixedBytesDictionaryReader(std::span<const uint8_t> bytes,
                             const FixedBytesDictionary* dictionary)
      : reader_(bytes.subspan(1), bytes.front(), dictionary->indices()),
        dictionary_(dictionary) {}

  void Read(uint8_t* out, int64_t num_values) override;
  void Skip(int64_t num_values) override { reader_.Skip(num_values); }
  void ReadStreaming(uint8_t* out, int64_t num_values) override;

 private:
  kernels::DictionaryReader<uint32_t> reader_;
  const FixedBytesDictionary* dictionary_;
};

}  // namespace torchparquet
