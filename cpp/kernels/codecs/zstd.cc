#include "kernels/codecs/zstd.h"

#include "kernels/codecs/zstd_content.h"
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

void ZstdDecoder::DecodeBoth() {
  DecodeLiterals({&slots_[0].streams, &slots_[1].streams}, literals_.get());
  DecodeSequences({&slots_[0].sequences, &slots_[1].sequences}, sequences_.get());
}

bool ZstdDecoder::Finish(size_t slot, Output* output) {
  ZstdBlock& block = slots_[slot];
  return FinishLiterals(slot, &block.streams, literals_.get()) &&
         FinishSequences(slot, &block.sequences, sequences_.get()) &&
         output->Write(block, sequences_->sequences[slot].data());
}

// In literals, of which a sequence takes the time of eight.
size_t ZstdDecoder::WorkLeft(size_t slot) const {
  const ZstdStreams& streams = slots_[slot].streams;
  const ZstdCodedSequences& sequences = slots_[slot].sequences;
  return streams.num_literals -
         streams.num_streams * static_cast<size_t>(streams.num_done) +
         8 * (sequences.num_sequences - sequences.num_done);
}

// A block is decoded with the one after it, which may keep a rest for the next but one.
bool ZstdDecoder::DecompressRest(ZstdBlocks* blocks, Output* output) {
  bool has_block = !blocks->AtEnd();
  if (has_block && !blocks->Read(&slots_[0])) return false;
  for (size_t slot = 0; has_block; slot = 1 - slot) {
    has_block = !blocks->AtEnd();
    if (has_block) {
      if (!blocks->Read(&slots_[1 - slot])) return false;
      DecodeBoth();
    }
    if (!has_block && !slots_[slot].ends_frame) return false;
    if (!Finish(slot, output)) return false;
  }
  return output->IsFull();
}

bool ZstdDecoder::Decompress(const CompressedBlock& page) {
  blocks_[0].Begin(page.bytes);
  Output output{.memory = page.out};
  return blocks_[0].SkipFrames() && DecompressRest(&blocks_[0], &output);
}

// The blocks of two pages are seldom as long as each other. The one with less to do is
// finished, and the next one of its page goes on with the rest of the other.
std::array<bool, 2> ZstdDecoder::DecompressPair(const CompressedBlock& first,
                                                const CompressedBlock& second) {
  std::array<Output, 2> outputs;
  outputs[0].memory = first.out;
  outputs[1].memory = second.out;
  std::array<bool, 2> good;
  std::array<bool, 2> has_block{};
  for (size_t i = 0; i < 2; ++i) {
    blocks_[i].Begin((i == 0 ? first : second).bytes);
    good[i] = blocks_[i].SkipFrames();
  }
  const auto read = [&](size_t i) {
    if (has_block[i]) return true;
    if (!good[i] || blocks_[i].AtEnd()) return false;
    return has_block[i] = good[i] = blocks_[i].Read(&slots_[i]);
  };
  const auto finish = [&](size_t i) {
    has_block[i] = false;
    good[i] = Finish(i, &outputs[i]) && (slots_[i].ends_frame || !blocks_[i].AtEnd());
  };
  while (read(0) && read(1)) {
    DecodeBoth();
    finish(WorkLeft(0) <= WorkLeft(1) ? 0 : 1);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (has_block[i]) finish(i);
    good[i] = good[i] && DecompressRest(&blocks_[i], &outputs[i]);
  }
  return good;
}

}  // namespace torchparquet::kernels
