#include "kernels/codecs/zstd_blocks.h"

#include <algorithm>

namespace torchparquet::kernels {
namespace {

constexpr size_t kMaxBlockBytes = ZstdLiteralMemory::kMaxLiterals;
constexpr size_t kLiteralRoom = 32;  // to read after literals
// The least bytes of a sequence's copy.
constexpr size_t kMinCopy = 3;

uint64_t Number(std::span<const uint8_t> bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return number;
}

// Takes a number of so many bytes, the lowest first.
std::optional<uint64_t> TakeNumber(std::span<const uint8_t>* in, size_t num_bytes) {
  if (in->size() < num_bytes) return std::nullopt;
  const uint64_t number = Number(in->first(num_bytes));
  *in = in->subspan(num_bytes);
  return number;
}

}  // namespace

void ZstdBlocks::Begin(std::span<const uint8_t> bytes) {
  in_ = bytes;
  in_frame_ = false;
}

bool ZstdBlocks::SkipFrames() {
  constexpr uint64_t kSkipped = 0x184D2A5;
  while (!in_frame_ && in_.size() >= 4 && Number(in_.first(4)) >> 4 == kSkipped) {
    in_ = in_.subspan(4);
    const auto num_bytes = TakeNumber(&in_, 4);
    if (!num_bytes || *num_bytes > in_.size()) return false;
    in_ = in_.subspan(*num_bytes);
  }
  return true;
}

// Returns false for frames of other versions too, and for those with a dictionary.
bool ZstdBlocks::ReadFrameHeader() {
  constexpr uint64_t kMagic = 0xFD2FB528;
  constexpr uint64_t kMaxWindowLog = 30;
  if (TakeNumber(&in_, 4) != kMagic) return false;
  const auto descriptor = TakeNumber(&in_, 1);
  if (!descriptor) return false;
  const uint64_t size_code = *descriptor >> 6;
  const bool is_single = (*descriptor >> 5 & 1) != 0;
  has_checksum_ = (*descriptor >> 2 & 1) != 0;
  if ((*descriptor & 0b1011) != 0) return false;  // a dictionary, or reserved
  uint64_t window = 0;
  if (!is_single) {
    const auto byte = TakeNumber(&in_, 1);
    if (!byte) return false;
    const uint64_t log = 10 + (*byte >> 3);
    if (log > kMaxWindowLog) return false;
    window = (uint64_t{1} << log) + ((uint64_t{1} << log) >> 3) * (*byte & 7);
  }
  frame_bytes_.reset();
  if (is_single || size_code != 0) {
    frame_bytes_ = TakeNumber(&in_, size_t{1} << size_code);
    if (!frame_bytes_) return false;
    if (size_code == 1) *frame_bytes_ += 256;
    if (is_single) window = *frame_bytes_;
  }
  max_block_bytes_ = std::min<uint64_t>(window, kMaxBlockBytes);
  huffman_ = nullptr;
  states_ = {};
  return true;
}

bool ZstdBlocks::Read(ZstdBlock* block) {
  block->begins_frame = !in_frame_;
  if (!in_frame_ && !ReadFrameHeader()) return false;
  in_frame_ = true;
  const auto header = TakeNumber(&in_, 3);
  if (!header) return false;
  block->ends_frame = (*header & 1) != 0;
  block->max_bytes = max_block_bytes_;
  block->streams = {};
  block->sequences = {};
  enum : uint64_t { kRaw, kRepeated, kCompressed };
  const uint64_t type = *header >> 1 & 3;
  const size_t size = *header >> 3;
  if (size > max_block_bytes_) return false;
  const size_t num_bytes = type == kRepeated ? 1 : size;
  if (num_bytes > in_.size()) return false;
  const auto content = in_.first(num_bytes);
  if (type == kRaw) {
    block->literals = content;
  } else if (type == kRepeated) {
    std::fill_n(block->literal_memory, size, content.front());
    block->literals = {block->literal_memory, size};
  } else if (type != kCompressed || !ReadContent(content, block)) {
    return false;
  }
  in_ = in_.subspan(num_bytes);
  return !block->ends_frame || ReadFrameEnd(block);
}

bool ZstdBlocks::ReadFrameEnd(ZstdBlock* block) {
  in_frame_ = false;
  block->frame_bytes = frame_bytes_;
  block->checksum.reset();
  if (has_checksum_) {
    const auto checksum = TakeNumber(&in_, 4);
    if (!checksum) return false;
    block->checksum = static_cast<uint32_t>(*checksum);
  }
  return SkipFrames();
}

bool ZstdBlocks::ReadContent(std::span<const uint8_t> content, ZstdBlock* block) {
  return ReadLiterals(&content, block) && ReadSequences(content, block);
}

bool ZstdBlocks::ReadLiterals(std::span<const uint8_t>* content, ZstdBlock* block) {
  if (content->empty()) return false;
  enum : uint64_t { kRaw, kRepeated, kCoded, kCodedAsBefore };
  const uint64_t type = content->front() & 3;
  const uint64_t size_format = content->front() >> 2 & 3;
  if (type <= kRepeated) {
    static constexpr size_t kHeaderBytes[] = {1, 2, 1, 3};
    const auto header = TakeNumber(content, kHeaderBytes[size_format]);
    if (!header) return false;
    const size_t size = *header >> (size_format % 2 == 0 ? 3 : 4);
    const size_t num_bytes = type == kRaw ? size : 1;
    if (size > max_block_bytes_ || num_bytes > content->size()) return false;
    const auto bytes = content->first(num_bytes);
    *content = content->subspan(num_bytes);
    // Words are read from literals.
    if (type == kRaw && content->size() >= kLiteralRoom) {
      block->literals = bytes;
      return true;
    }
    if (type == kRaw) {
      std::ranges::copy(bytes, block->literal_memory);
    } else {
      std::fill_n(block->literal_memory, size, bytes.front());
    }
    block->literals = {block->literal_memory, size};
    return true;
  }
  static constexpr size_t kHeaderBytes[] = {3, 3, 4, 5};
  static constexpr uint64_t kSizeBits[] = {10, 10, 14, 18};
  const auto header = TakeNumber(content, kHeaderBytes[size_format]);
  if (!header) return false;
  const uint64_t mask = (uint64_t{1} << kSizeBits[size_format]) - 1;
  const size_t size = *header >> 4 & mask;
  const size_t num_bytes = *header >> (4 + kSizeBits[size_format]) & mask;
  if (size > max_block_bytes_ || num_bytes > content->size()) return false;
  auto bytes = content->first(num_bytes);
  *content = content->subspan(num_bytes);
  if (type == kCoded) {
    if (!ReadHuffmanTable(&bytes, block->huffman)) return false;
  } else if (huffman_ == nullptr) {
    return false;
  } else if (huffman_ != block->huffman) {
    *block->huffman = *huffman_;
  }
  huffman_ = block->huffman;
  block->literals = {block->literal_memory, size};
  block->streams.num_literals = size;
  block->streams.num_streams = size_format == 0 ? 1 : 4;
  return ReadStreams(bytes, block);
}

bool ZstdBlocks::ReadStreams(std::span<const uint8_t> streams, ZstdBlock* block) {
  const auto add = [&](size_t i, std::span<const uint8_t> bytes) {
    const auto bits = BackwardBits::In(bytes);
    if (bits) block->streams.bits[i] = *bits;
    return bits.has_value();
  };
  // Nothing is left for the last stream of fewer literals.
  constexpr size_t kMinLiterals = 6;
  if (block->streams.num_streams == 1) {
    return block->streams.num_literals > 0 && add(0, streams);
  }
  if (block->streams.num_literals < kMinLiterals) return false;
  std::array<size_t, 3> sizes;
  for (size_t& size : sizes) {
    const auto number = TakeNumber(&streams, 2);
    if (!number) return false;
    size = *number;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > streams.size() || !add(i, streams.first(sizes[i]))) return false;
    streams = streams.subspan(sizes[i]);
  }
  return add(3, streams);
}

