#include "kernels/codecs/snappy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "kernels/codecs/wide_copy.h"

namespace torchparquet::kernels {
namespace {

// The two low bits of a tag.
enum ElementKind : size_t { kLiteral, kCopy1, kCopy2, kCopy4 };

constexpr size_t kMaxShortLiteral = 60;
// Elements of up to a word are the common kind.
constexpr uint8_t kNotCommon = 255;

// Facts of an element of the common kind by its tag. One table each, so that one base
// register and the tag address all of them.
struct TagTables {
  std::array<uint32_t, 256> offset_mask = {};  // of the two bytes after the tag
  std::array<uint32_t, 256> offset_base = {};
  std::array<uint8_t, 256> num_bytes = {};  // of its content
  std::array<uint8_t, 256> size = {};       // of the element itself

  constexpr TagTables() {
    for (size_t tag = 0; tag < 256; ++tag) {
      const auto length = static_cast<uint8_t>((tag >> 2) + 1);
      switch (tag & 3) {
        case kLiteral:
          // So that literals pass the checks of offsets: as copies from 16 bytes before.
          offset_base[tag] = kWordBytes;
          num_bytes[tag] = length <= kWordBytes ? length : kNotCommon;
          size[tag] = static_cast<uint8_t>(length + 1);
          break;
        case kCopy1:
          offset_mask[tag] = 0xff;
          offset_base[tag] = static_cast<uint32_t>((tag >> 5) << 8);
          num_bytes[tag] = static_cast<uint8_t>(4 + ((tag >> 2) & 7));
          size[tag] = 2;
          break;
        case kCopy2:
          offset_mask[tag] = 0xffff;
          num_bytes[tag] = length <= kWordBytes ? length : kNotCommon;
          size[tag] = 3;
          break;
        default:
          num_bytes[tag] = kNotCommon;
      }
    }
  }
};
constexpr TagTables kTags;

// If the tag is a literal's, sets `*next_tag` and `*source` to those of literals.
inline void SelectLiteral(size_t tag, size_t literal_next_tag, uintptr_t literal_source,
                          size_t* next_tag, uintptr_t* source) {
#if defined(__x86_64__)
  // Compilers make a branch of the code below, which numbers mispredict: 0.6 of the
  // speed.
  // NOLINTBEGIN(misc-const-correctness): the instructions write them.
  size_t next = *next_tag;
  uintptr_t from = *source;
  // NOLINTEND(misc-const-correctness)
  asm("testb $3, %b[tag]\n\t"
      "cmovz %[literal_next_tag], %[next]\n\t"
      "cmovz %[literal_source], %[from]"
      : [next] "+&r"(next), [from] "+&r"(from)
      : [tag] "r"(tag), [literal_next_tag] "r"(literal_next_tag),
        [literal_source] "r"(literal_source)
      : "cc");
  *next_tag = next;
  *source = from;
#else
  const bool is_literal = (tag & 3) == kLiteral;
  *next_tag = is_literal ? literal_next_tag : *next_tag;
  *source = is_literal ? literal_source : *source;
#endif
}

struct Element {
  bool is_literal;
  size_t num_bytes;
  size_t offset = 0;  // of a copy
};

// Reads the element with that tag up to the bytes of a literal and moves `*in` past it.
// Returns nothing if the block ends within it.
std::optional<Element> ReadElement(size_t tag, const uint8_t* in_end,
                                   const uint8_t** in) {
  const auto read_number = [&](size_t num_bytes) -> std::optional<size_t> {
    if (static_cast<size_t>(in_end - *in) < num_bytes) return std::nullopt;
    size_t number = 0;
    for (size_t i = 0; i < num_bytes; ++i) number |= size_t{(*in)[i]} << (8 * i);
    *in += num_bytes;
    return number;
  };
  const size_t length = (tag >> 2) + 1;
  if ((tag & 3) == kLiteral) {
    if (length <= kMaxShortLiteral) return Element{true, length};
    const auto number = read_number(length - kMaxShortLiteral);
    if (!number) return std::nullopt;
    return Element{true, *number + 1};
  }
  const bool is_copy1 = (tag & 3) == kCopy1;
  const auto number = read_number(is_copy1 ? 1 : (tag & 3) == kCopy2 ? 2 : 4);
  if (!number) return std::nullopt;
  if (is_copy1) return Element{false, 4 + ((tag >> 2) & 7), (tag >> 5) << 8 | *number};
  return Element{false, length, *number};
}

struct Snappy {
  static constexpr ptrdiff_t kMaxStep = 2 * kWordBytes;
  static_assert(kWordBytes + 1 <= kMaxStep);

