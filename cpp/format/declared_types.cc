#include "format/declared_types.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace torchparquet {
namespace {

// A table in the binary format of FlatBuffers, in which Arrow stores schemas. Takes no
// memory, so a value that is stored once and referred to often costs nothing. Throws
// Error(kCorruptFile) for offsets outside the bytes. Fields are numbered in the order of
// the table's declaration.
class FlatTable {
 public:
  // The root table of `bytes`, which must outlive it.
  explicit FlatTable(std::span<const uint8_t> bytes)
      : FlatTable(bytes, FollowOffset(bytes, 0)) {}

  // A number; the default of its declaration if it is not stored.
  template <typename T>
  T Number(int field, T by_default = 0) const {
    const int64_t at = Find(field);
    return at == kNotStored ? by_default : Load<T>(bytes_, at);
  }

  FlatTable Table(int field) const {
    const int64_t at = Find(field);
    if (at == kNotStored) throw CorruptFile("table lacks a field");
    return {bytes_, FollowOffset(bytes_, at)};
  }

  std::string_view Text(int field) const {
    const int64_t at = Find(field);
    if (at == kNotStored) return {};
    const int64_t begin = FollowOffset(bytes_, at);
    const int64_t num_bytes = Load<uint32_t>(bytes_, begin);
    const int64_t text = begin + int64_t{sizeof(uint32_t)};
    if (num_bytes > static_cast<int64_t>(bytes_.size()) - text) throw OutsideBytes();
    // Bytes are read as characters.
    return {reinterpret_cast<const char*>(bytes_.data()) + text,
            static_cast<size_t>(num_bytes)};
  }

  // Calls `take` with each table of a list.
  template <typename Take>
  void ForEachTable(int field, const Take& take) const {
    const int64_t at = Find(field);
    if (at == kNotStored) return;
    const int64_t begin = FollowOffset(bytes_, at);
    const int64_t num_tables = Load<uint32_t>(bytes_, begin);
    for (int64_t i = 1; i <= num_tables; ++i) {
      const int64_t item = begin + i * int64_t{sizeof(uint32_t)};
      take(FlatTable(bytes_, FollowOffset(bytes_, item)));
    }
  }

 private:
  static constexpr int64_t kNotStored = -1;

  FlatTable(std::span<const uint8_t> bytes, int64_t begin)
      : bytes_(bytes), begin_(begin) {}

  static Error OutsideBytes() { return CorruptFile("table lies outside its bytes"); }

  template <typename T>
  static T Load(std::span<const uint8_t> bytes, int64_t at) {
    if (at < 0 || at > static_cast<int64_t>(bytes.size()) - int64_t{sizeof(T)}) {
      throw OutsideBytes();
    }
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  }

  static int64_t FollowOffset(std::span<const uint8_t> bytes, int64_t at) {
    return at + Load<uint32_t>(bytes, at);
  }

  // The place of a field. A table begins with the distance back to the list of its
  // fields' places, which has its own size, the size of the table, and then the places.
  int64_t Find(int field) const {
    const int64_t places = begin_ - Load<int32_t>(bytes_, begin_);
    const int64_t place = int64_t{sizeof(uint16_t)} * (2 + field);
    if (place >= Load<uint16_t>(bytes_, places)) return kNotStored;
    const int64_t offset = Load<uint16_t>(bytes_, places + place);
    return offset == 0 ? kNotStored : begin_ + offset;
  }

