#include "kernels/codecs/zstd.h"

#include <algorithm>

#include "kernels/codecs/zstd_literals.h"
#include "kernels/codecs/zstd_sequences.h"
#include "kernels/xxhash64.h"

namespace torchparquet::kernels {

ZstdDecoder::ZstdDecoder()
    : literals_(std::make_unique_for_overwrite<ZstdLiteralMemory>()),
      sequences_(std::make_unique_for_overwrite<ZstdSequenceMemory>()) {
  for (size_t i = 0; i < 2; ++i) {
    slots_[i].huffman = &literals_->tables[i];
    slots_[i].states = &sequences_->tables[i];
    slots_[i].literal_memory = literals_->LiteralsOf(i);
  }
}

bool ZstdDecoder::Output::Write(const ZstdBlock& block, const ZstdSequence* sequences) {
  if (block.begins_frame) {
    frame_begin = num_written;
    offsets = {1, 4, 8};
  }
  const auto room = memory.subspan(num_written);
  const uint8_t* end = WriteContent(
      {block.literals, {sequences, block.sequences.num_sequences}},
      {memory.data() + frame_begin, room.data(), room.data() + room.size()}, &offsets);
  if (end == nullptr) return false;
  const auto num_bytes = static_cast<size_t>(end - room.data());
  if (num_bytes > block.max_bytes) return false;
  num_written += num_bytes;
  if (!block.ends_frame) return true;
  const auto frame = memory.subspan(frame_begin, num_written - frame_begin);
  if (block.frame_bytes && *block.frame_bytes != frame.size()) return false;
  return !block.checksum || static_cast<uint32_t>(XxHash64(frame)) == *block.checksum;
}

// The literals and the sequences of one block or both.
std::array<bool, 2> ZstdDecoder::Decode(bool first, bool second) {
  static const ZstdStreams no_streams;
  static const ZstdCodedSequences no_sequences;
  const auto literals = DecodeLiterals({first ? &slots_[0].streams : &no_streams,
                                        second ? &slots_[1].streams : &no_streams},
                                       literals_.get());
  const auto sequences = DecodeSequences({first ? &slots_[0].sequences : &no_sequences,
                                          second ? &slots_[1].sequences : &no_sequences},
                                         sequences_.get());
  return {first && literals[0] && sequences[0], second && literals[1] && sequences[1]};
}

bool ZstdDecoder::Write(size_t slot, Output* output) {
  return output->Write(slots_[slot], sequences_->sequences[slot].data());
}

bool ZstdDecoder::Finish(ZstdBlocks* blocks, Output* output) {
  while (!blocks->AtEnd()) {
    if (!blocks->Read(&slots_[0])) return false;
    if (blocks->AtEnd()) {
      if (!Decode(true, false)[0] || !Write(0, output)) return false;
      if (!slots_[0].ends_frame) return false;
      break;
    }
    if (!blocks->Read(&slots_[1])) return false;
    const auto good = Decode(true, true);
    for (size_t i = 0; i < 2; ++i) {
      if (!good[i] || !Write(i, output)) return false;
    }
    if (blocks->AtEnd() && !slots_[1].ends_frame) return false;
  }
  return output->IsFull();
}

bool ZstdDecoder::Decompress(const CompressedBlock& page) {
  blocks_[0].Begin(page.bytes);
  Output output{.memory = page.out};
  return blocks_[0].SkipFrames() && Finish(&blocks_[0], &output);
}

std::array<bool, 2> ZstdDecoder::DecompressPair(const CompressedBlock& first,
                                                const CompressedBlock& second) {
  std::array<Output, 2> outputs;
  outputs[0].memory = first.out;
  outputs[1].memory = second.out;
  std::array<bool, 2> good;
  for (size_t i = 0; i < 2; ++i) {
    blocks_[i].Begin((i == 0 ? first : second).bytes);
    good[i] = blocks_[i].SkipFrames();
  }
  while (good[0] && good[1] && !blocks_[0].AtEnd() && !blocks_[1].AtEnd()) {
    for (size_t i = 0; i < 2; ++i) good[i] = blocks_[i].Read(&slots_[i]);
    good = Decode(good[0], good[1]);
    for (size_t i = 0; i < 2; ++i) {
      good[i] = good[i] && Write(i, &outputs[i]) &&
                (slots_[i].ends_frame || !blocks_[i].AtEnd());
    }
  }
  for (size_t i = 0; i < 2; ++i) good[i] = good[i] && Finish(&blocks_[i], &outputs[i]);
  return good;
}

}  // namespace torchparquet::kernels