  // Literals and copies in the same instructions, without a branch that depends on which
  // of them it is.
  [[gnu::always_inline]] static bool Step(BlockPlace& place, size_t& tag,
                                          const BlockBounds& bounds) {
    const size_t num_bytes = kTags.num_bytes[tag];
    const uint32_t offset =
        (Load16Bits(place.in) & kTags.offset_mask[tag]) + kTags.offset_base[tag];
    if (num_bytes > kWordBytes) [[unlikely]]
      return false;
    if (offset < num_bytes) [[unlikely]]
      return false;  // repeats itself, or is 0
    // As numbers, since an offset may lead out of the block.
    uintptr_t source = reinterpret_cast<uintptr_t>(place.out) - offset;
    if (source < reinterpret_cast<uintptr_t>(bounds.out_begin)) [[unlikely]]
      return false;
    // Both loads begin before the kind of the element is known.
    const size_t literal_next_tag = place.in[(tag >> 2) + 1];
    size_t next_tag = place.in[tag & 3];
    SelectLiteral(tag, literal_next_tag, reinterpret_cast<uintptr_t>(place.in), &next_tag,
                  &source);
    CopyWord(reinterpret_cast<const uint8_t*>(source), place.out);
    place.in += kTags.size[tag];
    place.out += num_bytes;
    tag = next_tag;
    return true;
  }

  static BlockPlace StepAny(BlockPlace place, const BlockBounds& bounds) {
    const uint8_t* in = place.in;
    const auto element = ReadElement(in[-1], bounds.in_end, &in);
    if (!element) return kDamagedPlace;
    const auto in_room = static_cast<size_t>(bounds.in_end - in);
    const auto out_room = static_cast<size_t>(bounds.out_end - place.out);
    if (element->is_literal) {
      if (element->num_bytes >= in_room) return place;
      if (element->num_bytes > out_room) return kDamagedPlace;
      if (element->num_bytes <= kMaxShortLiteral) {
        CopyLiteral(in, element->num_bytes, place.out);
      } else {
        std::memcpy(place.out, in, element->num_bytes);
      }
      in += element->num_bytes;
    } else {
      // 0 is no offset, and becomes the largest number here.
      if (element->offset - 1 >= static_cast<size_t>(place.out - bounds.out_begin)) {
        return kDamagedPlace;
      }
      CopyMatch(element->offset, element->num_bytes, place.out);
    }
    return {.in = in + 1, .out = place.out + element->num_bytes};
  }

  static bool Finish(const uint8_t* in, uint8_t* out, const BlockBounds& bounds) {
    while (in != bounds.in_end) {
      const size_t tag = *in++;
      const auto element = ReadElement(tag, bounds.in_end, &in);
      if (!element || element->num_bytes > static_cast<size_t>(bounds.out_end - out)) {
        return false;
      }
      if (element->is_literal) {
        if (element->num_bytes > static_cast<size_t>(bounds.in_end - in)) return false;
        std::memcpy(out, in, element->num_bytes);
        in += element->num_bytes;
      } else {
        if (element->offset - 1 >= static_cast<size_t>(out - bounds.out_begin)) {
          return false;
        }
        for (size_t i = 0; i < element->num_bytes; ++i)
          out[i] = (out - element->offset)[i];
      }
      out += element->num_bytes;
    }
    return out == bounds.out_end;
  }
};

using SnappyLanes = BlockLanes<Snappy>;

// The part of a block after the length of its content.
struct Content {
  const uint8_t* in;
  BlockBounds bounds;
};

// Returns nothing if the length, a varint, is missing or not that of `block.out`.
std::optional<Content> TakeLength(const CompressedBlock& block) {
  constexpr size_t kMaxBytes = 5;
  uint64_t length = 0;
  for (size_t i = 0; i < std::min(block.bytes.size(), kMaxBytes); ++i) {
    const uint8_t byte = block.bytes[i];
    length |= uint64_t{byte & 0x7fU} << (7 * i);
    if (byte >= 0x80) continue;
    if (length != block.out.size()) return std::nullopt;
    return Content{.in = block.bytes.data() + i + 1,
                   .bounds = {.in_end = block.bytes.data() + block.bytes.size(),
                              .out_begin = block.out.data(),
                              .out_end = block.out.data() + block.out.size()}};
  }
  return std::nullopt;
}

}  // namespace

bool DecompressSnappy(const CompressedBlock& block) {
  const auto content = TakeLength(block);
  return content && SnappyLanes::Decompress(content->bounds, content->in);
}

std::array<bool, 2> DecompressSnappyPair(const CompressedBlock& first,
                                         const CompressedBlock& second) {
  const auto content = TakeLength(first);
  const auto other = TakeLength(second);
  if (!content || !other || !SnappyLanes::HasRoom(content->bounds, content->in) ||
      !SnappyLanes::HasRoom(other->bounds, other->in)) {
    return {DecompressSnappy(first), DecompressSnappy(second)};
  }
  BlockPair pair{.bounds = {content->bounds, other->bounds},
                 .places = {SnappyLanes::BeginBlock(content->bounds, content->in),
                            SnappyLanes::BeginBlock(other->bounds, other->in)}};
  SnappyLanes::RunPair(&pair);
  return SnappyLanes::FinishPair(&pair);
}

}  // namespace torchparquet::kernels