  std::span<const uint8_t> bytes_;
  int64_t begin_;
};

// The fields that are read of Arrow's Message.fbs and Schema.fbs.
constexpr int kMessageHeaderType = 1;
constexpr int kMessageHeader = 2;
constexpr int kSchemaFields = 1;
constexpr int kFieldName = 0;
constexpr int kFieldTypeId = 2;
constexpr int kFieldType = 3;
constexpr int kFieldChildren = 5;
constexpr int kFieldMetadata = 6;
constexpr int kFixedSizeListLength = 0;
constexpr int kDurationUnit = 0;
constexpr int kKey = 0;
constexpr int kValue = 1;

constexpr uint8_t kSchemaHeader = 1;

// Types with fields of their own. An extension type is stored as its storage type.
enum TypeId : uint8_t {
  kList = 12,
  kStruct = 13,
  kFixedSizeList = 16,
  kMap = 17,
  kDuration = 18,
  kLargeList = 21,
  kListView = 25,
  kLargeListView = 26,
};

// The part of the Arrow schema about one leaf.
struct DeclaredLeaf {
  std::string_view column;            // name of the top level
  std::vector<int64_t> lengths = {};  // of its lists, outermost first; 0: any length
  std::optional<int16_t> duration_unit = {};  // by Arrow's number
  std::string_view tensor_shape = {};  // of a fixed_shape_tensor, as Arrow stores it
};

// An int64 of no logical type, as durations are stored.
constexpr kernels::StoredType kPlainInt64 = {kernels::Stored::kInt64, 8};

struct DurationUnit {
  std::string_view name;
  int64_t nanoseconds;
};
constexpr std::array<DurationUnit, 4> kDurationUnits = {
    {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};
constexpr int16_t kDefaultDurationUnit = 1;

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
    AddTensor(field, &leaf);
    const auto type = field.Number<uint8_t>(kFieldTypeId);
    switch (type) {
      case kFixedSizeList:
      case kList:
      case kLargeList:
      case kListView:
      case kLargeListView:
      case kMap: {  // of one struct, of key and value
        int32_t length = 0;
        if (type == kFixedSizeList) {
          length = field.Table(kFieldType).Number<int32_t>(kFixedSizeListLength);
        }
        leaf.lengths.push_back(std::max(length, 0));
      }
        [[fallthrough]];
      case kStruct:
        field.ForEachTable(kFieldChildren, [&](const FlatTable& child) {
          AddField(child, leaf, depth + 1);
        });
        return;
      case kDuration:
        leaf.duration_unit =
            field.Table(kFieldType).Number<int16_t>(kDurationUnit, kDefaultDurationUnit);
        [[fallthrough]];
      default:
        leaves_.push_back(std::move(leaf));
    }
  }

  static void AddTensor(const FlatTable& field, DeclaredLeaf* leaf) {
    bool is_tensor = false;
    std::string_view shape;
    field.ForEachTable(kFieldMetadata, [&](const FlatTable& pair) {
      const std::string_view key = pair.Text(kKey);
      const std::string_view value = pair.Text(kValue);
      if (key == "ARROW:extension:name") is_tensor = value == "arrow.fixed_shape_tensor";
      if (key == "ARROW:extension:metadata") shape = value;
    });
    if (is_tensor && leaf->lengths.empty()) leaf->tensor_shape = shape;
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

// Adds to a leaf what only Arrow's schema says of it.
void AddDeclared(const DeclaredLeaf& declared, LeafColumn* leaf) {
  if (leaf->element_levels.size() == 1) leaf->list_length = declared.lengths.front();
  if (leaf->element_levels.size() > 1) leaf->list_lengths = declared.lengths;
  if (IsUtf8(declared.tensor_shape)) leaf->tensor_shape = declared.tensor_shape;
  if (declared.duration_unit && leaf->stored == kPlainInt64 &&
      *declared.duration_unit >= 0 && *declared.duration_unit < 4) {
    const DurationUnit& unit =
        kDurationUnits[static_cast<size_t>(*declared.duration_unit)];
    leaf->stored.nanoseconds = unit.nanoseconds;
    const size_t at = leaf->kind.find("int64");
    if (at != std::string::npos) {
      leaf->kind.replace(at, 5, "duration[" + std::string(unit.name) + "]");
    }
  }
}

// True if the schemas have the same leaves, as far as declared types depend on them.
bool Fits(const std::vector<DeclaredLeaf>& declared,
          const std::vector<LeafColumn>& leaves, const FooterFacts& facts) {
  if (declared.size() != leaves.size()) return false;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (facts.leaves[i].path.front().name != declared[i].column ||
        declared[i].lengths.size() != leaves[i].element_levels.size()) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool DependsOnArrowSchema(const LeafColumn& leaf) {
  return !leaf.element_levels.empty() ||
         (leaf.stored.stored == kernels::Stored::kInt64 &&
          (leaf.stored.nanoseconds == 0 || leaf.kind.starts_with("duration")));
}

void ReadDeclaredTypes(const FooterFacts& facts, std::vector<LeafColumn>* leaves) {
  if (std::ranges::none_of(*leaves, DependsOnArrowSchema)) return;
  const std::vector<uint8_t> stored = DecodeBase64(facts.arrow_schema);
  try {
    const DeclaredLeaves declared(SchemaIn(stored), facts.num_schema_elements);
    if (!Fits(declared.leaves(), *leaves, facts)) return;
    for (size_t i = 0; i < leaves->size(); ++i) {
      AddDeclared(declared.leaves()[i], &(*leaves)[i]);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCorruptFile) throw;
  }
}

}  // namespace torchparquet