bool ZstdBlocks::ReadSequences(std::span<const uint8_t> content, ZstdBlock* block) {
  auto count = TakeNumber(&content, 1);
  if (!count) return false;
  if (*count >= 128) {
    const auto more = TakeNumber(&content, *count == 255 ? 2 : 1);
    if (!more) return false;
    count = *count == 255 ? *more + 0x7F00 : ((*count - 128) << 8) + *more;
  }
  if (*count == 0) return content.empty();
  if (*count > max_block_bytes_ / kMinCopy) return false;
  const auto modes = TakeNumber(&content, 1);
  if (!modes || (*modes & 3) != 0) return false;
  enum : uint64_t { kDefault, kSingle, kDescribed, kAsBefore };
  for (const ZstdCode code : {kLiteralLength, kOffset, kMatchLength}) {
    const uint64_t mode = *modes >> (6 - 2 * code) & 3;
    ZstdStateTable* table = &(*block->states)[code];
    if (mode == kSingle) {
      if (!ReadSingleState(code, &content, table)) return false;
    } else if (mode == kDescribed) {
      if (!ReadStateTable(code, &content, table)) return false;
    } else {
      const ZstdStateTable* other =
          mode == kDefault ? &DefaultStateTable(code) : states_[code];
      if (other == nullptr) return false;
      if (other != table) *table = *other;
    }
    states_[code] = table;
  }
  const auto bits = BackwardBits::In(content);
  if (!bits) return false;
  block->sequences = {.num_sequences = *count, .bits = *bits};
  return block->sequences.Begin(*block->states);
}

}  // namespace torchparquet::kernels
