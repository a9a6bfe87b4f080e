#include "footers/declared_lengths.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "errors.h"
#include "footers/flat_table.h"

namespace torchparquet {
namespace {

// The fields that are read of Arrow's Message.fbs and Schema.fbs.
constexpr int kMessageHeaderType = 1;
constexpr int kMessageHeader = 2;
constexpr int kSchemaFields = 1;
constexpr int kFieldName = 0;
constexpr int kFieldTypeId = 2;
constexpr int kFieldType = 3;
constexpr int kFieldChildren = 5;
constexpr int kFixedSizeListLength = 0;

constexpr uint8_t kSchemaHeader = 1;

// Types with fields of their own. An extension type is stored as its storage type.
enum TypeId : uint8_t {
  kList = 12,
  kStruct = 13,
  kFixedSizeList = 16,
  kMap = 17,
  kLargeList = 21,
  kListView = 25,
  kLargeListView = 26,
};

// The part of the Arrow schema about one leaf.
struct DeclaredLeaf {
  std::string_view column;  // name of the top level
  size_t num_lists = 0;
  int64_t length = 0;  // of the outermost list; 0: any length
};

// The leaves of an Arrow schema.
class DeclaredLeaves {
 public:
  // Throws Error(kCorruptFile) for a schema that is broken or has more than `max_fields`
  // fields: a few bytes can stand for any number of fields.
  DeclaredLeaves(const FlatTable& schema, int64_t max_fields) : fields_left_(max_fields) {
    schema.ForEachTable(kSchemaFields, [&](const FlatTable& field) {
      AddField(field, {.column = field.Text(kFieldName)}, 0);
    });
  }

  const std::vector<DeclaredLeaf>& leaves() const { return leaves_; }

 private:
  static constexpr int kMaxDepth = 128;

  void AddField(const FlatTable& field, DeclaredLeaf leaf, int depth) {
    if (--fields_left_ < 0 || depth > kMaxDepth) {
      throw CorruptFile("Arrow schema has more fields than the file");
    }
    switch (field.Number<uint8_t>(kFieldTypeId)) {
      case kFixedSizeList:
        if (leaf.num_lists == 0) {
          const FlatTable list = field.Table(kFieldType);
          leaf.length = std::max(list.Number<int32_t>(kFixedSizeListLength), 0);
        }
        [[fallthrough]];
      case kList:
      case kLargeList:
      case kListView:
      case kLargeListView:
      case kMap:  // of one struct, of key and value
        ++leaf.num_lists;
        [[fallthrough]];
      case kStruct:
        field.ForEachTable(kFieldChildren, [&](const FlatTable& child) {
          AddField(child, leaf, depth + 1);
        });
        return;
      default:
        leaves_.push_back(leaf);
    }
  }

  int64_t fields_left_;
  std::vector<DeclaredLeaf> leaves_;
};

// The schema in a message of Arrow's stream format: four bytes of ones, which old writers
// leave out, the length, and the message.
FlatTable SchemaIn(std::span<const uint8_t> stream) {
  const auto take_number = [&] {
    uint32_t number;
    if (stream.size() < sizeof(number)) throw CorruptFile("Arrow schema is cut off");
    std::memcpy(&number, stream.data(), sizeof(number));
    stream = stream.subspan(sizeof(number));
    return number;
  };
  uint32_t num_bytes = take_number();
  if (num_bytes == UINT32_MAX) num_bytes = take_number();
  if (num_bytes > stream.size()) throw CorruptFile("Arrow schema is cut off");
  const FlatTable message(stream.first(num_bytes));
  if (message.Number<uint8_t>(kMessageHeaderType) != kSchemaHeader) {
    throw CorruptFile("Arrow schema is another message");
  }
  return message.Table(kMessageHeader);
}

// The bytes that a text in base64 stands for; none for any other text.
std::vector<uint8_t> DecodeBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static constexpr auto kValues = [=] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    for (size_t i = 0; i < kDigits.size(); ++i) {
      values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    }
    return values;
  }();
  if (text.size() % 4 != 0) return {};
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char digit : text) {
    const int8_t value = kValues[static_cast<uint8_t>(digit)];
    if (value < 0) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> num_bits));
  }
  return bytes;
}

bool IsList(const LeafColumn& leaf) { return leaf.element_levels.size() == 1; }

// True if the schemas have the same leaves, as far as lengths depend on them.
bool Fits(const std::vector<DeclaredLeaf>& declared,
          const std::vector<LeafColumn>& leaves, const FooterFacts& facts) {
  if (declared.size() != leaves.size()) return false;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (facts.leaves[i].path.front().name != declared[i].column ||
        declared[i].num_lists != leaves[i].element_levels.size()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void ReadDeclaredLengths(const FooterFacts& facts, std::vector<LeafColumn>* leaves) {
  if (std::ranges::none_of(*leaves, IsList)) return;
  const std::vector<uint8_t> stored = DecodeBase64(facts.arrow_schema);
  try {
    const DeclaredLeaves declared(SchemaIn(stored), facts.num_schema_elements);
    if (!Fits(declared.leaves(), *leaves, facts)) return;
    for (size_t i = 0; i < leaves->size(); ++i) {
      LeafColumn& leaf = (*leaves)[i];
      if (IsList(leaf)) leaf.list_length = declared.leaves()[i].length;
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCorruptFile) throw;
  }
}

}  // namespace torchparquet
